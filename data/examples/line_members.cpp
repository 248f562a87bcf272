#include "data/examples/line_members.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace train::data {

const nlohmann::ordered_json* LineMembers::find(std::string_view key) const {
  const auto found = line_.find(std::string(key));
  return found == line_.end() || found->is_null() ? nullptr : &*found;
}

bool LineMembers::is_null(std::string_view key) const {
  const auto found = line_.find(std::string(key));
  return found != line_.end() && found->is_null();
}

const nlohmann::ordered_json* LineMembers::read(std::string_view key) {
  const auto* const member = find(key);
  if (member != nullptr) {
    read_.emplace_back(key);
  }
  return member;
}

const std::string* LineMembers::text(std::string_view key) {
  const auto* const member = find(key);
  return member != nullptr && member->is_string() ? &read(key)->get_ref<const std::string&>()
                                                  : nullptr;
}

std::vector<std::string> LineMembers::unread(bool that_may_be_words) const {
  std::vector<std::string> names;
  for (const auto& [key, value] : line_.items()) {
    const bool empty = value.is_null() || value.empty() ||
                       (value.is_string() && value.get_ref<const std::string&>().empty());
    const bool words = value.is_string() || value.is_structured();
    if (!empty && (words || !that_may_be_words) &&
        std::find(read_.begin(), read_.end(), key) == read_.end()) {
      names.push_back(key);
    }
  }
  return names;
}

}  // namespace train::data
