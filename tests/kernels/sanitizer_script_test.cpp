// scripts/compute_sanitizer.sh with a compute-sanitizer that says what it was asked for.
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/disks/temp_directory.hpp"

namespace train::kernels::sanitizer_script_test {
namespace {

struct Ended {
  int code = 0;
  std::string said;
};

/// Runs the script with `words`; the tool ends with `tool_code` for racecheck, else with 0.
Ended run_script(const std::string& words, int tool_code) {
  const test::TempDirectory directory;
  const std::filesystem::path tool = directory.path() / "compute-sanitizer";
  std::ofstream(tool) << "#!/bin/bash\nprintf '%s|' \"$@\"\necho\n[ \"$2\" != racecheck ] || exit "
                      << tool_code << "\n";
  std::filesystem::permissions(tool, std::filesystem::perms::owner_all);
  const std::string command = "PATH=\"" + directory.path().string() + ":$PATH\" " +
                              ACTORTRAIN_SOURCE_DIR "/scripts/compute_sanitizer.sh tests " + words;
  Ended ended;
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
    ended.said += static_cast<char>(c);
  }
  ended.code = WEXITSTATUS(::pclose(pipe));
  return ended;
}

TEST_CASE("sanitizer script: every tool looks at our kernels alone, races first",
          "[kernels][cuda][sanitizer]") {
  const Ended ended = run_script("", 0);
  CHECK(ended.code == 0);
  std::size_t at = 0;
  for (const std::string tool : {"racecheck", "memcheck", "synccheck"}) {
    const std::string asked = "--tool|" + tool +
                              "|--error-exitcode|1|--report-api-errors|no|--kernel-name|"
                              "kns=train|tests|[kernels][gpu]|\n";
    at = ended.said.find(asked, at);
    INFO(ended.said);
    REQUIRE(at != std::string::npos);
  }
}

TEST_CASE("sanitizer script: families are named, and what a tool finds is not forgotten",
          "[kernels][cuda][sanitizer]") {
  const Ended ended = run_script("attention norm", 1);
  CHECK(ended.code == 1);
  CHECK_THAT(ended.said, Catch::Contains("tests|*attention*[kernels][gpu],*norm*[kernels][gpu]|") &&
                             Catch::Contains("--tool|synccheck|"));
}

}  // namespace
}  // namespace train::kernels::sanitizer_script_test
