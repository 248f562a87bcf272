// Makes of the program one that kills itself, or whose kernels fail, where its environment says.

#include "tests/support/kernel_faults.hpp"
#include "tests/support/kill_points.hpp"

// The linker takes the first for every call of cpu_backend(), and the second for the function
// itself (tests/CMakeLists.txt).
extern "C" const train::kernels::KernelTable& __wrap__ZN5train7kernels11cpu_backendEv();
extern "C" const train::kernels::KernelTable& __real__ZN5train7kernels11cpu_backendEv();

const train::kernels::KernelTable& __wrap__ZN5train7kernels11cpu_backendEv() {
  static const train::kernels::KernelTable table =
      train::test::KernelFaults::of_this_process().apply(__real__ZN5train7kernels11cpu_backendEv());
  return table;
}

namespace {

// Before main(), so that the first call is seen; never destroyed, as the last call comes late.
[[maybe_unused]] const auto* const installed = [] {
  auto* const kill_points = new train::test::KillPoints;
  train::storage::install_file_call_hook(kill_points);
  return kill_points;
}();

}  // namespace
