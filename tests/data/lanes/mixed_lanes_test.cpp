#include "data/lanes/mixed_lanes.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "data/lanes/open_lanes.hpp"
#include "engine/objective/registry.hpp"
#include "tests/support/inputs/packed_rows.hpp"

namespace train::data::mixed_lanes_test {
namespace {

constexpr std::size_t kRow = 16;  // Tokens.

configs::RunConfig config_of(const std::vector<configs::DataSource>& sources) {
  configs::RunConfig config;
  config.data.sources = sources;
  config.data.dir = sources.front().dir;
  config.data.sequence_length = kRow;
  config.objective.name = "sft";
  config.run.steps = 30;
  config.batch.lanes = 3;
  config.batch.micro_batch = 3;
  config.eval.lanes = 2;
  return config;
}

std::string in(const test::TempDirectory& directory, const std::string& name) {
  return (directory.path() / name).string();
}

/// `count` tokens of the one value.
void write_plain(const std::string& directory, std::size_t rows, char value) {
  std::filesystem::create_directories(directory);
  std::string tokens;
  for (std::size_t i = 0; i < rows * kRow + 1; ++i) {
    tokens += {value, '\0'};
  }
  test::write_bytes(directory + "/train.bin", tokens);
  test::write_bytes(directory + "/val.bin", tokens);
}

/// A lane with the columns of every objective.
struct Columns {
  std::vector<std::int32_t> tokens = std::vector<std::int32_t>(3 * kRow);
  std::vector<std::int32_t> targets = tokens;
  std::vector<std::int32_t> positions = tokens;
  std::vector<float> weights = std::vector<float>(3 * kRow);
  std::vector<engine::LaneSequence> sequences = std::vector<engine::LaneSequence>(3 * kRow);
  std::vector<std::int32_t> sources = std::vector<std::int32_t>(3);

