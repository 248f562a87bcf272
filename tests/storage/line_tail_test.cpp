#include "storage/files/line_tail.hpp"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/disks/temp_directory.hpp"

namespace train::storage::line_tail_test {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

struct Site {
  test::TempDirectory home;
  fs::path folder = home / "run";
  fs::path file = folder / "lines";
  Lines lines = {};
  int restarts = 0;

  Site() { fs::create_directory(folder); }
  void append(const std::string& text) const { std::ofstream(file, std::ios::app) << text; }
  [[nodiscard]] LineTail tail(LineTail::Limits limits = {}) const {
    return LineTail({.folder = folder, .below = "lines"}, limits);
  }
  /// What came of it, once.
  Lines read(LineTail& tail) {
    lines.clear();
    const LineTail::Reader reader = {
        .restart = [this] { ++restarts; },
        .line = [this](std::string_view line) { lines.emplace_back(line); }};
    while (tail.next(reader) == LineTail::More::yes) {
    }
    return lines;
  }
};

std::size_t open_descriptors() {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    count += entry.path().empty() ? 0 : 1;
  }
  return count;
}

}  // namespace

TEST_CASE("line tail: each line once, and no descriptor between two looks", "[storage]") {
  Site site;
  LineTail tail = site.tail();
  CHECK(site.read(tail).empty());
  const std::size_t before = open_descriptors();
  site.append("one\ntwo\nthr");
  CHECK(site.read(tail) == Lines{"one", "two"});
  CHECK(tail.unfinished() == "thr");
  CHECK(open_descriptors() == before);
  site.append("ee\n");
  CHECK(site.read(tail) == Lines{"three"});
  CHECK(site.read(tail).empty());
}

TEST_CASE("line tail: a file that was replaced or cut is read anew", "[storage]") {
  Site site;
  LineTail tail = site.tail();
  site.append("one\ntwo\n");
  site.read(tail);
  fs::remove(site.file);
  site.append("other\nand more than there was\n");  // perhaps with the number of the first
  CHECK(site.read(tail) == Lines{"other", "and more than there was"});
  CHECK(site.restarts == 1);
  test::write_bytes(site.file, "1\n");
  CHECK(site.read(tail) == Lines{"1"});
  CHECK(site.restarts == 2);
}

TEST_CASE("line tail: a file that was cut and is as long again, or longer, is read anew",
          "[storage]") {
  Site site;
  LineTail tail = site.tail();
  site.append("one\ntwo\nthree\n");
  site.read(tail);
  fs::resize_file(site.file, 4);
  site.append("TWO\nthree\nfour\n");
  CHECK(site.read(tail) == Lines{"one", "TWO", "three", "four"});
  fs::resize_file(site.file, 4);
  site.append("two\nthree\nfour\n");
  // Both changes could be in one tick of the file system's clock.
  fs::last_write_time(site.file, fs::file_time_type::clock::now() + std::chrono::hours(1));
  CHECK(site.read(tail) == Lines{"one", "two", "three", "four"});
  CHECK(site.restarts == 2);
}

TEST_CASE("line tail: a line that is too long is skipped and counted", "[storage]") {
  Site site;
  LineTail tail = site.tail({.line_bytes = 10});
  site.append("0123456789\n01234567890\nnext\n" + std::string(5 * LineTail::kPiece, 'x'));
  CHECK(site.read(tail) == Lines{"0123456789", "next"});
  CHECK(tail.skipped_lines() == 2);
  site.append("\nlast\n");
  CHECK(site.read(tail) == Lines{"last"});
  CHECK(tail.skipped_lines() == 2);
}

TEST_CASE("line tail: of a file that is far ahead the newest lines are read", "[storage]") {
  Site site;
  LineTail tail = site.tail({.line_bytes = 100, .newest_bytes = 20});
  site.append("the first line\nthe second line\nnew\n");
  CHECK(site.read(tail) == Lines{"new"});
  site.append("a\n");
  CHECK(site.read(tail) == Lines{"a"});
  fs::resize_file(site.file, std::uint64_t{1} << 40U);  // a hole
  site.append("\nend\n");
  CHECK(site.read(tail) == Lines{"end"});
}

TEST_CASE("line tail: a link out of the folder and what is no file are said", "[storage]") {
  Site site;
  LineTail tail = site.tail();
  test::write_bytes(site.home / "private", "secret\n");
  fs::create_symlink(site.home / "private", site.file);
  CHECK(site.read(tail).empty());
  CHECK_THAT(tail.problem(), Catch::Contains("a link leads out of"));
  fs::remove(site.file);
  REQUIRE(::mkfifo(site.file.c_str(), 0600) == 0);
  CHECK(site.read(tail).empty());
  CHECK_THAT(tail.problem(), Catch::Contains("not a regular file"));
  fs::remove(site.file);
  site.append("one\n");
  CHECK(site.read(tail) == Lines{"one"});
  CHECK(tail.problem().empty());
}

}  // namespace train::storage::line_tail_test
