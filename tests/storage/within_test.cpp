#include "storage/files/within.hpp"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/support/disks/temp_directory.hpp"

namespace train::storage::within_test {
namespace {

namespace fs = std::filesystem;

/// A folder of runs, and a file of somebody else beside it.
struct Site {
  test::TempDirectory home;
  fs::path folder = home / "runs";

  Site() {
    fs::create_directories(folder / "mine");
    fs::create_directories(home / "private");
    test::write_bytes(folder / "mine/file", "mine");
    test::write_bytes(home / "private/file", "secret");
  }
  [[nodiscard]] Result<std::string> read(const fs::path& below, std::uint64_t limit = 100) const {
    return read_within({.folder = folder, .below = below}, limit);
  }
  void check_refused(const fs::path& below, const std::string& part) const {
    INFO(below);
    const auto text = read(below);
    REQUIRE_FALSE(text);
    CHECK(text.error().exit_code() == 2);
    CHECK_THAT(text.error().message, Catch::Contains((folder / below).string()));
    CHECK_THAT(text.error().message, Catch::Contains(part));
    CHECK(text.error().message.find('\n') == std::string::npos);
  }
};

}  // namespace

TEST_CASE("within: files of the folder are read, by links within it, too", "[storage][within]") {
  const Site site;
  CHECK(*site.read("mine/file") == "mine");
  fs::create_symlink("mine", site.folder / "relative");
  fs::create_symlink(site.folder / "mine", site.folder / "absolute");
  fs::create_symlink("../mine/file", site.folder / "mine/again");
  fs::create_symlink(fs::canonical(site.folder) / "mine/file", site.folder / "mine/whole");
  for (const char* name :
       {"relative/file", "absolute/file", "mine/again", "mine/whole", "absolute/whole"}) {
    INFO(name);
    const auto text = site.read(name);
    REQUIRE(text);
    CHECK(*text == "mine");
  }
}

TEST_CASE("within: the folder itself may be a link", "[storage][within]") {
  const Site site;
  fs::create_symlink("runs", site.home / "linked");
  CHECK(*read_within({.folder = site.home / "linked", .below = "mine/file"}, 100) == "mine");
  fs::create_symlink(site.folder / "mine/file", site.folder / "whole");
  CHECK(*read_within({.folder = site.home / "linked", .below = "whole"}, 100) == "mine");
}

TEST_CASE("within: no link leads out of the folder", "[storage][within]") {
  const Site site;
  fs::create_symlink("../private", site.folder / "relative");
  fs::create_symlink(site.home / "private", site.folder / "absolute");
  fs::create_symlink(site.home / "private/file", site.folder / "mine/file of theirs");
  fs::create_symlink("../../private/file", site.folder / "mine/up");
  fs::create_symlink("/proc/self/environ", site.folder / "mine/environment");
  fs::create_symlink("/dev/zero", site.folder / "mine/zeros");
  fs::create_directories(site.home / "runs of another");
  test::write_bytes(site.home / "runs of another/file", "secret");
  fs::create_symlink(site.home / "runs of another", site.folder / "same beginning");
  for (const char* name :
       {"relative/file", "absolute/file", "mine/file of theirs", "mine/up", "mine/environment",
        "mine/zeros", "same beginning/file", "../private/file"}) {
    site.check_refused(name, "a link leads out of");
  }
  fs::create_symlink("loop", site.folder / "loop");
  CHECK_THAT(site.read("loop").error().message, Catch::Contains("symbolic link"));
}

TEST_CASE("within: what is no file is refused and not waited for", "[storage][within]") {
  const Site site;
  REQUIRE(::mkfifo((site.folder / "mine/pipe").c_str(), 0600) == 0);
  fs::create_symlink(site.folder / "mine/pipe", site.folder / "mine/linked pipe");
  site.check_refused("mine/pipe", "not a regular file");
  site.check_refused("mine/linked pipe", "not a regular file");
  site.check_refused("mine", "not a regular file");
  site.check_refused("mine/absent", "No such file");
  site.check_refused("mine/file/below", "Not a directory");
}

TEST_CASE("within: no more is read than may be", "[storage][within]") {
  const Site site;
  CHECK(*site.read("mine/file", 4) == "mine");
  const auto text = site.read("mine/file", 3);
  REQUIRE_FALSE(text);
  CHECK_THAT(text.error().message, Catch::Contains("limit of 3 bytes"));
  fs::resize_file(site.folder / "mine/file", std::uint64_t{1} << 40U);  // a hole
  CHECK_FALSE(site.read("mine/file", 1 << 20));
}

}  // namespace train::storage::within_test
