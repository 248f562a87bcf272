#include "storage/weight_files/gguf_writer.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "storage/weight_files/gguf_encoding.hpp"
#include "storage/weight_files/gguf_file.hpp"
#include "tests/support/disks/full_disk.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::storage {
namespace {

using Texts = std::vector<std::string>;

std::vector<std::byte> numbered_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(i * 7 % 251);
  }
  return bytes;
}

GgufHeading heading(std::string name, std::vector<std::int64_t> shape, std::string_view type) {
  const GgufType* found = find_writable_gguf_type(type);
  REQUIRE(found != nullptr);
  return {std::move(name), std::move(shape), found};
}

/// Tensors of every type that is written, of sizes that need filling up, and one without elements.
std::vector<GgufHeading> every_heading() {
  return {heading("a.weight", {3, 2}, "F32"), heading("b", {5}, "F16"),
          heading("c", {2, 3}, "BF16"),       heading("empty", {0, 4}, "F32"),
          heading("d", {3, 32}, "Q8_0"),      heading("e", {2, 1, 256}, "Q4_K"),
          heading("f", {1, 256}, "Q5_K"),     heading("g", {256}, "Q6_K")};
}

std::vector<GgufField> every_field() {
  return {{"general.architecture", "small"},
          {"yes", true},
          {"no", false},
          {"u16", std::uint16_t{60000}},
          {"u32", std::uint32_t{4'000'000'000}},
          {"i32", std::int32_t{-2'000'000'000}},
          {"f32", 0.1F},
          {"text", "two\nlines, \xc3\xa9"},
          {"empty", std::string()},
          {"flags", std::vector<bool>{true, false, true}},
          {"integers", std::vector<std::int32_t>{3, -4, 5}},
          {"floats", std::vector<float>{0.25F, -2.0F, 0.1F}},
          {"texts", Texts{"a", "", "ccc"}},
          {"nothing", Texts{}}};
}

/// Writes all tensors' bytes in pieces, of which each belongs to one tensor.
Status write_pieces(GgufWriter& writer, std::span<const GgufHeading> headings,
                    std::span<const std::byte> bytes, std::size_t piece) {
  std::size_t at = 0;
  for (const GgufHeading& tensor : headings) {
    const std::size_t end = at + gguf_size_bytes(tensor);
    while (at < end) {
      const std::size_t count = std::min(piece, end - at);
      TRAIN_RETURN_IF_ERROR(writer.write(bytes.subspan(at, count)));
      at += count;
    }
  }
  return {};
}

std::size_t total_bytes(std::span<const GgufHeading> headings) {
  std::size_t total = 0;
  for (const GgufHeading& tensor : headings) {
    total += gguf_size_bytes(tensor);
  }
  return total;
}

}  // namespace

TEST_CASE("gguf writer: metadata of every kind is read as it was given", "[storage][gguf_writer]") {
  const test::TempDirectory directory;
  const auto fields = every_field();
  auto writer = GgufWriter::create(directory / "file", fields, {});
  REQUIRE(writer);
  REQUIRE(writer->commit().ok());
  const auto file = GgufFile::open(directory / "file");
  REQUIRE(file);
  CHECK(file->version() == 3);
  CHECK(file->metadata().size() == fields.size());
  CHECK(*file->value_of<std::string>("general.architecture") == "small");
  CHECK(*file->value_of<bool>("yes"));
  CHECK_FALSE(*file->value_of<bool>("no"));
  CHECK(*file->value_of<std::uint64_t>("u16") == 60000);
  CHECK(*file->value_of<std::uint64_t>("u32") == 4'000'000'000);
  CHECK(*file->value_of<std::int64_t>("i32") == -2'000'000'000);
  CHECK(*file->value_of<double>("f32") == static_cast<double>(0.1F));
  CHECK(*file->value_of<std::string>("text") == "two\nlines, \xc3\xa9");
  CHECK(file->value_of<std::string>("empty")->empty());
  CHECK(*file->value_of<std::vector<bool>>("flags") == std::vector<bool>{true, false, true});
  CHECK(*file->value_of<std::vector<std::int64_t>>("integers") ==
        std::vector<std::int64_t>{3, -4, 5});
  CHECK(*file->value_of<std::vector<double>>("floats") ==
        std::vector<double>{0.25, -2.0, static_cast<double>(0.1F)});
  CHECK(*file->value_of<Texts>("texts") == Texts{"a", "", "ccc"});
  CHECK(file->value_of<Texts>("nothing")->empty());
}

TEST_CASE("gguf writer: pieces of any size make one file, each tensor at a multiple of 32 bytes",
          "[storage][gguf_writer][ST-1]") {
  const test::TempDirectory directory;
  const auto headings = every_heading();
  const auto bytes = numbered_bytes(total_bytes(headings));
  std::string whole;
  for (const std::size_t piece : {std::size_t{1'000'000}, std::size_t{1}, std::size_t{37}}) {
    auto writer = GgufWriter::create(directory / "file", every_field(), headings);
    REQUIRE(writer);
    REQUIRE(write_pieces(*writer, headings, bytes, piece).ok());
    REQUIRE(writer->commit().ok());
    const std::string made = test::read_bytes(directory / "file");
    whole = whole.empty() ? made : whole;
    CHECK(made == whole);
  }
  const auto file = GgufFile::open(directory / "file");
  REQUIRE(file);
  REQUIRE(file->entries().size() == headings.size());
  std::size_t at = 0;
  for (const GgufHeading& tensor : headings) {
    INFO(tensor.name);
    const GgufEntry* entry = file->find(tensor.name);
    REQUIRE(entry != nullptr);
    CHECK(entry->type.code == tensor.type->code);
    CHECK(entry->shape == tensor.shape);
    CHECK(entry->begin % 32 == 0);
    REQUIRE(entry->size_bytes == gguf_size_bytes(tensor));
    CHECK(std::equal(
        bytes.begin() + static_cast<std::ptrdiff_t>(at),
        bytes.begin() + static_cast<std::ptrdiff_t>(at + entry->size_bytes),
        std::as_bytes(std::span(whole)).begin() + static_cast<std::ptrdiff_t>(entry->begin)));
    at += entry->size_bytes;
  }
  // Readers of the format want the last tensor's end at such a multiple, too.
  CHECK(whole.size() % 32 == 0);
}

TEST_CASE("gguf writer: dropped half way, or out of space, it leaves nothing",
          "[storage][gguf_writer][ST-1]") {
  const test::TempDirectory directory;
  const std::vector<GgufHeading> headings = {heading("a", {1024, 1024}, "F32")};
  {
    auto writer = GgufWriter::create(directory / "file", {}, headings);
    REQUIRE(writer);
    REQUIRE(writer->write(numbered_bytes(100)).ok());
  }
  CHECK(test::names_in(directory.path()).empty());
  const test::SmallDisk disk(directory / "disk", "128k");
  if (disk.mounted()) {
    // Shorter than a buffer the error comes with commit(), else while writing.
    for (const std::int64_t bytes : {std::int64_t{1} << 20, std::int64_t{9} << 20}) {
      const std::vector<GgufHeading> large = {heading("a", {bytes / 4}, "F32")};
      auto writer = GgufWriter::create(disk.path() / "file", every_field(), large);
      REQUIRE(writer);
      Status written = writer->write(numbered_bytes(static_cast<std::size_t>(bytes)));
      if (written.ok()) {
        written = writer->commit();
      }
      REQUIRE_FALSE(written.ok());
      CHECK_THAT(written.error().message, Catch::Contains("disk full"));
      CHECK(test::names_in(disk.path()).empty());
    }
  }
}

TEST_CASE("gguf writer: names twice, missing and surplus bytes are a programmer's error",
          "[storage][gguf_writer]") {
  const test::TempDirectory directory;
  const auto create = [&](std::vector<GgufField> fields, std::vector<GgufHeading> tensors) {
    return GgufWriter::create(directory / "file", fields, tensors);
  };
  const GgufHeading one = heading("a", {4}, "F32");
  CHECK_THROWS_AS((void)create({{"k", true}, {"k", 0.5F}}, {}), CheckFailed);
  CHECK_THROWS_AS((void)create({}, {one, one}), CheckFailed);
  CHECK_THROWS_AS((void)create({}, {heading("b", {2, 31}, "Q8_0")}), CheckFailed);
  CHECK_THROWS_AS((void)create({}, {heading("b", {}, "F32")}), CheckFailed);
  auto writer = create({}, {one, heading("b", {1}, "F32")});
  REQUIRE(writer);
  const auto bytes = numbered_bytes(20);
  CHECK_THROWS_AS((void)writer->write(bytes), CheckFailed);  // Of two tensors.
  REQUIRE(writer->write(std::span(bytes).first(16)).ok());
  CHECK_THROWS_AS((void)writer->commit(), CheckFailed);
  REQUIRE(writer->write(std::span(bytes).first(4)).ok());
  CHECK_THROWS_AS((void)writer->write(std::span(bytes).first(1)), CheckFailed);
  REQUIRE(writer->commit().ok());
}

}  // namespace train::storage
