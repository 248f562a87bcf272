#include "storage/safetensors_writer.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "tests/support/checkpoints/whole_safetensors.hpp"
#include "tests/support/disks/full_disk.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::storage {
namespace {

std::vector<std::byte> counted_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(i * 7 % 251);
  }
  return bytes;
}

}  // namespace

TEST_CASE("safetensors writer: pieces of any size make the file that whole tensors make",
          "[storage][safetensors_writer][ST-1]") {
  const test::TempDirectory directory;
  const auto bytes = counted_bytes(24 + 12 + 2);
  const std::span<const std::byte> all(bytes);
  const std::vector<test::TensorBytes> tensors = {{"a.weight", {3, 2}, all.first(24)},
                                                  {"b", {2, 3}, all.subspan(24, 12), "BF16"},
                                                  {"empty", {0, 4}, {}},
                                                  {"scalar", {}, all.last(2), "F16"}};
  const TensorMetadata metadata = {{"format", "pt"}};
  const auto whole = test::write_safetensors(directory / "whole", tensors, metadata);
  REQUIRE(whole);
  std::vector<TensorHeading> headings;
  for (const test::TensorBytes& tensor : tensors) {
    headings.push_back({tensor.name, tensor.shape, tensor.dtype});
  }
  for (const std::size_t piece : {1U, 5U, 38U}) {
    const auto path = directory / "pieces";
    auto writer = SafetensorsWriter::create(path, headings, metadata);
    REQUIRE(writer);
    for (std::size_t at = 0; at < all.size(); at += piece) {
      REQUIRE(writer->write(all.subspan(at, std::min(piece, all.size() - at))).ok());
    }
    const auto written = writer->commit();
    REQUIRE(written);
    CHECK(written->digest == whole->digest);
    CHECK(written->size_bytes == whole->size_bytes);
  }
  const auto read = SafetensorsFile::open(directory / "pieces");
  REQUIRE(read);
  CHECK(read->metadata() == metadata);
  for (const test::TensorBytes& tensor : tensors) {
    const TensorEntry* entry = read->find(tensor.name);
    REQUIRE(entry != nullptr);
    CHECK(entry->dtype == tensor.dtype);
    CHECK(entry->shape == tensor.shape);
    const auto found = test::read_all(*read, *entry);
    REQUIRE(found);
    CHECK(std::equal(found->begin(), found->end(), tensor.bytes.begin(), tensor.bytes.end()));
  }
}

TEST_CASE("safetensors writer: dropped half way, or out of space, it leaves nothing",
          "[storage][safetensors_writer][ST-1]") {
  const test::TempDirectory directory;
  const std::vector<TensorHeading> headings = {{"a", {1024, 1024}}};
  {
    auto writer = SafetensorsWriter::create(directory / "file", headings);
    REQUIRE(writer);
    REQUIRE(writer->write(counted_bytes(100)).ok());
  }
  CHECK(test::names_in(directory.path()).empty());
  const test::SmallDisk disk(directory / "disk", "128k");
  if (disk.mounted()) {
    // Shorter than a piece the error comes with commit(), else while writing.
    for (const std::int64_t bytes : {std::int64_t{1} << 20, std::int64_t{9} << 20}) {
      auto writer = SafetensorsWriter::create(disk.path() / "file", {{{"a", {bytes / 4}}}});
      REQUIRE(writer);
      Status written = writer->write(counted_bytes(static_cast<std::size_t>(bytes)));
      if (written.ok()) {
        const auto committed = writer->commit();
        REQUIRE_FALSE(committed);
        written = committed.error();
      }
      CHECK_THAT(written.error().message, Catch::Contains("disk full"));
      CHECK(test::names_in(disk.path()).empty());
    }
  }
}

}  // namespace train::storage
