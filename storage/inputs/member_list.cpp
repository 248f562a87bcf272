#include "storage/inputs/member_list.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "base/text/one_line.hpp"

namespace train::storage {

std::string member_list(const nlohmann::ordered_json& object) {
  constexpr std::size_t most = 12;
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) {
    if (names.size() == most) {
      break;
    }
    names.push_back(fmt::format("\"{}\"", one_line(name)));
  }
  return fmt::format("members {}{}", fmt::join(names, ", "), object.size() > most ? ", ..." : "");
}

}  // namespace train::storage
