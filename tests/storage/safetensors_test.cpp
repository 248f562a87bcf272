#include "storage/safetensors.hpp"

#include <catch2/catch.hpp>
#include <random>
#include <string>

#include "storage/files/digest.hpp"
#include "storage/safetensors_header.hpp"
#include "tests/support/checkpoints/whole_safetensors.hpp"
#include "tests/support/disks/temp_directory.hpp"

using namespace train;
using namespace train::storage;
using train::test::TempDirectory;

namespace {

std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string bytes;
  for (unsigned i = 0; i < 8; ++i) {
    bytes.push_back(static_cast<char>(static_cast<unsigned char>(length >> (8 * i))));
  }
  return bytes + rest;
}

/// A file of this header and so many bytes of data.
std::string file_of(const std::string& header, std::size_t data_bytes) {
  return with_length(header.size(), header + std::string(data_bytes, '\x01'));
}

Result<SafetensorsFile> parse(const TempDirectory& directory, const std::string& bytes) {
  test::overwrite_bytes(directory / "x.safetensors", bytes);
  return SafetensorsFile::open(directory / "x.safetensors");
}

using Cases = std::vector<std::pair<std::string, std::string>>;  ///< What is wrong; the bytes.

const std::string good_header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

std::string tensor(const std::string& shape, const std::string& offsets) {
  return R"({"a":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

/// Headers that break the grammar.
Cases grammar_cases() {
  return {
      {"empty file", ""},
      {"shorter than the length", "\x01\x02\x03"},
      {"length beyond the file", with_length(1000, "{}")},
      {"length of all ones", with_length(~std::uint64_t{0}, "{}")},
      {"length that wraps when 8 is added", with_length(~std::uint64_t{0} - 7, "{}")},
      {"length above the limit", with_length(100'000'001, std::string(64, ' '))},
      {"no header", with_length(0, "")},
      {"begins with a space", file_of(" " + good_header, 8)},
      {"not JSON", file_of("{\"a\":", 8)},
      {"text behind the object", file_of(good_header + "x", 8)},
      {"an array on top", file_of("[1,2]", 8)},
      {"broken UTF-8", file_of("{\"\xff\xfe\":{}}", 0)},
      {"not UTF-8 in a value",
       file_of("{\"a\":{\"dtype\":\"\xc3\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8)},
      {"deep nesting", file_of("{\"a\":" + std::string(1'000'000, '['), 8)},
      {"deep objects", file_of("{\"a\":{\"shape\":{\"b\":{}}}}", 8)},
      {"name twice", file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                             R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                             8)},
      {"key twice",
       file_of(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8)},
      {"metadata twice", file_of(R"({"__metadata__":{},"__metadata__":{}})", 0)},
      {"metadata of numbers", file_of(R"({"__metadata__":{"a":1}})", 0)},
      {"unknown key",
       file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8)},
      {"missing key", file_of(R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", 8)},
      {"missing everything", file_of(R"({"a":{}})", 0)},
      {"unknown dtype", file_of(R"({"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})", 8)},
      {"dtype a number", file_of(R"({"a":{"dtype":32,"shape":[2],"data_offsets":[0,8]}})", 8)},
  };
}

/// Headers whose numbers do not fit the file.
Cases layout_cases() {
  return {
      {"shape a string", file_of(tensor("\"2\"", "[0,8]"), 8)},
      {"shape a number", file_of(tensor("2", "[0,8]"), 8)},
      {"negative dimension", file_of(tensor("[-2]", "[0,8]"), 8)},
      {"fractional dimension", file_of(tensor("[2.0]", "[0,8]"), 8)},
      {"nested shape", file_of(tensor("[[2]]", "[0,8]"), 8)},
      {"product overflows", file_of(tensor("[4294967296,4294967296,2]", "[0,8]"), 8)},
      {"product overflows to the size", file_of(tensor("[4611686018427387905,2]", "[0,8]"), 8)},
      {"dimension beyond 64 bits", file_of(tensor("[18446744073709551618]", "[0,8]"), 8)},
      {"too many dimensions",
       file_of(
           tensor("[2,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,8]"),
           8)},
      {"one offset", file_of(tensor("[2]", "[0]"), 8)},
      {"three offsets", file_of(tensor("[2]", "[0,8,8]"), 8)},
      {"offsets reversed", file_of(tensor("[2]", "[8,0]"), 8)},
      {"offset beyond the file", file_of(tensor("[4]", "[0,16]"), 8)},
      {"offset that is huge",
       file_of(tensor("[2]", "[9223372036854775800,9223372036854775807]"), 8)},
      {"shape smaller than bytes", file_of(tensor("[1]", "[0,8]"), 8)},
      {"shape larger than bytes", file_of(tensor("[3]", "[0,8]"), 8)},
      {"hole at the front", file_of(tensor("[1]", "[4,8]"), 8)},
      {"bytes left at the end", file_of(good_header, 12)},
      {"cut at the end", file_of(good_header, 4)},
      {"overlap", file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                          R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                          12)},
      {"the same bytes twice", file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                       R"("b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                                       8)},
      {"hole between", file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                               R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                               12)},
  };
}

}  // namespace

