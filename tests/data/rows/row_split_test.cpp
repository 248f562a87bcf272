#include "data/rows/row_split.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "data/tokens/token_dataset.hpp"
#include "tests/data/rows/rows_fixture.hpp"
#include "tests/support/disks/temp_directory.hpp"

using namespace train;
using namespace train::data;
using namespace train::test;

namespace {

using Ints = std::vector<std::int32_t>;

RowSplit opened(const std::filesystem::path& directory, const RowOptions& options = {}) {
  auto split = RowSplit::open(directory, "train", options);
  REQUIRE(split.ok());
  return std::move(*split);
}

std::string open_error(const std::filesystem::path& directory, const RowOptions& options = {}) {
  const auto split = RowSplit::open(directory, "train", options);
  REQUIRE_FALSE(split.ok());
  REQUIRE(split.error().exit_code() == 2);
  REQUIRE(split.error().message.find('\n') == std::string::npos);
  return split.error().message;
}

bool holds(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

/// Two documents in one row of 8.
void two_documents(RowSplitWriter& writer) {
  REQUIRE(writer.add(row_text({10, 11, 12, 13}, 2), 0));
  REQUIRE(writer.add(row_text({20, 21, 22}, 1), 1));
}

}  // namespace

TEST_CASE("rows: targets are the trained tokens, one earlier; padding is a document of its own",
          "[data][rows]") {
  const auto width = GENERATE(2, 4);
  const TempDirectory directory;
  write_rows(directory.path(), {.token_bytes = width, .row_length = 8}, two_documents);
  const RowSplit split = opened(directory.path());
  REQUIRE((split.rows() == 1 && split.row_length() == 8));
  const ReadRow row = read_row(split, 0);
  REQUIRE(row.tokens == Ints{10, 11, 12, 13, 20, 21, 22, 0});
  REQUIRE(row.targets == Ints{-1, 12, 13, -1, 21, 22, -1, -1});
  REQUIRE(row.positions == Ints{0, 1, 2, 3, 0, 1, 2, 0});
  REQUIRE(row.weights == std::vector<float>{0, 1, 1, 0, 1, 1, 0, 0});
  REQUIRE((split.trained_tokens(0) == 4 && split.weight_sum(0) == 4.0 && split.tokens(0) == 7));
  REQUIRE(split.documents(0) ==
          std::vector<RowDocument>{{.first = 0, .length = 4, .trained = 2, .source = 0},
                                   {.first = 4, .length = 3, .trained = 2, .source = 1}});
  REQUIRE(split.document_numbers(0) == std::vector<std::uint64_t>{0, 1});
}

TEST_CASE("rows: a document that goes on in the next row loses no target", "[data][rows]") {
  const TempDirectory directory;
  write_rows(directory.path(), {.row_length = 4, .packing = Packing::wrapped},
             [](RowSplitWriter& writer) {
               REQUIRE(writer.add(row_text({30, 31, 32, 33, 34, 35}, 1), 0));
             });
  const RowSplit split = opened(directory.path());
  REQUIRE(split.rows() == 2);
  const ReadRow first = read_row(split, 0);
  REQUIRE(first.targets == Ints{31, 32, 33, 34});
  const ReadRow second = read_row(split, 1);
  REQUIRE(second.tokens == Ints{34, 35, 0, 0});
  REQUIRE(second.targets == Ints{35, -1, -1, -1});
  REQUIRE(second.positions == Ints{0, 1, 0, 1});
  REQUIRE((split.trained_tokens(0) == 4 && split.trained_tokens(1) == 1));
}

TEST_CASE("rows: both sides of a pair lie in one row, the chosen one first", "[data][rows][RW-2]") {
  const TempDirectory directory;
  constexpr std::uint32_t kPairs = 40;
  write_rows(directory.path(), {.row_length = 16}, [](RowSplitWriter& writer) {
    for (std::uint32_t i = 0; i < kPairs; ++i) {
      const std::vector<std::uint32_t> chosen(2 + i % 5, i);
      const std::vector<std::uint32_t> rejected(2 + i % 7, i);
      REQUIRE(writer.add_pair(row_text(chosen, 1), row_text(rejected, 1), 0));
    }
  });
  const RowSplit split = opened(directory.path());
  REQUIRE(split.facts().train.pairs == kPairs);
  std::vector<int> seen(kPairs);
  for (std::uint64_t row = 0; row < split.rows(); ++row) {
    const auto documents = split.documents(row);
    REQUIRE(documents.size() % 2 == 0);
    for (std::size_t i = 0; i < documents.size(); i += 2) {
      REQUIRE((documents[i].side == 0 && documents[i + 1].side == 1));
      REQUIRE(documents[i].pair == documents[i + 1].pair);
      ++seen.at(static_cast<std::size_t>(documents[i].pair));
      const auto at = static_cast<std::size_t>(documents[i + 1].first);
      REQUIRE(read_row(split, row).tokens[at] == documents[i].pair);
    }
  }
  REQUIRE(seen == std::vector<int>(kPairs, 1));
}

TEST_CASE("rows: an example of KTO has its prompt with the next one's answer behind it",
          "[data][rows][RW-2]") {
  const TempDirectory directory;
  constexpr std::uint32_t kExamples = 9;
  // Two tokens of prompt, 10 + i, and an answer of 2 to 4, 50 + i.
  const auto answer = [](std::uint32_t i) { return std::vector<std::uint32_t>(2 + i % 3, 50 + i); };
  write_rows(directory.path(), {.row_length = 32}, [&](RowSplitWriter& writer) {
    for (std::uint32_t i = 0; i < kExamples; ++i) {
      std::vector<std::uint32_t> tokens = {10 + i, 10 + i};
      const auto said = answer(i);
      tokens.insert(tokens.end(), said.begin(), said.end());
      REQUIRE(writer.add_labelled(row_text(tokens, 2), 0, i % 2 == 0));
    }
  });
  const RowSplit split = opened(directory.path());
  REQUIRE(split.facts().train.pairs == kExamples);
  REQUIRE(split.facts().train.documents == 2 * kExamples);
  std::uint32_t seen = 0;
  for (std::uint64_t row = 0; row < split.rows(); ++row) {
    const auto documents = split.documents(row);
    const ReadRow columns = read_row(split, row);
    for (std::size_t i = 0; i < documents.size(); i += 2, ++seen) {
      const auto number = static_cast<std::uint32_t>(documents[i].pair);
      REQUIRE(documents[i].side == static_cast<std::int8_t>(number % 2));
      REQUIRE((documents[i + 1].side == 2 && documents[i + 1].pair == documents[i].pair));
      const auto said = answer((number + 1) % kExamples);
      REQUIRE(documents[i + 1].length == static_cast<std::int32_t>(2 + said.size()));
      REQUIRE(documents[i + 1].trained == static_cast<std::int32_t>(said.size()));
      const auto at = static_cast<std::size_t>(documents[i + 1].first);
      REQUIRE(columns.tokens[at + 1] == static_cast<std::int32_t>(10 + number));
      REQUIRE(columns.targets[at] == -1);
      REQUIRE(columns.targets[at + 1] == static_cast<std::int32_t>(said.front()));
    }
  }
  REQUIRE(seen == kExamples);
}

TEST_CASE("rows: a mismatched answer is cut where the row ends", "[data][rows]") {
  const RowText prompt = row_text({1, 2, 3, 4}, 3);
  const RowText answer = row_text({7, 8, 8, 9}, 1);
  CHECK(mismatched_text(prompt, answer, 9).tokens == std::vector<std::uint32_t>{1, 2, 3, 8, 8, 9});
  const RowText cut = mismatched_text(prompt, answer, 4);
  CHECK(cut.tokens == std::vector<std::uint32_t>{1, 2, 3, 8});
  CHECK(cut.trained == std::vector<bool>{false, false, false, true});
}

TEST_CASE("rows: weights that come late are 1 before", "[data][rows]") {
  const TempDirectory directory;
  write_rows(directory.path(), {.row_length = 8}, [](RowSplitWriter& writer) {
    REQUIRE(writer.add(row_text({1, 2, 3}, 1), 0));
    RowText heavy = row_text({4, 5, 6}, 2);
    heavy.weights = {1.0F, 1.0F, 2.5F};
    REQUIRE(writer.add(heavy, 0));
  });
  const RowSplit split = opened(directory.path());
  const ReadRow row = read_row(split, 0);
  const bool in_order = row.tokens[0] == 1;
  REQUIRE(row.weights == (in_order ? std::vector<float>{1, 1, 0, 0, 2.5F, 0, 0, 0}
                                   : std::vector<float>{0, 2.5F, 0, 1, 1, 0, 0, 0}));
  REQUIRE(split.weight_sum(0) == 4.5);
  REQUIRE(split.trained_tokens(0) == 3);
}

TEST_CASE("rows: the same documents give the same bytes, and the seed orders them",
          "[data][rows]") {
  const TempDirectory first;
  const TempDirectory second;
  const TempDirectory third;
  const auto fill = [](RowSplitWriter& writer) {
    for (std::uint32_t i = 0; i < 50; ++i) {
      REQUIRE(writer.add(row_text(std::vector<std::uint32_t>(2 + i % 9, i), 1), 0));
    }
  };
  const auto one = write_rows(first.path(), {.row_length = 12, .seed = 1}, fill);
  const auto again = write_rows(second.path(), {.row_length = 12, .seed = 1}, fill);
  const auto other = write_rows(third.path(), {.row_length = 12, .seed = 2}, fill);
  REQUIRE(one.train == again.train);
  REQUIRE(one.train.digest != other.train.digest);
  REQUIRE(*row_fingerprint(first.path()) == *row_fingerprint(second.path()));
  REQUIRE(*row_fingerprint(first.path()) != *row_fingerprint(third.path()));
}

TEST_CASE("rows: what does not fit together is refused with its file", "[data][rows]") {
  const TempDirectory directory;
  write_rows(directory.path(), {.token_bytes = 2, .row_length = 8}, two_documents);
  SECTION("a file that was cut short") {
    const std::string bytes = read_bytes(directory / "train.tokens");
    write_bytes(directory / "train.tokens", bytes.substr(2));
    REQUIRE(holds(open_error(directory.path()), "train.tokens"));
  }
  SECTION("a segment of a document that there is none of") {
    std::string bytes = read_bytes(directory / "train.segments");
    bytes[0] = 9;
    write_bytes(directory / "train.segments", bytes);
    REQUIRE(holds(open_error(directory.path()), "train.segments"));
  }
  SECTION("a segment beyond its document") {
    std::string bytes = read_bytes(directory / "train.segments");
    bytes[8] = 3;  // start
    write_bytes(directory / "train.segments", bytes);
    REQUIRE(holds(open_error(directory.path()), "train.segments"));
  }
  SECTION("a document beyond the tokens") {
    std::string bytes = read_bytes(directory / "train.documents");
    bytes[7] = '\x7f';
    write_bytes(directory / "train.documents", bytes);
    REQUIRE(holds(open_error(directory.path()), "train.documents"));
  }
  SECTION("a missing file") {
    std::filesystem::remove(directory / "train.mask");
    REQUIRE(holds(open_error(directory.path()), "train.mask"));
  }
  SECTION("another length of rows") {
    REQUIRE(holds(open_error(directory.path(), {.row_length = 16}), "--row-length 16"));
  }
  SECTION("a mask that the index does not know of") {
    write_bytes(directory / "train.mask", "\x7f");
    const RowSplit split = opened(directory.path());
    Ints column(8);
    Ints other(8);
    Ints third(8);
    REQUIRE(holds(split.read(0, {column, other, third}).error().message, "trained targets"));
  }
  SECTION("opened as plain tokens") {
    const auto dataset = TokenDataset::open(directory.path(), {.sequence_length = 4});
    REQUIRE_FALSE(dataset.ok());
    REQUIRE(holds(dataset.error().message, "format is \"rows\""));
  }
}

TEST_CASE("rows: a token outside the vocabulary is refused where rows are opened, or read",
          "[data][rows]") {
  const TempDirectory directory;
  write_rows(directory.path(), {.token_bytes = 2, .row_length = 8}, two_documents);
  std::string bytes = read_bytes(directory / "train.tokens");
  bytes[2] = 120;
  write_bytes(directory / "train.tokens", bytes);
  // A larger model does not hide it.
  for (const std::int64_t vocab_size : {0, 1000}) {
    const std::string error = open_error(directory.path(), {.vocab_size = vocab_size});
    REQUIRE(holds(error, "meta.json: vocab_size is 100, but train.tokens has token 120"));
  }
  auto facts = read_row_facts(directory.path());
  REQUIRE(facts.ok());
  facts->vocab_size = 0;
  REQUIRE(write_row_facts(directory.path(), *facts));
  const RowSplit split = opened(directory.path(), {.vocab_size = 100});
  Ints column(8);
  Ints other(8);
  Ints third(8);
  const Status status = split.read(0, {column, other, third});
  REQUIRE_FALSE(status.ok());
  REQUIRE(holds(status.error().message, "token 120 at position 1"));
}

TEST_CASE("rows: meta.json of another format or version is refused", "[data][rows]") {
  const TempDirectory directory;
  write_rows(directory.path(), {.row_length = 8}, two_documents);
  auto meta = nlohmann::json::parse(read_bytes(directory / "meta.json"));
  SECTION("version") {
    meta["format_version"] = 2;
    write_bytes(directory / "meta.json", meta.dump());
    REQUIRE(holds(open_error(directory.path()), "format_version is 2"));
  }
  SECTION("format") {
    meta.erase("format");
    write_bytes(directory / "meta.json", meta.dump());
    REQUIRE(holds(open_error(directory.path()), "\"format\": \"rows\""));
  }
  SECTION("a negative length") {
    meta["row_length"] = -1;
    write_bytes(directory / "meta.json", meta.dump());
    REQUIRE(holds(open_error(directory.path()), "row_length"));
  }
}
