#include "data/tokens/token_fingerprint.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <set>

#include "data/prepare/prepare.hpp"
#include "storage/files/digest.hpp"
#include "tests/support/disks/temp_directory.hpp"

using namespace train;
using namespace train::data;
using train::test::flip_byte;
using train::test::overwrite_bytes;
using train::test::read_bytes;
using train::test::TempDirectory;
using train::test::write_bytes;

namespace {

constexpr std::uint64_t kMib = std::uint64_t{1} << 20;

std::string fingerprint_of(const std::filesystem::path& directory) {
  const auto dataset =
      TokenDataset::open(directory, {.sequence_length = 4, .need_validation = false});
  REQUIRE(dataset);
  const auto fingerprint = token_fingerprint(*dataset);
  REQUIRE(fingerprint);
  CHECK(storage::is_digest(*fingerprint));
  return *fingerprint;
}

/// What this process has asked read calls for since it began, in bytes.
std::uint64_t bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string key;
  std::uint64_t value = 0;
  REQUIRE(file >> key >> value);
  REQUIRE(key == "rchar:");
  return value;
}

/// A file of zeros that takes no room on the disk.
void write_sparse(const std::filesystem::path& path, std::uint64_t size_bytes) {
  write_bytes(path, "");
  std::filesystem::resize_file(path, size_bytes);
}

/// Changes one byte of a file in place.
void change_byte(const std::filesystem::path& path, std::uint64_t position) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(position));
  file.put('\x07');
  file.close();
  REQUIRE(file.good());
}

}  // namespace

TEST_CASE("token_fingerprint: blocks are a function of the size and never overlap",
          "[data][token_fingerprint]") {
  for (const std::uint64_t size :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{65'536}, std::uint64_t{65'537}, 4 * kMib,
        4 * kMib + 1, 4 * kMib + 2, 100 * kMib + 6, std::uint64_t{1} << 40U,
        (std::uint64_t{1} << 62U) + 2}) {
    INFO("size " << size);
    const auto blocks = sampled_blocks(size);
    CHECK(blocks.size() <= kSampledBlocksMost);
    std::uint64_t end = 0;
    std::uint64_t sum = 0;
    for (const SampledBlock& block : blocks) {
      CHECK(block.offset >= end);
      CHECK(block.size_bytes > 0);
      CHECK(block.size_bytes <= kSampledBlockBytes);
      end = block.offset + block.size_bytes;
      sum += block.size_bytes;
    }
    CHECK(end == size);  // the last block is one of them
    CHECK((blocks.empty() || blocks.front().offset == 0));
    CHECK(sum == std::min(size, 4 * kMib));  // all of a small one
    const auto again = sampled_blocks(size);
    CHECK(std::equal(blocks.begin(), blocks.end(), again.begin(), again.end(),
                     [](const auto& a, const auto& b) { return a.offset == b.offset; }));
  }
  // Other places for another size, or a writer of a few more tokens would keep what is not seen.
  CHECK(sampled_blocks(kMib << 10U)[7].offset != sampled_blocks((kMib << 10U) + 2)[7].offset);
}

TEST_CASE("token_fingerprint: the same tokens have the same, wherever they are",
          "[data][token_fingerprint]") {
  const TempDirectory directory;
  for (const char* name : {"here", "there"}) {
    std::filesystem::create_directory(directory / name);
    write_bytes(directory / name / "val.bin", std::string(20, 'v'));
  }
  write_bytes(directory / "here/train.bin", std::string(100, 't'));
  write_bytes(directory / "there/train-of-another-name.bin", std::string(100, 't'));
  CHECK(fingerprint_of(directory / "here") == fingerprint_of(directory / "there"));
}

TEST_CASE("token_fingerprint: any change that it can see gives another",
          "[data][token_fingerprint]") {
  const TempDirectory directory;
  const auto write = [&] {
    overwrite_bytes(directory / "train_0.bin", std::string(100, 't'));
    overwrite_bytes(directory / "train_1.bin", std::string(60, 't'));
    overwrite_bytes(directory / "val.bin", std::string(20, 'v'));
    overwrite_bytes(directory / "meta.json", R"({"train_digest":null})");
  };
  std::set<std::string> seen;
  const auto check_new = [&](const char* what) {
    INFO(what);
    CHECK(seen.insert(fingerprint_of(directory.path())).second);
    write();
    CHECK(seen.contains(fingerprint_of(directory.path())));
  };
  write();
  check_new("as it is");
  flip_byte(directory / "train_0.bin", 99);
  check_new("a byte of the first file");
  flip_byte(directory / "train_1.bin", 0);
  check_new("a byte of the second");
  flip_byte(directory / "val.bin", 19);
  check_new("a byte of validation");
  overwrite_bytes(directory / "train_1.bin", std::string(62, 't'));
  check_new("a token more");
  overwrite_bytes(directory / "train_0.bin", std::string(98, 't'));
  overwrite_bytes(directory / "train_1.bin", std::string(62, 't'));
  check_new("the same bytes, cut elsewhere");
  std::filesystem::remove(directory / "val.bin");
  check_new("no validation");
  overwrite_bytes(directory / "meta.json", R"({"dtype":"uint32"})");
  check_new("wider tokens");
  const std::string digest = storage::digest_text("another text");
  overwrite_bytes(directory / "meta.json", fmt::format(R"({{"train_digest":"{}"}})", digest));
  check_new("a digest of all training bytes");
  overwrite_bytes(directory / "meta.json", fmt::format(R"({{"val_digest":"{}"}})", digest));
  check_new("a digest of all validation bytes");
  overwrite_bytes(directory / "meta.json",
                  fmt::format(R"({{"train_digest":"{}"}})", storage::digest_text("a third text")));
  check_new("another such digest");
}

