#include "storage/weight_files/gguf_file.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/storage/number_list.hpp"
#include "tests/storage/weight_files/gguf_bytes.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/processes/contained.hpp"

using namespace train;
using namespace train::storage;
using train::test::GgufBytes;
using train::test::TempDirectory;

namespace {

constexpr std::uint32_t type_f32 = 0;
constexpr std::uint32_t type_q8_0 = 8;
constexpr std::uint32_t type_i32 = 26;
constexpr std::uint32_t kind_u8 = 0;
constexpr std::uint32_t kind_u32 = 4;
constexpr std::uint32_t kind_bool = 7;
constexpr std::uint32_t kind_string = 8;
constexpr std::uint32_t kind_array = 9;

nlohmann::json gguf_fixture() { return test::read_fixture("gguf_blocks.json").at("file"); }

struct BadGguf {
  const char* what;
  std::string bytes;
  std::string said;
};

GgufBytes with_start(std::uint64_t tensors, std::uint64_t keys, std::uint32_t version = 3) {
  return GgufBytes().start(tensors, keys, version);
}

/// A file of one tensor and 256 bytes of data.
std::string one_tensor(const std::vector<std::uint64_t>& dimensions, std::uint32_t type,
                       std::uint64_t offset = 0) {
  return with_start(1, 0).tensor("x", dimensions, type, offset).data(256).bytes;
}

std::vector<BadGguf> bad_starts() {
  return {
      {"nothing", "", "ends at byte 0"},
      {"another file", "PK\x03\x04 and so on, and so on", "does not begin"},
      {"a magic alone", "GGUF", "ends at byte 4"},
      {"version 1", with_start(0, 0, 1).bytes, "version 1"},
      {"version 4", with_start(0, 0, 4).bytes, "version 4"},
      {"version 0", with_start(0, 0, 0).bytes, "version 0"},
      {"big-endian", with_start(0, 0, 0x0300'0000).bytes, "big-endian"},
      {"no counts", with_start(0, 0).bytes.substr(0, 20), "ends at byte 20"},
      {"tensors beyond the file", with_start(2, 0).data(20).bytes, "2 tensors"},
      {"2^64 - 1 tensors", with_start(~std::uint64_t{0}, 0).bytes, "tensors"},
      {"2^63 keys", with_start(0, std::uint64_t{1} << 63).bytes, "keys"},
      {"more keys than any file has", with_start(0, 70'000).data(1'000'000).bytes, "70000 keys"},
  };
}

std::vector<BadGguf> bad_metadata() {
  const auto array = [](std::uint32_t kind, std::uint64_t count) {
    return with_start(0, 1).text("a").number(kind_array, 4).number(kind, 4).number(count, 8);
  };
  return {
      {"a key twice",
       with_start(0, 2).key("a", kind_u8, 1, 1).key("a", kind_u8, 2, 1).data(9).bytes,
       "key \"a\" twice"},
      {"an unknown kind", with_start(0, 1).key("a", 13, 0, 8).data(9).bytes, "kind 13"},
      {"a boolean of 2", with_start(0, 1).key("a", kind_bool, 2, 1).data(9).bytes, "boolean"},
      {"a key of 2^60 bytes", with_start(0, 1).number(1ULL << 60, 8).data(99).bytes, "string of"},
      {"a text beyond the file", with_start(0, 1).key("a", kind_string, 1000, 8).data(100).bytes,
       "string of 1000"},
      {"an array of arrays", array(kind_array, 1).number(kind_u8, 4).number(0, 8).data(99).bytes,
       "kind 9"},
      {"an array of nothing known", array(99, 0).data(9).bytes, "kind 99"},
      {"an array of 2^62 numbers", array(kind_u32, 1ULL << 62).data(99).bytes, "elements"},
      {"an array that wraps", array(10, (1ULL << 61) + 1).data(99).bytes, "elements"},
      {"an array of texts beyond the file", array(kind_string, 100).data(200).bytes, "elements"},
      {"an array of 9,000,000 bytes", array(kind_u8, 9'000'000).data(9'000'000).bytes,
       "limit 8000000"},
      {"an alignment of 0", with_start(0, 1).key("general.alignment", kind_u32, 0, 4).data(9).bytes,
       "alignment"},
      {"an alignment of 48",
       with_start(0, 1).key("general.alignment", kind_u32, 48, 4).data(9).bytes, "alignment"},
      {"an alignment of 2^63",
       with_start(0, 1).key("general.alignment", 10, 1ULL << 63, 8).data(9).bytes, "alignment"},
      {"an alignment of a boolean",
       with_start(0, 1).key("general.alignment", kind_bool, 1, 1).data(9).bytes, "alignment"},
  };
}

std::vector<BadGguf> bad_tensors() {
  constexpr std::uint64_t large = std::uint64_t{1} << 32;
  return {
      {"an unknown type", one_tensor({4}, 99), "type 99"},
      {"a type that is gone", one_tensor({32}, 4), "type 4"},
      {"five dimensions", one_tensor({1, 1, 1, 1, 1}, type_f32), "5 dimensions"},
      {"2^32 - 1 dimensions", with_start(1, 0).text("x").number(0xffff'ffff, 4).data(256).bytes,
       "dimensions"},
      {"a product of 2^64", one_tensor({large, large}, type_f32), "too large"},
      {"a product of 2^62 elements", one_tensor({large, large / 4}, type_f32), "too large"},
      {"a dimension of 2^63", one_tensor({std::uint64_t{1} << 63}, type_f32), "too large"},
      {"a dimension of 2^64 - 1", one_tensor({~std::uint64_t{0}}, type_f32), "too large"},
      {"half a block", one_tensor({16, 2}, type_q8_0), "rows of 16"},
      {"a scalar of blocks", one_tensor({}, type_q8_0), "rows of 1"},
      {"an element too many", one_tensor({65}, type_f32), "past the end"},
      {"an offset beyond the file", one_tensor({1}, type_f32, 1024), "past the end"},
      {"an offset that wraps", one_tensor({8}, type_f32, ~std::uint64_t{0} - 31), "past the end"},
      {"an offset between", one_tensor({1}, type_f32, 4), "multiple of 32"},
      {"no data at all", with_start(1, 0).tensor("x", {1}, type_f32, 0).bytes, "past the end"},
      {"a name twice",
       with_start(2, 0)
           .tensor("x", {1}, type_f32, 0)
           .tensor("x", {1}, type_f32, 32)
           .data(256)
           .bytes,
       "tensor \"x\" twice"},
      {"the same bytes twice",
       with_start(2, 0)
           .tensor("x", {9}, type_f32, 0)
           .tensor("y", {9}, type_f32, 32)
           .data(256)
           .bytes,
       "overlap"},
      {"fewer tensors than announced",
       with_start(2, 0).tensor("x", {1}, type_f32, 0).data(16).bytes, "a string of"},
  };
}

/// Empty, or what is wrong with what open() made of a file.
std::string table_defect(const GgufFile& file) {
  for (const GgufEntry& entry : file.entries()) {
    if (entry.begin + entry.size_bytes > file.file().size_bytes() ||
        file.find(entry.name) != &entry) {
      return "an entry outside the file, or one that is not found";
    }
    std::vector<float> values(entry.elements_count);
    const Status read = file.read_fp32(entry, 0, values);
    if (read.ok() != (entry.type.dequantize != nullptr)) {
      return "an entry that cannot be read: " + read.error().message;
    }
  }
  return {};
}

/// Opens `bytes`, and requires an error of one line or a table that can be read, by little memory.
void require_error_or_table(const std::filesystem::path& path, const std::string& bytes,
                            std::size_t& tables) {
  test::overwrite_bytes(path, bytes);
  const auto before = test::allocated();
  const auto file = GgufFile::open(path);
  const auto after = test::allocated();
  const bool bounded = after.bytes - before.bytes <= 200'000 + 20 * bytes.size();
  if (!bounded) {
    FAIL(after.bytes - before.bytes << " bytes allocated");
  }
  if (file) {
    ++tables;
    REQUIRE(table_defect(*file) == "");
  } else {
    REQUIRE(file.error().message.find('\n') == std::string::npos);
    REQUIRE(file.error().message.size() < 1000);
  }
}

}  // namespace

TEST_CASE("gguf file: metadata of every kind is read as the gguf package wrote it",
          "[storage][gguf_file]") {
  const TempDirectory directory;
  test::write_bytes(directory / "small.gguf",
                    test::bytes_of_hex(gguf_fixture().at("bytes").get<std::string>()));
  const auto file = GgufFile::open(directory / "small.gguf");
  REQUIRE(file);
  CHECK(file->version() == 3);
  CHECK(*file->value_of<std::string>("general.architecture") == "small");
  CHECK(*file->value_of<std::uint64_t>("u8") == 200);
  CHECK(*file->value_of<std::int64_t>("i8") == -100);
  CHECK(*file->value_of<std::uint64_t>("u16") == 60000);
  CHECK(*file->value_of<std::int64_t>("i16") == -30000);
  CHECK(*file->value_of<std::uint64_t>("u32") == 4'000'000'000);
  CHECK(*file->value_of<std::int64_t>("i32") == -2'000'000'000);
  CHECK(*file->value_of<std::uint64_t>("u64") == (std::uint64_t{1} << 63U) + 5);
  CHECK(*file->value_of<std::int64_t>("i64") == -(std::int64_t{1} << 62U));
  CHECK(*file->value_of<double>("f32") == 0.5);
  CHECK(*file->value_of<double>("f64") == 1e300);
  CHECK(*file->value_of<bool>("yes"));
  CHECK_FALSE(*file->value_of<bool>("no"));
  CHECK(*file->value_of<std::string>("text") == "two\nlines, \xc3\xa9");
  CHECK(*file->value_of<std::vector<std::string>>("names") ==
        std::vector<std::string>{"a", "", "ccc"});
  CHECK(*file->value_of<std::vector<std::int64_t>>("integers") ==
        std::vector<std::int64_t>{3, -4, 5});
  CHECK(*file->value_of<std::vector<double>>("floats") == std::vector<double>{0.25, -2});
  CHECK(*file->value_of<std::vector<bool>>("flags") == std::vector<bool>{true, false, true});
  CHECK(file->metadata().size() == 18);
  CHECK(file->value_of<bool>("u8") == nullptr);
  CHECK(file->value_of<bool>("absent") == nullptr);
  CHECK(file->count_of("u8") == 200);
  CHECK_FALSE(file->count_of("i8").has_value());
  CHECK_FALSE(file->count_of("text").has_value());
}

TEST_CASE("gguf file: tensors have their shapes, and their values from any element on",
          "[storage][gguf_file]") {
  const TempDirectory directory;
  const nlohmann::json expected = gguf_fixture();
  test::write_bytes(directory / "small.gguf",
                    test::bytes_of_hex(expected.at("bytes").get<std::string>()));
  const auto file = GgufFile::open(directory / "small.gguf");
  REQUIRE(file);
  CHECK(file->entries().size() == expected.at("tensors").size());
  CHECK(file->find("absent") == nullptr);
  for (const auto& tensor : expected.at("tensors")) {
    const auto name = tensor.at("name").get<std::string>();
    CAPTURE(name);
    const GgufEntry* entry = file->find(name);
    REQUIRE(entry != nullptr);
    CHECK(entry->type.name == tensor.at("type").get<std::string>());
    CHECK(entry->shape == tensor.at("shape").get<std::vector<std::int64_t>>());
    const auto wanted = test::floats_of_hex(tensor.at("values").get<std::string>());
    REQUIRE(entry->elements_count == wanted.size());
    std::size_t wrong = 0;
    for (std::size_t first = 0; first <= wanted.size(); ++first) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{33},
                                      std::size_t{100}, wanted.size() - first}) {
        std::vector<float> found(std::min(count, wanted.size() - first));
        REQUIRE(file->read_fp32(*entry, first, found).ok());
        const auto begin = wanted.begin() + static_cast<std::ptrdiff_t>(first);
        wrong += test::same_bits(found, {begin, begin + static_cast<std::ptrdiff_t>(found.size())})
                     ? 0
                     : 1;
      }
    }
    CHECK(wrong == 0);
    std::vector<float> beyond(2);
    CHECK_THROWS_AS((void)file->read_fp32(*entry, wanted.size() - 1, beyond), CheckFailed);
  }
}

TEST_CASE("gguf file: a tensor larger than the buffer is read in pieces", "[storage][gguf_file]") {
  const TempDirectory directory;
  constexpr std::size_t blocks = 40'000;
  GgufBytes content = with_start(1, 0).tensor("x", {32, blocks}, type_q8_0, 0).data(0);
  for (std::size_t i = 0; i < blocks; ++i) {
    content.number(0x3c00, 2);  // 1
    content.bytes.append(32, static_cast<char>(i % 101));
  }
  test::write_bytes(directory / "large.gguf", content.bytes);
  const auto file = GgufFile::open(directory / "large.gguf");
  REQUIRE(file);
  std::vector<float> values(32 * blocks - 5);
  REQUIRE(file->read_fp32(file->entries()[0], 5, values).ok());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    wrong += values[i] == static_cast<float>((i + 5) / 32 % 101) ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("gguf file: version 2, another alignment, scalars, gaps and no tensors are fine",
          "[storage][gguf_file]") {
  const TempDirectory directory;
  const auto path = directory / "x.gguf";
  const GgufBytes content = with_start(3, 1, 2)
                                .key("general.alignment", kind_u32, 128, 4)
                                .tensor("scalar", {}, type_f32, 256)
                                .tensor("empty", {0, 3}, type_f32, 128)
                                .tensor("counts", {2}, type_i32, 0)
                                .data(260, 128);
  test::write_bytes(path, content.bytes);
  const auto file = GgufFile::open(path);
  REQUIRE(file);
  CHECK(file->version() == 2);
  const GgufEntry* scalar = file->find("scalar");
  REQUIRE(scalar != nullptr);
  CHECK(scalar->shape.empty());
  CHECK(scalar->begin == content.bytes.size() - 4);
  CHECK(file->find("empty")->elements_count == 0);
  CHECK(file->find("empty")->shape == std::vector<std::int64_t>{3, 0});
  float values[2] = {};
  CHECK(file->read_fp32(*scalar, 0, std::span(values).first(1)).ok());
  const Status refused = file->read_fp32(*file->find("counts"), 0, values);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().kind == ErrorKind::user);
  CHECK_THAT(refused.error().message, Catch::Contains("\"counts\"") && Catch::Contains("I32") &&
                                          Catch::Contains("x.gguf") && Catch::Contains("Q4_K"));
  test::write_bytes(path, with_start(0, 0).bytes);
  CHECK(GgufFile::open(path)->entries().empty());
  CHECK(GgufFile::open(directory / "absent").error().kind == ErrorKind::user);
}

TEST_CASE("gguf file: bad files are refused by name, with bounded work",
          "[storage][gguf_file][fork]") {
  const TempDirectory directory;
  const auto path = directory / "x.gguf";
  for (auto make : {bad_starts, bad_metadata, bad_tensors}) {
    for (const BadGguf& bad : make()) {
      INFO(bad.what);
      test::overwrite_bytes(path, bad.bytes);
      const auto result = test::run_contained([&] {
        const auto file = GgufFile::open(path);
        return file ? std::string() : file.error().message;
      });
      test::require_refused(result, bad.bytes.size());
      CHECK_THAT(result.text, Catch::Contains("x.gguf") && Catch::Contains(bad.said));
    }
  }
}

TEST_CASE("gguf file: cut anywhere, or damaged, it is an error or a table, in little memory",
          "[storage][gguf_file]") {
  const TempDirectory directory(test::quick_directory());
  const auto path = directory / "x.gguf";
  const std::string whole = test::bytes_of_hex(gguf_fixture().at("bytes").get<std::string>());
  std::size_t cut_tables = 0;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    INFO(size << " of " << whole.size() << " bytes");
    require_error_or_table(path, whole.substr(0, size), cut_tables);
  }
  CHECK(cut_tables < 32);  // Those that lack padding alone.
  std::mt19937 random(5);
  std::size_t tables = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = whole;
    const std::size_t place = random() % bytes.size();
    const auto value = static_cast<unsigned char>(random());
    INFO("byte " << place << " is " << int{value});
    bytes[place] = static_cast<char>(value);
    require_error_or_table(path, bytes, tables);
  }
  CHECK(tables > 100);
  CHECK(tables < 2000);
}
