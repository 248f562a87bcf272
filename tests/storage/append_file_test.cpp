#include "storage/files/append_file.hpp"

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/disks/failing_disk.hpp"
#include "tests/support/disks/full_disk.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/log_lines.hpp"

namespace train::storage::append_file_test {

using test::DiskFault;
using test::FailingDisk;
using test::TempDirectory;

namespace {

constexpr int kRecords = 12;

std::string line(int number) { return "{\"number\":" + std::to_string(number) + "}\n"; }

std::string lines(int first, int end) {
  std::string all;
  for (int number = first; number < end; ++number) {
    all += line(number);
  }
  return all;
}

}  // namespace

TEST_CASE("append_file: whichever calls fail, every record comes whole and in order (ST-7)",
          "[storage][append_file][ST-7]") {
  const auto half = GENERATE(HalfRecord::cut_off, HalfRecord::begin_line);
  const int error_number = GENERATE(ENOSPC, EDQUOT, EIO, ESTALE);
  const std::int64_t failing = GENERATE(1, 2, 3, 7);
  for (std::int64_t at = 0; at < kRecords + 6; ++at) {
    INFO("from call " << at << " on " << failing << " calls fail with error " << error_number);
    const TempDirectory directory;
    AppendFile file(directory / "new" / "records", half);
    const FailingDisk disk({.error_number = error_number, .at = at, .calls = failing});
    for (int number = 0; number < kRecords; ++number) {
      file.append(line(number));
    }
    for (int tries = 0; tries < 10 && !file.flush(); ++tries) {
    }
    std::string text = test::read_bytes(file.path());
    if (half == HalfRecord::begin_line) {  // half a line may stand before its whole one
      std::string whole;
      for (int number = 0; number < kRecords; ++number) {
        const std::size_t found = text.find(line(number));
        REQUIRE(found != std::string::npos);
        whole += line(number);
        text.erase(0, found + line(number).size());
      }
      text = whole + text;
    }
    REQUIRE(text == lines(0, kRecords));
  }
}

TEST_CASE("append_file: a disk that stays full is one warning, and room is one line",
          "[storage][append_file][ST-7]") {
  const TempDirectory directory;
  test::SmallDisk disk(directory / "disk", "16k");
  if (!disk.mounted()) {
    return;
  }
  const test::LogLines log;
  AppendFile file(disk.path() / "records");
  int number = 0;
  while (file.append(line(number))) {
    ++number;
  }
  while (++number < 5000) {
    CHECK_FALSE(file.append(line(number)));
  }
  CHECK(log.count("file_behind") == 1);
  REQUIRE(disk.grow("1m"));
  CHECK(file.append(line(number)));
  CHECK(log.count("file_caught_up") == 1);
  CHECK(test::read_bytes(file.path()) == lines(0, number + 1));
}

TEST_CASE("append_file: what no longer fits in memory is counted, not torn",
          "[storage][append_file][ST-7]") {
  const TempDirectory directory;
  const test::LogLines log;
  AppendFile file(directory / "records", HalfRecord::cut_off, /*limit_bytes=*/100);
  {
    const FailingDisk disk({.error_number = ENOSPC, .at = 0, .persistent = true});
    for (int number = 0; number < kRecords; ++number) {
      file.append(line(number));
    }
  }
  int kept = 0;
  file.each_waiting([&kept](std::string_view) { ++kept; });
  CHECK(kept < kRecords);
  REQUIRE(file.append(line(kRecords)));
  CHECK(test::read_bytes(file.path()) == lines(0, kept) + line(kRecords));
  CHECK(log.count("dropped=" + std::to_string(kRecords - kept)) == 1);
}

TEST_CASE("append_file: half a record of a process that was killed is cut off, or ends its line",
          "[storage][append_file][ST-7]") {
  const TempDirectory directory;
  const std::string torn = line(0) + "{\"num";
  test::write_bytes(directory / "cut", torn);
  test::write_bytes(directory / "kept", torn);
  AppendFile cut(directory / "cut");
  cut.cut(line(0).size());
  AppendFile kept(directory / "kept", HalfRecord::begin_line);
  CHECK(cut.append(line(1)));
  CHECK(kept.append(line(1)));
  CHECK(test::read_bytes(cut.path()) == lines(0, 2));
  CHECK(test::read_bytes(kept.path()) == torn + "\n" + line(1));
}

TEST_CASE("append_file: another file that somebody puts in its place is not filled with zeros",
          "[storage][append_file]") {
  const TempDirectory directory;
  AppendFile file(directory / "records");
  CHECK(file.append(line(0)));
  {
    const FailingDisk disk({.error_number = EIO, .at = 0});
    CHECK_FALSE(file.append(line(1)));
  }
  std::filesystem::remove(file.path());
  CHECK(file.append(line(2)));
  CHECK(test::read_bytes(file.path()) == lines(1, 3));
}

}  // namespace train::storage::append_file_test
