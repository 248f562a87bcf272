#include "run/recovery/recovery_table.hpp"

#include <fmt/format.h>

#include <array>

#include "base/check.hpp"
#include "base/exit_codes.hpp"

namespace train::run {

std::int32_t exit_code_of(Exit exit, std::int32_t told) {
  static constexpr std::array kCodes = {kExitFinished, kExitFailure, kExitUserError, kExitStopped};
  TRAIN_CHECK(exit != Exit::none, "a row without an exit code ends something");
  const auto index = static_cast<std::size_t>(exit) - static_cast<std::size_t>(Exit::finished);
  return exit == Exit::from_event ? told : kCodes.at(index);
}

std::string fill_in(std::string_view line, const LineWords& words) {
  return fmt::format(fmt::runtime(line), fmt::arg("rank", words.rank), fmt::arg("node", words.node),
                     fmt::arg("seconds", words.seconds), fmt::arg("signal", words.signal),
                     fmt::arg("text", words.text), fmt::arg("nodes", words.nodes));
}

}  // namespace train::run
