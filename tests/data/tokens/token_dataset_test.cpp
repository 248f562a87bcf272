#include "data/tokens/token_dataset.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <set>

#include "base/check.hpp"
#include "tests/support/disks/temp_directory.hpp"

using namespace train;
using namespace train::data;
using train::test::TempDirectory;
using train::test::write_bytes;

namespace {

std::string tokens_from(unsigned first, unsigned count, unsigned width = 2) {
  std::string bytes;
  for (unsigned i = 0; i < count; ++i) {
    for (unsigned byte = 0; byte < width; ++byte) {
      bytes.push_back(static_cast<char>(static_cast<unsigned char>((first + i) >> (8 * byte))));
    }
  }
  return bytes;
}

Error open_error(const TempDirectory& directory, DatasetOptions options = {.sequence_length = 4}) {
  const auto dataset = TokenDataset::open(directory.path(), options);
  REQUIRE_FALSE(dataset);
  REQUIRE(dataset.error().exit_code() == 2);
  REQUIRE(dataset.error().message.find('\n') == std::string::npos);
  return dataset.error();
}

}  // namespace

TEST_CASE("token_dataset: cuts files into sequences and next tokens", "[data][token_dataset]") {
  const TempDirectory directory;
  write_bytes(directory / "train_0000.bin", tokens_from(0, 9));     // 2 sequences of 4
  write_bytes(directory / "train_0001.bin", tokens_from(100, 4));   // too short for one
  write_bytes(directory / "train_0002.bin", tokens_from(200, 12));  // 2, 3 tokens left over
  write_bytes(directory / "val.bin", tokens_from(300, 5));
  const auto dataset = TokenDataset::open(directory.path(), {.sequence_length = 4});
  REQUIRE(dataset);
  REQUIRE(dataset->train().tokens() == 25);
  REQUIRE(dataset->train().sequences() == 4);
  REQUIRE(dataset->validation().sequences() == 1);
  REQUIRE_FALSE(dataset->bytes_per_token());
  const std::vector<int> firsts = {0, 4, 200, 204};
  for (std::size_t index = 0; index < firsts.size(); ++index) {
    std::vector<std::int32_t> tokens(4), targets(4);
    REQUIRE(dataset->train().read(index, tokens, targets));
    for (int i = 0; i < 4; ++i) {
      REQUIRE(tokens[static_cast<std::size_t>(i)] == firsts[index] + i);
      REQUIRE(targets[static_cast<std::size_t>(i)] == firsts[index] + i + 1);
    }
  }
  std::vector<std::int32_t> tokens(4), targets(4);
  REQUIRE_THROWS_AS(dataset->train().read(4, tokens, targets), CheckFailed);
}

TEST_CASE("token_dataset: reads from any token of any file", "[data][token_dataset]") {
  const TempDirectory directory;
  const unsigned width = GENERATE(2U, 4U);
  write_bytes(directory / "train_0000.bin", tokens_from(0, 9, width));
  write_bytes(directory / "train_0001.bin", tokens_from(100, 4, width));
  write_bytes(directory / "val.bin", tokens_from(300, 5, width));
  write_bytes(directory / "meta.json", fmt::format("{{\"dtype\": \"uint{}\"}}", 8 * width));
  const auto dataset = TokenDataset::open(directory.path(), {.sequence_length = 4});
  REQUIRE(dataset);
  const TokenSplit& train = dataset->train();
  REQUIRE(train.file_count() == 2);
  CHECK(train.tokens_of(0) == 9);
  CHECK(train.tokens_of(1) == 4);
  CHECK(train.path(1).filename() == "train_0001.bin");
  std::vector<std::int32_t> tokens(4), targets(4);
  for (std::int32_t first = 0; first < 5; ++first) {
    REQUIRE(train.read_at(0, static_cast<std::uint64_t>(first), tokens, targets));
    CHECK(tokens == std::vector<std::int32_t>{first, first + 1, first + 2, first + 3});
    CHECK(targets == std::vector<std::int32_t>{first + 1, first + 2, first + 3, first + 4});
  }
  CHECK_THROWS_AS(train.read_at(0, 5, tokens, targets), CheckFailed);
  CHECK_THROWS_AS(train.read_at(1, 0, tokens, targets), CheckFailed);
  CHECK_THROWS_AS(train.read_at(2, 0, tokens, targets), CheckFailed);
}

