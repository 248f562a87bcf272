// Makes of the program one that kills itself, whose kernels fail, or whose processor has no
// AVX-512, where its environment says.

#include <fmt/format.h>

#include <cstdio>

#include "tests/support/devices/instruction_sets.hpp"
#include "tests/support/devices/kernel_faults.hpp"
#include "tests/support/processes/kill_points.hpp"

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

/// ACTORTRAIN_TEST_NO_AVX512=<roles>  commas between them; a role is a rank's number, or head.
[[maybe_unused]] const auto* const processor = [] {
  const char* const roles = std::getenv("ACTORTRAIN_TEST_NO_AVX512");
  const std::string role = train::test::KillPoints::own_role();
  const std::string listed = fmt::format(",{},", roles == nullptr ? "" : roles);
  if (listed.find(fmt::format(",{},", role)) == std::string::npos) {
    return static_cast<train::test::WithoutAvx512*>(nullptr);
  }
  fmt::print(stderr, "without_avx512 role={}\n", role);
  return new train::test::WithoutAvx512;
}();

}  // namespace
