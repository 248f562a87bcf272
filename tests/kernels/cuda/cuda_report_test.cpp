// What the CUDA compiler said of each kernel: nothing that is kept in registers spills into memory.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/kernels/device_objects.hpp"
#include "tests/kernels/kernel_fixture.hpp"
#include "tests/kernels/ptxas_report.hpp"

namespace train::kernels::testing::cuda_report_test {
namespace {

/// Most bytes that a kernel may spill. State spaces: a thread keeps a row of states, and no device
/// has measured yet what a smaller part of them would cost.
std::int64_t allowed_spill(const std::string& source) {
  constexpr std::int64_t states = 128;
  return source.starts_with("state_space/") ? states : 0;
}

TEST_CASE("cuda report: no kernel spills registers", "[kernels][cuda][.cuda_report]") {
  if (!std::filesystem::exists(ACTORTRAIN_DEVICE_OBJECTS "/norm/norm_forward.cu.o")) {
    std::printf("skipped: compiler's report on CUDA kernels: this build has no CUDA\n");
    return;
  }
  const std::set<std::string> sources = device_sources();
  REQUIRE(sources.size() > 20);
  for (const std::string& source : sources) {  // A piece with state spaces has nothing else.
    const std::string report =
        std::string(ACTORTRAIN_DEVICE_OBJECTS "/") + device_object_of(source) + ".ptxas";
    std::ifstream file(report);
    INFO(report);
    REQUIRE(file.good());
    const std::vector<Usage> usages = usages_of(file);
    REQUIRE_FALSE(usages.empty());
    for (const Usage& usage : usages) {
      INFO(usage.function << ": " << usage.spilled_bytes << " bytes");
      CHECK(static_cast<std::int64_t>(usage.spilled_bytes) <= allowed_spill(source));
    }
  }
}

TEST_CASE("cuda report: products of warpgroups overlap with other work",
          "[kernels][cuda][.cuda_report]") {
  // Where the compiler cannot tell what they read and write it waits for each of them, and says so.
  for (const std::string pass : {"forward", "backward"}) {
    const std::string report =
        ACTORTRAIN_DEVICE_OBJECTS "/attention/tensor_cores/attention_" + pass + "_wgmma.cu.o.ptxas";
    std::ifstream file(report);
    if (!file.good()) {
      std::printf("skipped: compiler's report on products of warpgroups: this build has no CUDA\n");
      return;
    }
    for (std::string line; std::getline(file, line);) {
      INFO(report << ": " << line);
      CHECK(line.find("serialized") == std::string::npos);
    }
  }
}

TEST_CASE("cuda report: a spill is found", "[kernels][cuda]") {
  std::istringstream report(
      "ptxas info    : Function properties for fine\n"
      "    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 40 registers, used 0 barriers\n"
      "ptxas info    : Function properties for greedy\n"
      "    64 bytes stack frame, 24 bytes spill stores, 36 bytes spill loads\n");
  const std::vector<Usage> usages = usages_of(report);
  REQUIRE(usages.size() == 2);
  CHECK(usages[0].spilled_bytes == 0);
  CHECK(usages[1].function == "greedy");
  CHECK(usages[1].spilled_bytes == 60);
}

}  // namespace
}  // namespace train::kernels::testing::cuda_report_test