TEST_CASE("token_fingerprint: a terabyte is not read", "[data][token_fingerprint]") {
  const TempDirectory directory;
  constexpr std::uint64_t kTebibyte = std::uint64_t{1} << 40U;
  write_sparse(directory / "train_0.bin", kTebibyte / 2 + 6);
  write_sparse(directory / "train_1.bin", kTebibyte / 2);
  write_sparse(directory / "val.bin", kTebibyte / 4);
  const auto dataset = TokenDataset::open(directory.path(), {.sequence_length = 4});
  REQUIRE(dataset);
  const std::uint64_t before = bytes_read();
  const auto fingerprint = token_fingerprint(*dataset);
  const std::uint64_t read = bytes_read() - before;
  REQUIRE(fingerprint);
  CHECK(read >= 2 * kSampledBlocksMost * kSampledBlockBytes);
  // Whatever else reads beside it: /proc/self/io itself.
  CHECK(read < 2 * kSampledBlocksMost * kSampledBlockBytes + 65'536);

  // A byte in any block is seen, also in one of the second file; a byte between blocks is not.
  const auto blocks = sampled_blocks(kTebibyte + 6);
  const std::uint64_t first_size = kTebibyte / 2 + 6;
  change_byte(directory / "train_0.bin", blocks[1].offset + kSampledBlockBytes);
  CHECK(fingerprint_of(directory.path()) == *fingerprint);
  std::set<std::string> seen = {*fingerprint};
  change_byte(directory / "train_0.bin", blocks[9].offset + 123);
  CHECK(seen.insert(fingerprint_of(directory.path())).second);
  REQUIRE(blocks[50].offset > first_size);
  change_byte(directory / "train_1.bin", blocks[50].offset - first_size);
  CHECK(seen.insert(fingerprint_of(directory.path())).second);
  change_byte(directory / "train_1.bin", kTebibyte / 2 - 1);
  CHECK(seen.insert(fingerprint_of(directory.path())).second);
}

TEST_CASE("token_fingerprint: a block that ends in the next file is read whole",
          "[data][token_fingerprint]") {
  const TempDirectory directory;
  // Small enough to be read whole: the block of 64 KiB holds the end of one and all of the next.
  write_bytes(directory / "train_0.bin", std::string(60'000, '\x07'));
  write_bytes(directory / "train_1.bin", std::string(100, '\x07'));
  write_bytes(directory / "train_2.bin", std::string(60'000, '\x07'));
  const std::string before = fingerprint_of(directory.path());
  flip_byte(directory / "train_1.bin", 50);
  const std::string after = fingerprint_of(directory.path());
  CHECK(after != before);
  flip_byte(directory / "train_2.bin", 59'999);
  CHECK(fingerprint_of(directory.path()) != after);
}

TEST_CASE("token_fingerprint: prepared data has the digests of all its bytes",
          "[data][token_fingerprint][prepare]") {
  const TempDirectory directory;
  std::string text;
  while (text.size() < 3 * kMib) {  // more than the writer's buffer
    text += fmt::format("sentence {}. ", text.size());
  }
  write_bytes(directory / "in.txt", text);
  REQUIRE(prepare_dataset({.inputs = {directory / "in.txt"}, .out = directory / "out"}));
  const auto facts = read_dataset_facts(directory / "out");
  REQUIRE(facts);
  CHECK(facts->train_digest == storage::digest_text(read_bytes(directory / "out/train.bin")));
  CHECK(facts->val_digest == storage::digest_text(read_bytes(directory / "out/val.bin")));

  // One byte of the text that no block of the sample has.
  const std::uint64_t size = std::filesystem::file_size(directory / "out/train.bin");
  const auto blocks = sampled_blocks(size);
  const std::uint64_t unseen = blocks[3].offset + kSampledBlockBytes;
  REQUIRE(unseen < blocks[4].offset);
  const std::string before = fingerprint_of(directory / "out");
  flip_byte(directory / "in.txt", unseen / 2);
  REQUIRE(
      prepare_dataset({.inputs = {directory / "in.txt"}, .out = directory / "out", .force = true}));
  REQUIRE(std::filesystem::file_size(directory / "out/train.bin") == size);
  CHECK(fingerprint_of(directory / "out") != before);
}

TEST_CASE("token_fingerprint: a digest that is none is the user's mistake, named",
          "[data][token_fingerprint]") {
  const TempDirectory directory;
  write_bytes(directory / "train.bin", std::string(100, 't'));
  for (const char* wrong : {"\"abc\"", "5", "\"xxh3-128:0\""}) {
    write_bytes(directory / "meta.json", fmt::format(R"({{"val_digest":{}}})", wrong));
    const auto facts = read_dataset_facts(directory.path());
    REQUIRE_FALSE(facts);
    CHECK(facts.error().exit_code() == 2);
    CHECK_THAT(facts.error().message, Catch::Contains("meta.json: val_digest"));
  }
}
