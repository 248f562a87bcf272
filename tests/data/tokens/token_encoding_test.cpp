#include "data/tokens/token_encoding.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "data/tokens/token_dataset.hpp"
#include "data/tokens/token_fingerprint.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::data::testing::token_encoding_test {

using train::test::TempDirectory;
using train::test::write_bytes;

constexpr int id_count = 500;

std::int64_t id_of(int i) { return 5 + (i * 7919) % 50'000; }

std::string number(std::int64_t value, int width) {
  std::string bytes;
  for (int byte = 0; byte < width; ++byte) {
    bytes.push_back(static_cast<char>((value >> (8 * byte)) & 0xff));
  }
  return bytes;
}

/// Ids as words of so many bytes; `shift` is added to each.
std::string ids(int width, std::int64_t shift = 0) {
  std::string bytes;
  for (int i = 0; i < id_count; ++i) {
    bytes += number(id_of(i) + shift, width);
  }
  return bytes;
}

std::string llmc(std::int64_t magic, std::int64_t version, std::int64_t count) {
  return number(magic, 4) + number(version, 4) + number(count, 4) + std::string(1012, '\0');
}

std::string numpy(const std::string& type, const std::string& shape) {
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", type, shape);
  header.resize(117, ' ');
  return "\x93NUMPY" + number(1, 1) + number(0, 1) + number(118, 2) + header + "\n";
}

/// Sequences of these many ids, one behind the other.
std::string megatron(int code, int width, const std::vector<int>& sizes, int first = 0) {
  std::string index = std::string("MMIDIDX\0\0", 9) + number(1, 8) + number(code, 1) +
                      number(static_cast<std::int64_t>(sizes.size()), 8) +
                      number(static_cast<std::int64_t>(sizes.size()) + 1, 8);
  std::string places;
  std::int64_t next = first;
  for (const int size : sizes) {
    index += number(size, 4);
    places += number(next, 8);
    next += size * width;
  }
  index += places;
  for (std::size_t i = 0; i <= sizes.size(); ++i) {
    index += number(static_cast<std::int64_t>(i), 8);
  }
  return index;
}

struct Data {
  TempDirectory directory;

  Data() { write_bytes(directory / "val.bin", ids(2)); }

  [[nodiscard]] Result<TokenDataset> open(std::int64_t vocab_size = 0) const {
    return TokenDataset::open(directory.path(), {.sequence_length = 10, .vocab_size = vocab_size});
  }
  /// What refuses it.
  [[nodiscard]] std::string refusal(std::int64_t vocab_size = 0) const {
    const auto dataset = open(vocab_size);
    REQUIRE_FALSE(dataset.ok());
    REQUIRE(dataset.error().exit_code() == 2);
    REQUIRE(dataset.error().message.find('\n') == std::string::npos);
    return dataset.error().message;
  }
  /// All ids are there, `shift` more than id_of() says.
  void require_ids(std::int64_t shift = 0) const {
    const auto dataset = open();
    REQUIRE(dataset.ok());
    REQUIRE(dataset->train().tokens() == id_count);
    std::vector<std::int32_t> tokens(10), targets(10);
    for (std::uint64_t row = 0; row < dataset->train().sequences(); ++row) {
      REQUIRE(dataset->train().read(row, tokens, targets));
      for (int i = 0; i < 10; ++i) {
        REQUIRE(tokens[static_cast<std::size_t>(i)] ==
                id_of(static_cast<int>(row) * 10 + i) + shift);
      }
    }
  }
};

TEST_CASE("token encoding: files with llm.c's header are read behind it", "[data][token_dataset]") {
  const Data data;
  write_bytes(data.directory / "train.bin", llmc(20240520, 1, id_count) + ids(2));
  data.require_ids();
  write_bytes(data.directory / "train.bin", llmc(20240801, 7, id_count) + ids(4, 70'000));
  data.require_ids(70'000);
  write_bytes(data.directory / "train.bin", llmc(20240520, 1, id_count + 1) + ids(2));
  CHECK_THAT(data.refusal(), Catch::Contains("train.bin") && Catch::Contains("says 501 tokens"));
  write_bytes(data.directory / "train.bin", llmc(20240520, 2, id_count) + ids(2));
  CHECK_THAT(data.refusal(), Catch::Contains("version 2"));
  // Its readers ask for magic and version alone.
  std::string noted = llmc(20240520, 1, id_count);
  noted[500] = 'x';
  write_bytes(data.directory / "train.bin", noted + ids(2));
  data.require_ids();
  write_bytes(data.directory / "train.bin", noted.substr(0, 900));
  CHECK_THAT(data.refusal(), Catch::Contains("cut off"));
  // A model's file, and questions.
  for (const int magic : {20240326, 20240522}) {
    write_bytes(data.directory / "train.bin", llmc(magic, 3, id_count) + ids(2));
    CHECK_THAT(data.refusal(), Catch::Contains(std::to_string(magic)));
  }
}

TEST_CASE(
    "token encoding: a validation file at odds with itself is refused without evaluations, too",
    "[data][token_dataset]") {
  const Data data;
  const DatasetOptions options{.sequence_length = 10, .need_validation = false};
  write_bytes(data.directory / "train.bin", ids(2));
  write_bytes(data.directory / "val.bin", llmc(20240520, 1, id_count + 1) + ids(2));
  const auto dataset = TokenDataset::open(data.directory.path(), options);
  REQUIRE_FALSE(dataset.ok());
  CHECK_THAT(dataset.error().message, Catch::Contains("val.bin"));
  // Too short for a sequence is no mistake where none is read.
  write_bytes(data.directory / "val.bin", number(7, 2));
  CHECK(TokenDataset::open(data.directory.path(), options).ok());
}

TEST_CASE("token encoding: NumPy's files are read as their type says, and need its name",
          "[data][token_dataset]") {
  const Data data;
  for (const auto& [type, width] : {std::pair("<u2", 2), {"<u4", 4}, {"<i4", 4}, {"<i8", 8}}) {
    CAPTURE(type);
    write_bytes(data.directory / "train.npy", numpy(type, "(500,)") + ids(width));
    data.require_ids();
  }
  for (const auto& [type, shape, said] : {std::tuple("<f4", "(500,)", "\"<f4\""),
                                          {">u2", "(500,)", "\">u2\""},
                                          {"<u4", "(5, 100)", "(5, 100)"},
                                          {"<u4", "(501,)", "501 elements"}}) {
    write_bytes(data.directory / "train.npy", numpy(type, shape) + ids(4));
    CHECK_THAT(data.refusal(), Catch::Contains("train.npy") && Catch::Contains(said));
  }
  write_bytes(data.directory / "train.npy", ids(2));
  CHECK_THAT(data.refusal(), Catch::Contains("not a NumPy array"));
  write_bytes(data.directory / "train.bin", ids(2));
  CHECK_THAT(data.refusal(), Catch::Contains("keep .bin or .npy"));
  std::filesystem::remove(data.directory / "train.npy");
  write_bytes(data.directory / "train.bin", numpy("<u2", "(500,)") + ids(2));
  CHECK_THAT(data.refusal(), Catch::Contains("train.bin") && Catch::Contains("name it .npy"));
}

TEST_CASE("token encoding: Megatron's index says the type, and has to be the file's",
          "[data][token_dataset]") {
  const Data data;
  for (const auto& [code, width] : {std::pair(8, 2), {4, 4}, {5, 8}}) {
    CAPTURE(code);
    write_bytes(data.directory / "train_text_document.bin", ids(width));
    write_bytes(data.directory / "train_text_document.idx", megatron(code, width, {100, 150, 250}));
    data.require_ids();
  }
  for (const auto& [index, said] :
       {std::pair(megatron(5, 8, {100, 150}), "says 2000 bytes"),
        {megatron(5, 8, {100, 150, 250}, 8), "sequence 0"},
        {megatron(7, 8, {100, 150, 250}), "type 7"},
        {megatron(5, 8, {100, 150, 250}).substr(0, 60), "cut short"},
        {std::string("TNTIDX\0\0", 8) + std::string(60, '\0'), "not a Megatron index"}}) {
    write_bytes(data.directory / "train_text_document.idx", index);
    CHECK_THAT(data.refusal(), Catch::Contains("train_text_document.idx") && Catch::Contains(said));
  }
}

TEST_CASE("token encoding: ids alone of another width are refused by what shows it",
          "[data][token_dataset]") {
  const Data data;
  const auto train = data.directory / "train.bin";
  write_bytes(train, ids(4));
  CHECK_THAT(data.refusal(), Catch::Contains("32 bits") && Catch::Contains("meta.json"));
  // Larger vocabularies have ids beyond 16 bits, and -1 or -100 may stand for none.
  write_bytes(train, ids(4, 100'000));
  CHECK_THAT(data.refusal(), Catch::Contains("32 bits"));
  write_bytes(train, number(-100, 4) + ids(4) + number(-1, 4));
  CHECK_THAT(data.refusal(), Catch::Contains("32 bits"));
  write_bytes(train, ids(8));
  CHECK_THAT(data.refusal(), Catch::Contains("64 bits"));
  std::string swapped = ids(2);
  for (std::size_t i = 0; i < swapped.size(); i += 2) {
    std::swap(swapped[i], swapped[i + 1]);
  }
  write_bytes(train, swapped);
  CHECK_THAT(data.refusal(50'010), Catch::Contains("big-endian"));
  std::string wide;
  for (int i = 0; i < id_count; ++i) {
    wide += std::string(2, '\0') + swapped.substr(2 * static_cast<std::size_t>(i), 2);
  }
  write_bytes(train, wide);
  CHECK_THAT(data.refusal(50'010), Catch::Contains("'>u4'"));
  write_bytes(train, std::string(4000, 'x') + " a text that somebody named so");
  CHECK_THAT(data.refusal(), Catch::Contains("is text"));
  write_bytes(train, std::string("PK\x03\x04", 4) + ids(2));
  CHECK_THAT(data.refusal(), Catch::Contains("ZIP"));
  write_bytes(data.directory / "meta.json", R"({"dtype": "uint32"})");
  write_bytes(train, ids(8));
  CHECK_THAT(data.refusal(), Catch::Contains("64 bits"));
  write_bytes(train, ids(4));
  write_bytes(data.directory / "val.bin", ids(4));
  data.require_ids();
}

TEST_CASE("token encoding: few ids are told by where zeros stand, not by how many there are",
          "[data][token_dataset]") {
  const Data data;
  const auto train = data.directory / "train.bin";
  const auto four_ids = [](int width) {  // as of the letters of DNA
    std::string bytes;
    for (int i = 0; i < id_count; ++i) {
      bytes += number(id_of(i) * 31 / 7 % 4, width);
    }
    return bytes;
  };
  write_bytes(train, four_ids(2));
  CHECK(data.open().ok());
  write_bytes(train, four_ids(4));
  CHECK_THAT(data.refusal(), Catch::Contains("32 bits"));
  write_bytes(train, four_ids(8));
  CHECK_THAT(data.refusal(), Catch::Contains("64 bits"));
  // Padding alone, and one id in the middle.
  write_bytes(train, std::string(4000, '\0') + number(257, 2) + std::string(4000, '\0'));
  CHECK(data.open().ok());
}

TEST_CASE("token encoding: what data prepare wrote is ids, whatever they look like",
          "[data][token_dataset]") {
  const Data data;
  std::string every_second;
  for (int i = 0; i < id_count; ++i) {
    every_second += number(i % 2 == 0 ? 97 : 0, 2);
  }
  write_bytes(data.directory / "train.bin", every_second);
  CHECK_THAT(data.refusal(), Catch::Contains("32 bits"));
  write_bytes(
      data.directory / "meta.json",
      fmt::format(R"({{"dtype": "uint16", "train_digest": "xxh3-128:{}"}})", std::string(32, '0')));
  CHECK(data.open().ok());
}

TEST_CASE("token encoding: other programs' names of both splits are found",
          "[data][token_dataset]") {
  const TempDirectory directory;
  write_bytes(directory / "fineweb_train_000002.bin", llmc(20240520, 1, id_count) + ids(2, 1));
  write_bytes(directory / "fineweb_train_000001.bin", llmc(20240520, 1, id_count) + ids(2));
  write_bytes(directory / "fineweb_val_000000.bin", llmc(20240520, 1, id_count) + ids(2));
  const auto dataset = TokenDataset::open(directory.path(), {.sequence_length = 10});
  REQUIRE(dataset.ok());
  CHECK(dataset->train().tokens() == 2 * id_count);
  CHECK(dataset->train().path(0).filename() == "fineweb_train_000001.bin");
  CHECK(dataset->validation().tokens() == id_count);
  // Nothing is for training and for validation, and no other word is taken for a split.
  write_bytes(directory / "a_train_values.bin", ids(2));
  write_bytes(directory / "b_values.bin", ids(2));
  write_bytes(directory / "values.bin", ids(2));
  const auto same = TokenDataset::open(directory.path(), {.sequence_length = 10});
  REQUIRE(same.ok());
  CHECK(same->train().tokens() == 3 * id_count);
  CHECK(same->validation().tokens() == id_count);
  // Files whose names are this program's go before, and then it is they that are missing.
  write_bytes(directory / "val.bin", ids(2));
  write_bytes(directory / "train.bin", ids(2));
  CHECK(TokenDataset::open(directory.path(), {.sequence_length = 10})->train().tokens() ==
        id_count);
}

TEST_CASE("token encoding: the same bytes read in another way have another fingerprint",
          "[data][token_fingerprint]") {
  const Data data;
  write_bytes(data.directory / "train_a.bin", ids(4));
  write_bytes(data.directory / "train_a.idx", megatron(4, 4, {id_count}));
  const auto wide = data.open();
  REQUIRE(wide.ok());
  write_bytes(data.directory / "train_a.idx", megatron(8, 2, {2 * id_count}));
  const auto narrow = data.open();
  REQUIRE(narrow.ok());
  // Its width is what a file has that nobody says anything of.
  CHECK(narrow->train().encoding_of(0).empty());
  const auto first = token_fingerprint(*wide);
  const auto second = token_fingerprint(*narrow);
  REQUIRE((first.ok() && second.ok()));
  CHECK(*first != *second);
}

template <class Float>
std::string floats() {
  std::string bytes;
  for (int i = 0; i < id_count; ++i) {
    const auto value = static_cast<Float>(id_of(i));
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return bytes;
}

TEST_CASE("token encoding: ids written as floats are refused by their type",
          "[data][token_dataset]") {
  const Data data;
  write_bytes(data.directory / "train.bin", floats<float>());
  CHECK_THAT(data.refusal(), Catch::Contains("floats of 32 bits") && Catch::Contains("'<f4'"));
  write_bytes(data.directory / "train.bin", floats<double>());
  CHECK_THAT(data.refusal(), Catch::Contains("floats of 64 bits") && Catch::Contains("'<f8'"));
}

TEST_CASE("token encoding: ids that look like wider ones have a way to be read",
          "[data][token_dataset]") {
  const Data data;
  std::string every_second, every_fourth;
  for (int i = 0; i < id_count; ++i) {
    every_second += number(id_of(i), 2) + number(0, 2);
    every_fourth += number(id_of(i), 2) + std::string(6, '\0');
  }
  const auto train = data.directory / "train.bin";
  for (const auto& [bytes, bits] : {std::pair(every_second, "32"), {every_fourth, "64"}}) {
    write_bytes(train, bytes);
    CHECK_THAT(data.refusal(),
               Catch::Contains(fmt::format("holds ids of {} bits", bits)) &&
                   Catch::Contains("np.save('train.npy', np.fromfile(FILE, '<u2'))"));
    std::filesystem::remove(train);
    write_bytes(data.directory / "train.npy",
                numpy("<u2", fmt::format("({},)", bytes.size() / 2)) + bytes);
    std::filesystem::rename(data.directory / "val.bin", data.directory / "val_kept");
    CHECK(
        TokenDataset::open(data.directory.path(), {.sequence_length = 10, .need_validation = false})
            ->train()
            .tokens() == bytes.size() / 2);
    std::filesystem::remove(data.directory / "train.npy");
    std::filesystem::rename(data.directory / "val_kept", data.directory / "val.bin");
  }
  write_bytes(data.directory / "meta.json", R"({"dtype": "uint32"})");
  write_bytes(data.directory / "val.bin", ids(4));
  write_bytes(train, ids(8));
  CHECK_THAT(data.refusal(),
             Catch::Contains("if they are uint32 all the same") && Catch::Contains("'<u4'"));
}

TEST_CASE("token encoding: ids that begin with -1 are ids, and a stream of Arrow's is none",
          "[data][token_dataset]") {
  const Data data;
  const auto train = data.directory / "train.bin";
  write_bytes(data.directory / "meta.json", R"({"dtype": "uint32"})");
  write_bytes(data.directory / "val.bin", ids(4));
  write_bytes(train, number(-1, 4) + ids(4));
  const auto dataset = data.open();
  REQUIRE(dataset.ok());
  std::vector<std::int32_t> tokens(10), targets(10);
  const Status read = dataset->train().read(0, tokens, targets);
  REQUIRE_FALSE(read);
  CHECK_THAT(read.error().message, Catch::Contains("token -1 at position 0: not an id"));
  CHECK(dataset->train().read(1, tokens, targets));
  // What pyarrow writes of a column "text".
  const std::string begin(
      "\xff\xff\xff\xff\x70\0\0\0\x10\0\0\0\0\0\x0a\0\x0c\0\x06\0\x05\0\x08\0\x0a\0\0\0\0"
      "\x01\x04\0\x0c\0\0\0\x08\0\x08\0\0\0\x04\0\x08\0\0\0\x04\0\0\0",
      52);
  write_bytes(train, begin + ids(4));
  CHECK_THAT(data.refusal(), Catch::Contains("an Arrow stream"));
}

TEST_CASE("token encoding: ids beyond the vocabulary that meta.json says are refused by its name",
          "[data][token_dataset]") {
  const Data data;
  write_bytes(data.directory / "meta.json", R"({"vocab_size": 100})");
  write_bytes(data.directory / "train.bin", ids(2));
  // A larger model does not hide it, neither where the data is opened nor where it is read.
  CHECK_THAT(data.refusal(60'000), Catch::Contains("meta.json: vocab_size is 100, but train.bin") &&
                                       Catch::Contains("has token 7924 at position 1"));
  std::string late;
  for (int i = 0; i < 20'000; ++i) {
    late += number(i == 10'005 ? 101 : i % 90, 2);
  }
  write_bytes(data.directory / "train.bin", late);
  write_bytes(data.directory / "val.bin", late.substr(0, 2000));
  const auto dataset = data.open(60'000);
  REQUIRE(dataset.ok());
  std::vector<std::int32_t> tokens(10), targets(10);
  CHECK(dataset->train().read(999, tokens, targets));
  const Status read = dataset->train().read(1000, tokens, targets);
  REQUIRE_FALSE(read);
  CHECK_THAT(read.error().message, Catch::Contains("vocab_size is 100") &&
                                       Catch::Contains("token 101 at position 10005"));
}

TEST_CASE("token encoding: ids that say little are read", "[data][token_dataset]") {
  const Data data;
  const std::vector<std::vector<int>> periods = {{0},    {7},       {0, 1},      {7, 3},
                                                 {7, 1}, {5, 9, 0}, {1, 2, 3, 4}};
  for (const std::vector<int>& period : periods) {
    std::string bytes;
    for (std::size_t i = 0; i < id_count; ++i) {
      bytes += number(period[i % period.size()], 2);
    }
    write_bytes(data.directory / "train.bin", bytes);
    CAPTURE(period);
    CHECK(data.open(50'010).ok());
  }
}

}  // namespace train::data::testing::token_encoding_test
