#include "actors/cluster/recovery/recovery_table.hpp"

#include <fmt/format.h>

#include "base/check.hpp"
#include "base/exit_codes.hpp"

namespace train::actors {

std::int32_t exit_code_of(Exit exit, std::int32_t told) {
  switch (exit) {
    case Exit::finished:
      return kExitFinished;
    case Exit::failure:
      return kExitFailure;
    case Exit::mistake:
      return kExitUserError;
    case Exit::stopped:
      return kExitStopped;
    case Exit::as_told:
      return told;
    case Exit::none:
      break;
  }
  TRAIN_CHECK(false, "a row without an exit code ends something");
  return kExitFailure;
}

std::string fill_in(std::string_view line, const LineWords& words) {
  return fmt::format(fmt::runtime(line), fmt::arg("rank", words.rank), fmt::arg("node", words.node),
                     fmt::arg("seconds", words.seconds), fmt::arg("signal", words.signal),
                     fmt::arg("text", words.text), fmt::arg("nodes", words.nodes));
}

}  // namespace train::actors