  Columns(const LaneSource& data, const engine::LaneWork& work) {
    const auto read = data.read(work, {tokens, targets, positions, weights, sequences, sources});
    INFO((read ? "" : read.error().message));
    REQUIRE(read.ok());
  }
  [[nodiscard]] std::vector<std::int32_t> row(std::size_t index) const {
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(index * kRow);
    return {first, first + kRow};
  }
};

std::shared_ptr<const LaneSource> opened(const configs::RunConfig& config) {
  auto data = open_lanes(config, 64);
  INFO((data ? "" : data.error().message));
  REQUIRE(data.ok());
  return *data;
}

void check_refused(const configs::RunConfig& config, const std::vector<std::string>& parts) {
  const auto data = open_lanes(config, 64);
  REQUIRE_FALSE(data.ok());
  INFO(data.error().message);
  CHECK(data.error().kind == ErrorKind::user);
  CHECK(data.error().message.find('\n') == std::string::npos);
  for (const std::string& part : parts) {
    INFO(part);
    CHECK(data.error().message.find(part) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("mixed lanes: each row is of the source that it is said to be of, as often as planned",
          "[data][mixed_lanes][ST-11]") {
  const test::TempDirectory directory;
  write_plain(in(directory, "a"), 20, 1);
  write_plain(in(directory, "b"), 9, 2);
  write_plain(in(directory, "c"), 5, 3);
  auto config = config_of({{.dir = in(directory, "a"), .weight = 5},
                           {.dir = in(directory, "b"), .weight = 3},
                           {.dir = in(directory, "c"), .weight = 1}});
  config.objective.name = "pretrain";
  const auto data = opened(config);
  CHECK(data->facts().source_names() == std::vector<std::string>{"a", "b", "c"});
  CHECK(data->facts().training_rows == 34);
  CHECK_FALSE(data->count(0).has_value());
  std::vector<std::uint64_t> read(3);
  for (std::int64_t step = 0; step < 27; ++step) {
    for (std::int64_t lane = 0; lane < 3; ++lane) {
      const Columns columns(*data, {.step = step, .lane = lane});
      for (std::size_t row = 0; row < 3; ++row) {
        const auto source = static_cast<std::size_t>(columns.sources[row]);
        ++read.at(source);
        CHECK(columns.row(row) ==
              std::vector<std::int32_t>(kRow, static_cast<std::int32_t>(source) + 1));
      }
    }
  }
  // 27 blocks of 9 rows.
  CHECK(read == std::vector<std::uint64_t>{135, 81, 27});
  for (std::size_t source = 0; source < 3; ++source) {
    CHECK(data->facts().sources[source].rows_read(27) == read[source]);
  }
  // An evaluation reads the sources in turn.
  const Columns evaluated(*data, {.pass = engine::kEvaluation, .lane = 1});
  CHECK(evaluated.sources == std::vector<std::int32_t>{0, 1, 2});
}

TEST_CASE("mixed lanes: one source alone reads rows of its directory, each once an epoch",
          "[data][mixed_lanes][ST-11]") {
  const test::TempDirectory directory;
  test::write_rows(directory / "rows");
  const auto data = opened(config_of({{.dir = in(directory, "rows")}}));
  std::set<std::vector<std::int32_t>> seen;
  const std::uint64_t rows = data->facts().training_rows;
  for (std::uint64_t row = 0; row < rows; ++row) {
    const auto lane = static_cast<std::int64_t>(row / 3);
    seen.insert(Columns(*data, {.step = lane / 3, .lane = lane % 3}).row(row % 3));
  }
  // The block that holds the last row begins the next epoch.
  CHECK(seen.size() + 9 > rows);
  CHECK(seen.size() <= rows);
}

TEST_CASE("mixed lanes: what a step counts is what its lanes hold", "[data][mixed_lanes]") {
  const test::TempDirectory directory;
  test::write_rows(directory / "first");
  test::write_rows(directory / "second", {.documents = 25, .trained = 3, .weights = false});
  const auto data = opened(config_of({{.dir = in(directory, "first"), .weight = 0.7},
                                      {.dir = in(directory, "second"), .weight = 0.3}}));
  for (std::int64_t step = 0; step < 12; ++step) {
    engine::RowCount found;
    for (std::int64_t lane = 0; lane < 3; ++lane) {
      const Columns columns(*data, {.step = step, .lane = lane});
      for (std::size_t i = 0; i < columns.targets.size(); ++i) {
        found.trained += columns.targets[i] >= 0 ? 1 : 0;
        found.weight += static_cast<double>(columns.weights[i]);
      }
    }
    const engine::RowCount counted = data->count(step).value();
    CHECK(counted.trained == found.trained);
    CHECK(counted.weight == Approx(found.weight));
  }
}

TEST_CASE("mixed lanes: every document that a run reads has its reference, found once",
          "[data][mixed_lanes]") {
  const test::TempDirectory directory;
  test::write_rows(directory / "a", {.kind = "preference", .documents = 40, .weights = false});
  test::write_rows(directory / "b", {.kind = "preference", .documents = 15, .weights = false});
  auto config = config_of(
      {{.dir = in(directory, "a"), .weight = 2}, {.dir = in(directory, "b"), .weight = 1}});
  config.objective.name = "dpo";
  for (const std::int64_t steps : {2, 30}) {
    config.run.steps = steps;
    const auto data = opened(config);
    const ReferenceRows reference = data->facts().reference;
    std::map<std::int64_t, int> found;
    for (std::int64_t command = 0; command < reference.commands; ++command) {
      for (std::int64_t lane = 0; lane < 3; ++lane) {
        const Columns columns(*data, {.pass = engine::kReference, .step = command, .lane = lane});
        for (const engine::LaneSequence& sequence : columns.sequences) {
          if (sequence.rows == 0) {
            break;
          }
          ++found[sequence.document];
          CHECK(sequence.document < reference.documents);
        }
      }
    }
    CHECK(std::ranges::all_of(found, [](const auto& each) { return each.second == 1; }));
    const auto check_known = [&](const engine::LaneWork& work) {
      std::map<std::int64_t, std::set<std::int64_t>> sides;
      for (const engine::LaneSequence& sequence : Columns(*data, work).sequences) {
        if (sequence.rows == 0) {
          break;
        }
        CHECK(found.contains(sequence.document));
        sides[sequence.item].insert(sequence.document);
      }
      // Pairs of two sources are never taken for one; a row that a lane has twice is one pair.
      CHECK(std::ranges::all_of(sides, [](const auto& pair) { return pair.second.size() == 2; }));
    };
    for (std::int64_t lane = 0; lane < 3; ++lane) {
      for (std::int64_t step = 0; step < steps; ++step) {
        check_known({.step = step, .lane = lane});
      }
    }
    for (std::int64_t lane = 0; lane < config.eval.lanes; ++lane) {
      check_known({.pass = engine::kEvaluation, .lane = lane});
    }
  }
}

TEST_CASE("mixed lanes: sources that do not go together are refused in one line",
          "[data][mixed_lanes]") {
  const test::TempDirectory directory;
  test::write_rows(directory / "chat");
  test::write_rows(directory / "text", {.kind = "text"});
  test::write_rows(directory / "long", {.row_length = 32});
  test::write_rows(directory / "small", {.vocab_size = 50});
  test::write_rows(directory / "pairs", {.kind = "preference", .weights = false});
  write_plain(in(directory, "tokens"), 9, 1);
  const auto check = [&](const std::string& second, const std::vector<std::string>& parts) {
    INFO(second);
    check_refused(config_of({{.dir = in(directory, "chat")}, {.dir = in(directory, second)}}),
                  parts);
  };
  check("text", {"data.sources[1].dir", "kind \"text\"", "kind \"chat\""});
  check("long", {"32"});
  check("small", {"data.sources[1].dir", "another tokenizer"});
  check("pairs", {"preference"});
  check("tokens", {"holds no packed rows"});
  check("missing", {"missing"});
}

TEST_CASE("mixed lanes: a source that ends before the run does is refused, and told where",
          "[data][mixed_lanes]") {
  const test::TempDirectory directory;
  write_plain(in(directory, "a"), 60, 1);
  write_plain(in(directory, "b"), 20, 2);
  auto config = config_of({{.dir = in(directory, "a"), .weight = 2},
                           {.dir = in(directory, "b"), .weight = 1, .max_epochs = 3}});
  config.objective.name = "pretrain";
  config.run.steps = 20;  // 3 rows of each step are b's.
  opened(config);
  config.run.steps = 21;
  check_refused(config, {"data.sources[1].max_epochs", "20 training rows", "3 epochs", "step 21",
                         "3.15", "run.steps = 20"});
}

}  // namespace train::data::mixed_lanes_test
