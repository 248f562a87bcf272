#include "storage/tensorboard_writer.hpp"

#include <bit>
#include <catch2/catch.hpp>
#include <cstring>

#include "tests/support/disks/full_disk.hpp"
#include "tests/support/disks/temp_directory.hpp"

using namespace train;
using namespace train::storage;
using train::test::TempDirectory;

namespace {

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = (value << 8U) | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

std::uint64_t masked(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return static_cast<std::uint32_t>(((crc >> 15U) | (crc << 17U)) + 0xa282ead8U);
}

/// The events of a file; checks every frame.
std::vector<std::string> events_of(const std::filesystem::path& path) {
  const std::string bytes = test::read_bytes(path);
  std::vector<std::string> events;
  std::string_view rest = bytes;
  while (!rest.empty()) {
    REQUIRE(rest.size() >= 16);
    const std::uint64_t length = little_endian(rest.substr(0, 8));
    REQUIRE(little_endian(rest.substr(8, 4)) == masked(rest.substr(0, 8)));
    REQUIRE(rest.size() >= 16 + length);
    events.emplace_back(rest.substr(12, length));
    REQUIRE(little_endian(rest.substr(12 + length, 4)) == masked(events.back()));
    rest.remove_prefix(16 + length);
  }
  return events;
}

}  // namespace

TEST_CASE("tensorboard_writer: crc32c agrees with published values", "[storage][tensorboard]") {
  REQUIRE(crc32c("123456789") == 0xe3069283U);
  REQUIRE(crc32c(std::string(32, '\0')) == 0x8a9136aaU);  // RFC 3720, B.4
  REQUIRE(crc32c(std::string(32, '\xff')) == 0x62a8ab43U);
}

TEST_CASE("tensorboard_writer: frames hold version, start and scalars", "[storage][tensorboard]") {
  const TempDirectory directory;
  TensorboardWriter writer(directory / "tb");
  REQUIRE(writer.begin(300));
  REQUIRE(writer.path().filename().string().starts_with("events.out.tfevents."));
  writer.scalar("train/loss", 300, 2.5F);
  const auto events = events_of(writer.path());
  REQUIRE(events.size() == 3);
  REQUIRE_THAT(events[0], Catch::EndsWith(std::string("\x1a\x0d") + "brain.Event:2"));
  REQUIRE(events[1].substr(9) == std::string("\x10\xac\x02\x3a\x02\x08\x01", 7));
  // step 300; summary of one value: tag (1) and float (2).
  std::string expected(
      "\x10\xac\x02\x2a\x13\x0a\x11\x0a\x0a"
      "train/loss\x15",
      20);
  expected += std::string("\x00\x00\x20\x40", 4);
  REQUIRE(events[2].substr(9) == expected);
  REQUIRE(events[2][0] == '\x09');
}

TEST_CASE("tensorboard_writer: a text is a tensor of one string for the plugin of texts",
          "[storage][tensorboard]") {
  const TempDirectory directory;
  TensorboardWriter writer(directory / "tb");
  REQUIRE(writer.begin());
  writer.text("samples/0", 2, "a b");
  const auto events = events_of(writer.path());
  REQUIRE(events.size() == 3);
  // step 2; a summary of one value: tag (1), tensor (8) and metadata (9). Bytes as torch writes
  // them, but for the metadata's class of data.
  const std::string tensor(
      "\x08\x07\x12\x04\x12\x02\x08\x01\x42\x03"
      "a b",
      13);
  const std::string metadata("\x0a\x06\x0a\x04text\x20\x02", 10);
  const std::string value = std::string("\x0a\x09") + "samples/0" + std::string("\x42\x0d") +
                            tensor + std::string("\x4a\x0a") + metadata;
  CHECK(events[2].substr(9) == std::string("\x10\x02\x2a\x28\x0a\x26", 6) + value);
}

TEST_CASE("tensorboard_writer: each start has a file of its own, in order",
          "[storage][tensorboard]") {
  const TempDirectory directory;
  std::vector<std::string> names;
  for (int start = 0; start < 3; ++start) {
    TensorboardWriter writer(directory.path());
    REQUIRE(writer.begin(start));
    names.push_back(writer.path().filename().string());
  }
  REQUIRE(test::names_in(directory.path()) == names);
}

TEST_CASE("tensorboard_writer: a full disk leaves whole records, and room brings the rest",
          "[storage][tensorboard]") {
  const TempDirectory directory;
  test::SmallDisk disk(directory / "disk", "16k");
  if (!disk.mounted()) {
    return;
  }
  TensorboardWriter writer(disk.path());
  REQUIRE(writer.begin());
  constexpr std::int64_t kScalars = 2000;
  for (std::int64_t step = 0; step < kScalars; ++step) {
    writer.scalar("a/rather/long/tag", step, 1.0F);
  }
  const std::size_t written = events_of(writer.path()).size();
  CHECK(written > 2);
  CHECK(written < 2 + kScalars);
  REQUIRE(disk.grow("1m"));
  writer.scalar("a/rather/long/tag", kScalars, 1.0F);
  CHECK(events_of(writer.path()).size() == 2 + kScalars + 1);
}
