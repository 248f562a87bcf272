// Makes of the program one that kills itself where its environment says.

#include "tests/support/kill_points.hpp"

namespace {

// Before main(), so that the first call is seen; never destroyed, as the last call comes late.
[[maybe_unused]] const auto* const installed = [] {
  auto* const kill_points = new train::test::KillPoints;
  train::storage::install_file_call_hook(kill_points);
  return kill_points;
}();

}  // namespace
