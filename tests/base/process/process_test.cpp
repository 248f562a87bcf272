#include "base/process/process.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "tests/support/disks/temp_directory.hpp"

namespace train {
namespace {

TEST_CASE("process: the kernel's count of kills for want of memory is read", "[base][process]") {
  const test::TempDirectory directory;
  const auto count = [&](const std::string& text) {
    test::write_bytes(directory / "vmstat", text);
    return count_oom_kills(directory / "vmstat");
  };
  CHECK(count(std::string("nr_free_pages 5\noom_kill 3\nother 9\n")) == 3);
  CHECK_FALSE(count(std::string("nr_free_pages 5\n")));
  CHECK_FALSE(count_oom_kills(directory / "none"));
}

}  // namespace
}  // namespace train
