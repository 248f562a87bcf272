// scripts/gpu_check.sh as a bundle has it, with programs that say what they were asked for.
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/processes/script.hpp"

namespace train::kernels::gpu_check_script_test {
namespace {

namespace fs = std::filesystem;

class Bundle {
 public:
  /// Of tests that, each in a process of its own, pass but for "spoils: all, and itself"; together
  /// they end with `together`.
  explicit Bundle(int together) {
    fs::create_directories(directory_ / "bin");
    fs::create_directories(directory_ / "share");
    fs::copy_file(ACTORTRAIN_SOURCE_DIR "/scripts/gpu_check.sh", directory_ / "gpu-check");
    const std::string tests =
        "case \"$*\" in\n"
        "*--list*) echo 'seed: 1'; echo 'spoils: all, and itself'; "
        "echo 'passes: alone'; exit 2 ;;\n"
        "*--input-file*) ! grep -q spoils \"${@: -1}\" ;;\n"
        "*) echo \"$(basename \"$0\") of $1 with $LD_LIBRARY_PATH\"; exit " +
        std::to_string(together) + " ;;\nesac\n";
    program("bin/test_kernels", tests);
    program("bin/test_engine", tests);
    program("bin/bench_gpu", "shift 2; echo \"bench of $*\"\n");
    program("share/compute_sanitizer.sh", "echo \"sanitizer of $*\"\n");
    program("python", "echo /some/python/lib\n");
  }

  /// What it says to `words`; the exit code is `code`.
  std::string run(const std::string& words, int& code) const {
    const std::string command = "ACTORTRAIN_PYTHON='" + (directory_ / "python").string() + "' '" +
                                (directory_ / "gpu-check").string() + "' --out '" +
                                (directory_ / "out").string() + "' " + words + " 2>&1";
    FILE* pipe = ::popen(command.c_str(), "r");
    REQUIRE(pipe != nullptr);
    std::string said;
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
      said += static_cast<char>(c);
    }
    code = WEXITSTATUS(::pclose(pipe));
    return said;
  }
  [[nodiscard]] std::string kept(const std::string& name) const {
    std::ifstream file(directory_ / "out" / name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

 private:
  void program(const std::string& name, const std::string& body) {
    std::ofstream(directory_ / name) << "#!/bin/bash\n" << body;
    fs::permissions(directory_ / name, fs::perms::owner_all);
  }

  test::TempDirectory directory_;
};

TEST_CASE("gpu check script: what is wrong comes first, then what is slow, and all is kept",
          "[kernels][cuda][gpu_check]") {
  const Bundle bundle(0);
  int code = -1;
  const std::string said = bundle.run("", code);
  INFO(said);
  CHECK(code == 0);
  std::size_t at = 0;
  for (const char* const part :
       {"test_kernels of [gpu]", "bench of kernels", "test_engine of [gpu]", "bench of loss"}) {
    at = said.find(part, at);
    REQUIRE(at != std::string::npos);
  }
  CHECK_THAT(bundle.kept("test_kernels.txt"), Catch::Contains("test_kernels of [gpu]"));
  CHECK_THAT(bundle.kept("bench.txt"),
             Catch::Contains("bench of kernels") && Catch::Contains("bench of loss"));
}

TEST_CASE("gpu check script: libraries of Python's packages are found after all others",
          "[kernels][cuda][gpu_check]") {
  const Bundle bundle(0);
  const test::EnvironmentVariable before("LD_LIBRARY_PATH", "/first");
  int code = -1;
  const std::string said = bundle.run("test", code);
  CHECK_THAT(said, Catch::Contains("with /first:/some/python/lib"));
}

TEST_CASE("gpu check script: after a failure each test says alone whether it is one",
          "[kernels][cuda][gpu_check]") {
  const Bundle bundle(1);
  int code = -1;
  const std::string said = bundle.run("test", code);
  CHECK(code == 1);
  CHECK_THAT(said, Catch::Contains("failed (1): spoils: all, and itself") &&
                       Catch::Contains("passed: passes: alone"));
  CHECK_THAT(bundle.kept("test_engine.txt"), Catch::Contains("passed: passes: alone"));
}

TEST_CASE("gpu check script: rows and families are handed on, and other words refused",
          "[kernels][cuda][gpu_check]") {
  const Bundle bundle(0);
  int code = -1;
  CHECK_THAT(bundle.run("bench kill 8b", code), Catch::Contains("bench of kill 8b"));
  CHECK_THAT(bundle.run("sanitize norm", code), Catch::Contains("test_kernels norm"));
  CHECK(bundle.kept("sanitize.txt").find("test_kernels norm") != std::string::npos);
  CHECK_THAT(bundle.run("measure", code), Catch::Contains("usage: "));
  CHECK(code == 2);
}

}  // namespace
}  // namespace train::kernels::gpu_check_script_test
