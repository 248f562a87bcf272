// Kernels for an architecture that the build has none for yet: that they keep there what they
// promise on the others does not depend on a device.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <regex>
#include <string>
#include <vector>

#include "tests/kernels/kernel_fixture.hpp"
#include "tests/kernels/ptxas_report.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::kernels::testing::cuda_next_architecture_test {
namespace {

namespace fs = std::filesystem;

const std::string bin = std::string(ACTORTRAIN_CUDA_BIN_DIR) + "/";

/// As CMake has it (cmake/ActorTrain.cmake), first to PTX, then to a report beside it. 0: done.
int compile(const fs::path& source, const fs::path& ptx) {
  const std::string to_ptx = bin +
                             "nvcc -std=c++20 -O3 -DNDEBUG -I" ACTORTRAIN_SOURCE_DIR
                             " -fmad=false --expt-relaxed-constexpr -arch=sm_100 -ptx -o " +
                             ptx.string() + " " + source.string();
  const std::string to_report =
      bin + "ptxas -v -arch=sm_100 -o /dev/null " + ptx.string() + " 2>" + ptx.string() + ".report";
  return std::system((to_ptx + " && " + to_report).c_str());
}

/// Sums of floats in an order of the machine's, as PTX has them.
bool adds_floats_by_atomics(const std::string& line) {
  static const std::regex kAtomic(
      R"(\b(atom|red)\.[a-z0-9_.:]*\.(f16|f16x2|bf16|bf16x2|f32|f64)\b)");
  return std::regex_search(line, kAtomic);
}

/// Writes a source that includes those of the families, whose headers are parsed once so. Returns
/// how many they are.
int write_piece(const fs::path& piece, const std::vector<std::string>& families) {
  std::ofstream text(piece);
  int sources = 0;
  for (const std::string& family : families) {
    for (const auto& entry : fs::directory_iterator(ACTORTRAIN_SOURCE_DIR "/kernels/" + family)) {
      if (entry.path().extension() == ".cu") {
        text << "#include \"" << entry.path().string() << "\"\n";
        sources += 1;
      }
    }
  }
  return sources;
}

void check(const fs::path& ptx) {
  INFO(ptx);
  std::ifstream report(ptx.string() + ".report");
  const std::vector<Usage> usages = usages_of(report);
  CHECK_FALSE(usages.empty());
  for (const Usage& usage : usages) {
    INFO(usage.function << ": " << usage.spilled_bytes << " bytes");
    CHECK(usage.spilled_bytes == 0);
  }
  std::ifstream text(ptx);
  for (std::string line; std::getline(text, line);) {
    if (line.find("atom") != std::string::npos || line.find("red") != std::string::npos) {
      INFO(line);
      CHECK_FALSE(adds_floats_by_atomics(line));
    }
  }
}

}  // namespace

TEST_CASE("cuda report: sm_100 neither spills nor adds floats by atomics",
          "[kernels][cuda][.cuda_report][P1]") {
  if (!fs::exists(ACTORTRAIN_DEVICE_OBJECTS "/norm/norm_forward.cu.o")) {
    std::printf("skipped: kernels for sm_100: this build has no CUDA\n");
    return;
  }
  const test::TempDirectory directory;
  const fs::path attention = directory.path() / "attention.cu";
  const fs::path others = directory.path() / "others.cu";
  REQUIRE(write_piece(attention, {"attention"}) > 4);
  REQUIRE(write_piece(others, {"head", "optimizer"}) > 6);
  const auto ptx_of = [](fs::path source) { return source.replace_extension(".ptx"); };
  auto beside = std::async(std::launch::async, [&] { return compile(others, ptx_of(others)); });
  CHECK(compile(attention, ptx_of(attention)) == 0);
  CHECK(beside.get() == 0);
  check(ptx_of(attention));
  check(ptx_of(others));
}

TEST_CASE("cuda report: sums of floats by atomics are told from those of whole numbers",
          "[kernels][cuda]") {
  CHECK(adds_floats_by_atomics("\tred.global.add.f32 [%rd1], %f1;"));
  CHECK(adds_floats_by_atomics("\tatom.shared.add.f64 %fd1, [%rd1], %fd2;"));
  CHECK_FALSE(adds_floats_by_atomics("\tatom.global.cas.b32 %r1, [%rd1], 0, 1;"));
  CHECK_FALSE(adds_floats_by_atomics("\tred.shared.add.u32 [%r1], 1;"));
  CHECK_FALSE(adds_floats_by_atomics("\tadd.f32 %f1, %f2, %f3;"));
}

}  // namespace train::kernels::testing::cuda_next_architecture_test