TEST_CASE("safetensors: what is written is read", "[storage][safetensors][ST-3]") {
  const TempDirectory directory;
  const std::vector<float> a = {1.0F, -2.5F, 3.25F, 0.0F, 5.0F, 6.0F};
  const std::vector<float> b = {42.0F};
  const std::vector<test::TensorBytes> tensors = {
      {"model.\xc3\xa4\"weird\" name", {2, 3}, std::as_bytes(std::span(a))},
      {"scalar", {}, std::as_bytes(std::span(b))},
      {"empty", {0, 7}, {}}};
  const auto path = directory / "w.safetensors";
  const auto written = test::write_safetensors(path, tensors, {{"note", "one\ntwo"}});
  REQUIRE(written);
  const std::string bytes = test::read_bytes(path);
  REQUIRE(written->size_bytes == bytes.size());
  REQUIRE(written->digest == digest_text(bytes));
  REQUIRE(static_cast<unsigned char>(bytes[0]) % 8 == 0);

  const auto file = SafetensorsFile::open(path);
  REQUIRE(file);
  REQUIRE(file->metadata() == TensorMetadata{{"note", "one\ntwo"}});
  REQUIRE(file->entries().size() == 3);
  for (const test::TensorBytes& tensor : tensors) {
    const TensorEntry* entry = file->find(tensor.name);
    REQUIRE(entry != nullptr);
    REQUIRE(entry->dtype == "F32");
    REQUIRE(entry->shape == tensor.shape);
    REQUIRE(digest_bytes(*test::read_all(*file, *entry)) == digest_bytes(tensor.bytes));
  }
  REQUIRE(file->find("none") == nullptr);
}

TEST_CASE("safetensors: hostile files are refused by name", "[storage][safetensors][ST-3]") {
  const TempDirectory directory;
  REQUIRE(parse(directory, file_of(good_header, 8)));
  REQUIRE(parse(directory, file_of(good_header + "   ", 8)));
  REQUIRE(parse(directory, file_of("{}", 0)));

  Cases cases = grammar_cases();
  for (auto& layout_case : layout_cases()) {
    cases.push_back(std::move(layout_case));
  }
  for (const auto& [what, bytes] : cases) {
    INFO(what);
    const auto file = parse(directory, bytes);
    REQUIRE_FALSE(file);
    REQUIRE_THAT(file.error().message, Catch::Contains("x.safetensors"));
    REQUIRE(file.error().message.find('\n') == std::string::npos);
    REQUIRE(file.error().message.size() < 1000);
    REQUIRE(file.error().kind == ErrorKind::failure);
  }
}

TEST_CASE("safetensors: random damage never yields views outside the file",
          "[storage][safetensors][ST-3]") {
  const TempDirectory directory;
  const std::vector<float> values(16, 1.5F);
  const auto path = directory / "w.safetensors";
  const std::vector<test::TensorBytes> tensors = {
      {"a", {4, 2}, std::as_bytes(std::span(values)).first(32)},
      {"b", {8}, std::as_bytes(std::span(values)).last(32)}};
  REQUIRE(test::write_safetensors(path, tensors));
  const std::string good = test::read_bytes(path);
  std::mt19937 random(Catch::rngSeed());
  int accepted = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = good;
    for (auto flips = 1 + random() % 3; flips > 0; --flips) {
      bytes[random() % (good.size() - 64)] = static_cast<char>(random() % 256);
    }
    const auto file = parse(directory, bytes);
    if (file) {
      ++accepted;
      std::size_t total = 0;
      for (const TensorEntry& entry : file->entries()) {
        const auto found = test::read_all(*file, entry);
        REQUIRE(found);
        total += found->size();
        REQUIRE(tensor_size_bytes(entry.dtype, entry.shape) == found->size());
      }
      REQUIRE(total == 64);
    }
  }
  REQUIRE(accepted < 1000);
}

TEST_CASE("safetensors: sizes are multiplied with care", "[storage][safetensors][ST-3]") {
  const auto size = [](std::string_view dtype, std::vector<std::int64_t> shape) {
    return tensor_size_bytes(dtype, shape);
  };
  REQUIRE(size("F32", {}) == 4);
  REQUIRE(size("BF16", {3, 5}) == 30);
  REQUIRE(size("F64", {0, 1LL << 62}) == 0);
  REQUIRE_FALSE(size("F32", {1LL << 61}));
  REQUIRE_FALSE(size("F32", {-1}));
  REQUIRE_FALSE(size("F33", {1}));
}

TEST_CASE("digest: known values, and pieces give the whole", "[storage][digest]") {
  // Published test vector of XXH3-128 with seed 0 for the empty input.
  REQUIRE(digest_text("") == "xxh3-128:99aa06d3014798d86001c324468d497f");
  std::string text(100'000, 'a');
  StreamingDigest pieces;
  pieces.update(std::string_view(text).substr(0, 7));
  pieces.update(std::string_view(text).substr(7));
  REQUIRE(pieces.finish() == digest_text(text));
  text[50'000] = 'b';
  REQUIRE(pieces.finish() != digest_text(text));
}
