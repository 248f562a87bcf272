#include "base/process/own_program.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/process/process.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/processes/script.hpp"

namespace train {
namespace {

namespace fs = std::filesystem;

TEST_CASE("own_program: an update that moves the package away leaves a launcher",
          "[base][process]") {
  const test::TempDirectory site;
  const auto add_package = [&site](const std::string& name) {
    fs::create_directories(site / name / "bin");
    test::write_bytes(site / name / "bin/actortrain", "");
    return site / name / "lib/ld-linux-x86-64.so.2";
  };
  const auto launcher = [&site](const std::string& name) {
    return (site / name / "bin/actortrain").string();
  };
  const fs::path first = add_package("actortrain");
  // As pip does: the new package comes into the place of the old one, which is deleted then.
  const fs::path moved = add_package("~ctortrain");
  CHECK(launcher_of(moved, first) == launcher("~ctortrain"));
  fs::remove_all(site / "~ctortrain");
  CHECK(launcher_of(moved, first) == launcher("actortrain"));
  // The kernel marks a file that is gone.
  CHECK(launcher_of(moved.string() + " (deleted)", first) == launcher("actortrain"));
  fs::remove_all(site / "actortrain");
  CHECK(launcher_of(moved, first) == launcher("~ctortrain"));  // For the message.
}

TEST_CASE("own_program: other programs get back the variables that the launcher set aside",
          "[base][process]") {
  const auto count = [](const std::string& start) {
    const std::vector<std::string> variables = environment_of_others();
    return std::ranges::count_if(
        variables, [&start](const std::string& each) { return each.starts_with(start); });
  };
  const test::EnvironmentVariable other("ACTORTRAIN_LD", "stays");
  {
    const test::EnvironmentVariable preload("ACTORTRAIN_LD_PRELOAD", "libm.so.6");
    const test::EnvironmentVariable audit("ACTORTRAIN_LD_AUDIT", "");
    const test::EnvironmentVariable own("LD_AUDIT", "older");
    CHECK(count("LD_PRELOAD=libm.so.6") == 1);
    CHECK(count("LD_AUDIT=") == 1);
    CHECK(count("LD_AUDIT=older") == 0);
    CHECK(count("ACTORTRAIN_LD_") == 0);
    CHECK(count("ACTORTRAIN_LD=stays") == 1);
    auto child = Process::start({"/bin/sh", "-c",
                                 "test \"$LD_PRELOAD\" = libm.so.6 && "
                                 "test -z \"${ACTORTRAIN_LD_PRELOAD+set}\" && exit 7"},
                                {});
    REQUIRE(child.ok());
    CHECK(child->reap().exit_code == 7);
  }
  // A launcher has set nothing aside: the variable stays.
  const test::EnvironmentVariable kept("LD_AUDIT", "mine");
  CHECK(count("LD_AUDIT=mine") == 1);
}

}  // namespace
}  // namespace train