TEST_CASE("token_dataset: reads uint32 when meta.json says so", "[data][token_dataset]") {
  const TempDirectory directory;
  write_bytes(directory / "train.bin", tokens_from(70'000, 9, 4));
  write_bytes(directory / "val.bin", tokens_from(80'000, 6, 4));
  write_bytes(directory / "meta.json",
              R"({"dtype":"uint32","vocab_size":100000,"train_tokens":9,"val_tokens":6,)"
              R"("val_bytes":24,"tokenizer":"other","end_of_text":3,"unknown":[1]})");
  const auto dataset = TokenDataset::open(directory.path(), {.sequence_length = 4});
  REQUIRE(dataset);
  std::vector<std::int32_t> tokens(4), targets(4);
  REQUIRE(dataset->train().read(1, tokens, targets));
  REQUIRE(tokens == std::vector<std::int32_t>{70'004, 70'005, 70'006, 70'007});
  REQUIRE(dataset->facts().vocab_size == 100'000);
  REQUIRE(dataset->facts().end_of_text == 3);
  REQUIRE(dataset->facts().tokenizer == "other");
  REQUIRE(dataset->bytes_per_token() == 4.0);
}

TEST_CASE("token_dataset: missing things are named with the fix", "[data][token_dataset]") {
  const TempDirectory directory;
  const auto none = TokenDataset::open(directory / "none", {});
  REQUIRE_FALSE(none);
  REQUIRE(none.error().exit_code() == 2);
  REQUIRE_THAT(none.error().message,
               Catch::Contains("none") && Catch::Contains("actortrain data prepare"));
  REQUIRE_THAT(open_error(directory).message,
               Catch::Contains("train.bin") && Catch::Contains("actortrain data prepare"));
  write_bytes(directory / "train.bin", tokens_from(0, 9));
  REQUIRE_THAT(open_error(directory).message,
               Catch::Contains("val.bin") && Catch::Contains("actortrain data prepare"));
  REQUIRE(TokenDataset::open(directory.path(), {.sequence_length = 4, .need_validation = false}));
  std::filesystem::create_directory(directory / "val.bin");
  REQUIRE_THAT(open_error(directory).message, Catch::Contains("val.bin"));
}

TEST_CASE("token_dataset: odd sizes and short files are named", "[data][token_dataset]") {
  const TempDirectory directory;
  write_bytes(directory / "val.bin", tokens_from(0, 9));
  write_bytes(directory / "train.bin", tokens_from(0, 9) + "x");
  REQUIRE_THAT(open_error(directory).message,
               Catch::Contains("train.bin") && Catch::Contains("19 bytes"));
  write_bytes(directory / "train.bin", tokens_from(0, 4));
  REQUIRE_THAT(open_error(directory).message, Catch::Contains("train.bin") &&
                                                  Catch::Contains("4 tokens") &&
                                                  Catch::Contains("needs 5"));
  write_bytes(directory / "train.bin", "");
  REQUIRE_THAT(open_error(directory).message, Catch::Contains("0 tokens"));
  write_bytes(directory / "train.bin", tokens_from(0, 5));
  REQUIRE(TokenDataset::open(directory.path(), {.sequence_length = 4})->train().sequences() == 1);
  write_bytes(directory / "val.bin", tokens_from(0, 2));
  REQUIRE_THAT(open_error(directory).message, Catch::Contains("val.bin"));
}

TEST_CASE("token_dataset: a token outside the vocabulary is an error, not a crash",
          "[data][token_dataset]") {
  const TempDirectory directory;
  write_bytes(directory / "train.bin", tokens_from(90, 20));
  write_bytes(directory / "val.bin", tokens_from(0, 9));
  const auto dataset =
      TokenDataset::open(directory.path(), {.sequence_length = 4, .vocab_size = 100});
  REQUIRE(dataset);
  std::vector<std::int32_t> tokens(4), targets(4);
  REQUIRE(dataset->train().read(0, tokens, targets));
  REQUIRE(dataset->train().read(1, tokens, targets).ok() == true);
  const Status status = dataset->train().read(2, tokens, targets);
  REQUIRE_FALSE(status);
  REQUIRE(status.error().exit_code() == 2);
  REQUIRE_THAT(status.error().message,
               Catch::Contains("train.bin") && Catch::Contains("token 100") &&
                   Catch::Contains("position 10") && Catch::Contains("vocabulary of 100"));
}

TEST_CASE("token_dataset: a tokenizer may have more tokens than the model that the data trains",
          "[data][token_dataset]") {
  const TempDirectory directory;
  write_bytes(directory / "train.bin", tokens_from(90, 11));  // the last is 100
  write_bytes(directory / "val.bin", tokens_from(0, 9));
  write_bytes(directory / "meta.json", R"({"vocab_size":300})");
  const auto dataset =
      TokenDataset::open(directory.path(), {.sequence_length = 5, .vocab_size = 100});
  REQUIRE(dataset);
  std::vector<std::int32_t> tokens(5);
  std::vector<std::int32_t> targets(5);
  REQUIRE(dataset->train().read(0, tokens, targets));
  const Status status = dataset->train().read(1, tokens, targets);
  REQUIRE_FALSE(status);
  REQUIRE_THAT(status.error().message, Catch::Contains("token 100 at position 10") &&
                                           Catch::Contains("without the text that has it"));
}

TEST_CASE("token_dataset: meta.json is checked", "[data][token_dataset]") {
  const TempDirectory directory;
  write_bytes(directory / "train.bin", tokens_from(0, 9));
  write_bytes(directory / "val.bin", tokens_from(0, 9));
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{", "meta.json"},
      {"[]", "not a JSON object"},
      {R"({"dtype":"float32"})", "dtype"},
      {R"({"dtype":16})", "dtype"},
      {R"({"vocab_size":"x"})", "vocab_size"},
      {R"({"vocab_size":-1})", "vocab_size"},
      {R"({"vocab_size":1e300})", "vocab_size"},
      {R"({"vocab_size":18446744073709551615})", "vocab_size"},
      {R"({"tokenizer":1})", "tokenizer"},
      {R"({"train_tokens":8})", "train_tokens = 8"},
      {R"({"val_tokens":10})", "val_tokens = 10"},
  };
  for (const auto& [text, wanted] : cases) {
    INFO(text);
    write_bytes(directory / "meta.json", text);
    const Error error = open_error(directory, {.sequence_length = 4, .vocab_size = 257});
    REQUIRE_THAT(error.message, Catch::Contains("meta.json") && Catch::Contains(wanted));
  }
  write_bytes(directory / "meta.json", R"({"train_tokens":9,"val_tokens":9,"vocab_size":257})");
  REQUIRE(TokenDataset::open(directory.path(), {.sequence_length = 4, .vocab_size = 257}));
}
