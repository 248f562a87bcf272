#include "data/lanes/lane_source.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "data/lanes/choice_lanes.hpp"
#include "data/lanes/open_lanes.hpp"
#include "tests/support/inputs/packed_rows.hpp"

namespace train::data {
namespace {

configs::RunConfig config_of(const std::filesystem::path& data) {
  configs::RunConfig config;
  config.data.dir = data.string();
  config.data.sequence_length = 16;
  config.objective.name = "sft";
  config.batch.lanes = 3;
  config.batch.micro_batch = 2;
  config.eval.lanes = 2;
  return config;
}

/// A lane's columns.
struct LaneColumns {
  std::vector<std::int32_t> tokens = std::vector<std::int32_t>(32);
  std::vector<std::int32_t> targets = std::vector<std::int32_t>(32);
  std::vector<std::int32_t> positions = std::vector<std::int32_t>(32);
  std::vector<float> weights = std::vector<float>(32);

  LaneColumns(const LaneSource& data, const engine::LaneWork& work) {
    REQUIRE(data.read(work, {tokens, targets, positions, weights}).ok());
  }
};

void check_refused(const configs::RunConfig& config, const std::string& part) {
  const auto data = open_lanes(config, 64);
  REQUIRE_FALSE(data.ok());
  INFO(data.error().message);
  CHECK(data.error().kind == ErrorKind::user);
  CHECK(data.error().message.find('\n') == std::string::npos);
  CHECK(data.error().message.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("lane source: what a step counts is what its lanes hold", "[actors][lane_source]") {
  for (const bool weights : {true, false}) {
    const test::TempDirectory directory;
    test::write_rows(directory.path(), {.weights = weights});
    const auto data = open_lanes(config_of(directory.path()), 64);
    REQUIRE(data.ok());
    const auto step_weight = LaneSource::step_weight(*data);
    for (std::int64_t step = 0; step < 12; ++step) {
      engine::RowCount found;
      for (std::int64_t lane = 0; lane < 3; ++lane) {
        const LaneColumns columns(**data, {.step = step, .lane = lane});
        for (std::size_t i = 0; i < columns.targets.size(); ++i) {
          const bool trained = columns.targets[i] >= 0;
          CHECK((columns.weights[i] > 0.0F) == trained);
          found.trained += trained ? 1 : 0;
          found.weight += static_cast<double>(columns.weights[i]);
        }
      }
      const engine::RowCount counted = (*data)->count(step).value();
      CHECK(counted.trained == found.trained);
      CHECK(counted.weight == Approx(found.weight));
      CHECK(step_weight(step, 0) == counted.weight);
      CHECK(counted.positions == 96);
      CHECK(counted.tokens > counted.trained);
      CHECK(counted.tokens <= counted.positions);
      CHECK((weights || counted.weight == static_cast<double>(counted.trained)));
    }
  }
}

TEST_CASE("lane source: of two streams each pass has its own rows, weights and drawn targets",
          "[actors][lane_source]") {
  const test::TempDirectory directory;
  test::write_rows(directory / "retain", {.weights = false});
  test::write_rows(directory / "forget", {.documents = 30, .weights = true});
  auto config = config_of(directory / "retain");
  const auto first = open_lanes(config, 64);
  config.data.dir = (directory / "forget").string();
  const auto second = open_lanes(config, 64);
  config.data.dir = (directory / "retain").string();
  config.objective.name = "sequential_unlearning";
  config.objective.first_layer = 0;
  check_refused(config, "data.forget_dir is missing");
  config.data.forget_dir = (directory / "forget").string();
  const auto passes = open_lanes(config, 64);
  REQUIRE((first.ok() && second.ok() && passes.ok()));
  CHECK((*passes)->fingerprint().value() != (*first)->fingerprint().value());
  // As evaluations with questions have it, too.
  const auto data = std::make_shared<const ChoiceLanes>(*passes, nullptr);
  for (std::int64_t step = 0; step < 8; ++step) {
    const double retained = (*first)->count(step)->weight;
    const double forgotten = (*second)->count(step)->weight;
    CHECK(LaneSource::step_weight(data)(step, 0) == retained);
    CHECK(LaneSource::step_weight(data)(step, 1) == forgotten);
    CHECK(data->count(step)->weight == retained + forgotten);
    engine::LaneWork work{.step = step, .lane = 1};
    const engine::LaneWork gradient = work;
    work.pass.number = 1;
    const LaneColumns retain(**first, work);
    const LaneColumns forget(**second, work);
    const LaneColumns kept(*data, gradient);
    const LaneColumns drawn(*data, work);
    CHECK((kept.tokens == retain.tokens && kept.targets == retain.targets));
    CHECK((drawn.tokens == forget.tokens && drawn.weights == forget.weights));
    CHECK(drawn.targets != forget.targets);
    for (std::size_t i = 0; i < drawn.targets.size(); ++i) {
      CHECK((drawn.targets[i] < 0) == (forget.targets[i] < 0));
    }
  }
}

TEST_CASE("lane source: a second pass without rows reads none, and counts none",
          "[actors][lane_source]") {
  const test::TempDirectory directory;
  test::write_rows(directory / "retain", {.weights = false});
  auto config = config_of(directory / "retain");
  const auto first = open_lanes(config, 64);
  config.objective.name = "sequential_unlearning";
  config.objective.first_layer = 0;
  config.objective.forget_loss = "max_update";
  const auto passes = open_lanes(config, 64);
  REQUIRE((first.ok() && passes.ok()));
  CHECK((*passes)->fingerprint().value() != (*first)->fingerprint().value());
  CHECK((*passes)->facts().training_rows == (*first)->facts().training_rows);
  CHECK((*passes)->facts().reference.live);  // The weights that began the run are read again.
  for (std::int64_t step = 0; step < 3; ++step) {
    const double retained = (*first)->count(step)->weight;
    CHECK(LaneSource::step_weight(*passes)(step, 0) == retained);
    CHECK(LaneSource::step_weight(*passes)(step, 1) == 0.0);
    CHECK((*passes)->count(step)->weight == retained);
    const engine::LaneWork gradient{.step = step, .lane = 1};
    engine::LaneWork second = gradient;
    second.pass.number = 1;
    CHECK(LaneColumns(**passes, gradient).tokens ==
          LaneColumns(**first, {.step = step, .lane = 1}).tokens);
    const std::vector<std::int32_t> tokens = LaneColumns(**passes, second).tokens;
    CHECK(std::count(tokens.begin(), tokens.end(), tokens.front()) ==
          static_cast<std::ptrdiff_t>(tokens.size()));
  }
}

TEST_CASE("lane source: an epoch reads every row once, and validation in order",
          "[actors][lane_source][ST-4]") {
  const test::TempDirectory directory;
  test::write_rows(directory.path());
  const auto split = RowSplit::open(directory.path(), "val", {});
  REQUIRE(split.ok());
  const auto data = open_lanes(config_of(directory.path()), 64);
  REQUIRE(data.ok());
  std::set<std::vector<std::int32_t>> seen;
  const std::uint64_t rows = (*data)->facts().training_rows;
  for (std::uint64_t row = 0; row < rows; row += 2) {
    const auto lane = static_cast<std::int64_t>(row / 2);
    const LaneColumns columns(**data, {.step = lane / 3, .lane = lane % 3});
    seen.insert({columns.tokens.begin(), columns.tokens.begin() + 16});
    if (row + 1 < rows) {
      seen.insert({columns.tokens.begin() + 16, columns.tokens.end()});
    }
  }
  CHECK(seen.size() == rows);
  const LaneColumns columns(**data, {.pass = engine::kEvaluation, .lane = 1});
  std::vector<std::int32_t> tokens(16), targets(16), positions(16);
  REQUIRE(split->read(2, {tokens, targets, positions}).ok());
  CHECK(std::equal(tokens.begin(), tokens.end(), columns.tokens.begin()));
  CHECK(std::equal(targets.begin(), targets.end(), columns.targets.begin()));
  CHECK(std::equal(positions.begin(), positions.end(), columns.positions.begin()));
}

TEST_CASE("lane source: an evaluation counts every validation row once, however many lanes it has",
          "[actors][lane_source][ST-4]") {
  const test::TempDirectory directory;
  std::filesystem::create_directory(directory.path() / "rows");
  test::write_rows(directory.path() / "rows");
  const auto split = RowSplit::open(directory.path() / "rows", "val", {});
  REQUIRE(split.ok());
  std::int64_t trained = 0;
  for (std::uint64_t row = 0; row < split->rows(); ++row) {
    trained += static_cast<std::int64_t>(split->trained_tokens(row));
  }
  // Five sequences of 16 tokens.
  std::string tokens;
  for (int i = 0; i < 81; ++i) {
    tokens += {static_cast<char>(i % 60), '\0'};
  }
  test::write_bytes(directory.path() / "train.bin", tokens);
  test::write_bytes(directory.path() / "val.bin", tokens);
  for (const std::int64_t lanes : {split->rows() / 2 + 1, split->rows() + 3, 40UL}) {
    for (const bool rows : {true, false}) {
      CAPTURE(lanes, rows);
      auto config = config_of(rows ? directory.path() / "rows" : directory.path());
      config.objective.name = rows ? "sft" : "pretrain";
      config.eval.lanes = lanes;
      const auto data = open_lanes(config, 64);
      REQUIRE(data.ok());
      std::int64_t found = 0;
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        const LaneColumns columns(**data, {.pass = engine::kEvaluation, .lane = lane});
        found += std::count_if(columns.targets.begin(), columns.targets.end(),
                               [](std::int32_t target) { return target >= 0; });
      }
      CHECK(found == (rows ? trained : 80));
    }
  }
}

TEST_CASE("lane source: data that the objective cannot read is refused in one line",
          "[actors][lane_source][mistakes]") {
  const test::TempDirectory directory;
  test::write_rows(directory / "chat");
  test::write_rows(directory / "pairs", {.kind = "preference"});
  test::write_rows(directory / "untrained", {.trained = 0});
  std::filesystem::create_directories(directory / "tokens");
  test::write_bytes(directory / "tokens/train.bin", std::string(400, '\1'));
  test::write_bytes(directory / "tokens/val.bin", std::string(400, '\1'));

  REQUIRE(open_lanes(config_of(directory / "chat"), 64).ok());
  auto config = config_of(directory / "chat");
  config.data.order = "dstar";
  check_refused(config, "leave data.order out");
  config = config_of(directory / "chat");
  config.data.sequence_length = 32;
  check_refused(config, "set data.sequence_length = 16");
  config = config_of(directory / "chat");
  config.objective.name = "pretrain";
  check_refused(config, "format is \"rows\"");
  check_refused(config_of(directory / "tokens"), "holds no packed rows");
  check_refused(config_of(directory / "nowhere"),
                "no such directory of rows; check data.dir, or make it");
  config = config_of(directory / "chat");
  config.objective.name = "sequential_unlearning";
  config.objective.first_layer = 0;
  config.data.forget_dir = (directory / "nowhere").string();
  check_refused(config, "no such directory of rows; check data.forget_dir");
  check_refused(config_of(directory / "pairs"), "rows of kind \"preference\"");
  check_refused(config_of(directory / "untrained"), "has a trained target");
}

namespace {

configs::RunConfig pairs_config(const std::filesystem::path& data) {
  test::write_rows(data, {.kind = "preference", .documents = 30, .weights = false});
  configs::RunConfig config = config_of(data);
  config.objective.name = "dpo";
  config.run.steps = 100;
  config.eval.interval_steps = 1;
  return config;
}

std::vector<engine::LaneSequence> sequences_of(const LaneSource& data, const engine::LaneWork& work,
                                               std::size_t rows = 2) {
  std::vector<std::int32_t> tokens(16 * rows), targets(16 * rows), positions(16 * rows);
  std::vector<float> weights(16 * rows);
  std::vector<engine::LaneSequence> sequences(8 * rows);
  REQUIRE(data.read(work, {tokens, targets, positions, weights, sequences}).ok());
  const auto end = std::find_if(sequences.begin(), sequences.end(),
                                [](const auto& sequence) { return sequence.rows == 0; });
  sequences.erase(end, sequences.end());
  for (const engine::LaneSequence& sequence : sequences) {
    CHECK(positions[static_cast<std::size_t>(sequence.first)] == 0);
  }
  return sequences;
}

}  // namespace

TEST_CASE("lane source: pairs are whole, and a step counts them", "[actors][lane_source]") {
  const test::TempDirectory directory;
  const auto data = open_lanes(pairs_config(directory.path()), 64);
  REQUIRE(data.ok());
  for (std::int64_t step = 0; step < 9; ++step) {
    double pairs = 0.0;
    for (std::int64_t lane = 0; lane < 3; ++lane) {
      const auto sequences = sequences_of(**data, {.step = step, .lane = lane});
      REQUIRE(sequences.size() % 2 == 0);
      for (std::size_t i = 0; i < sequences.size(); i += 2) {
        CHECK(sequences[i].side == 0);
        CHECK(sequences[i + 1].side == 1);
        CHECK(sequences[i].item == sequences[i + 1].item);
        CHECK(sequences[i].first + sequences[i].rows == sequences[i + 1].first);
        pairs += 1.0;
      }
    }
    CHECK((*data)->count(step).value().weight == pairs);
  }
}

TEST_CASE("lane source: an example and its mismatched document lie in one lane, and count as one",
          "[actors][lane_source]") {
  const test::TempDirectory directory;
  configs::RunConfig config = pairs_config(directory.path() / "pairs");
  test::write_rows(directory.path() / "kto", {.kind = "kto", .documents = 30, .weights = false});
  config.data.dir = (directory.path() / "kto").string();
  check_refused(config, "holds rows of kind \"kto\"");
  config.objective.name = "kto";
  // A row of 16 tokens has one or two examples, a lane two rows.
  check_refused(config,
                "compares each with the mean over its lane and needs 8 or more; set "
                "batch.micro_batch = ");
  config.batch.micro_batch = 8;
  const auto data = open_lanes(config, 64);
  REQUIRE(data.ok());
  for (std::int64_t step = 0; step < 3; ++step) {
    double examples = 0.0;
    for (std::int64_t lane = 0; lane < 3; ++lane) {
      const auto sequences = sequences_of(**data, {.step = step, .lane = lane}, 8);
      for (std::size_t i = 0; i < sequences.size(); i += 2, examples += 1.0) {
        CHECK(sequences[i].side == (sequences[i].item % 3 != 0 ? 0 : 1));
        CHECK(sequences[i + 1].side == 2);
        CHECK(sequences[i].item == sequences[i + 1].item);
      }
    }
    CHECK((*data)->count(step).value().weight == examples);
  }
}

TEST_CASE("lane source: a reference is asked about every document that the run reads",
          "[actors][lane_source]") {
  const test::TempDirectory directory;
  configs::RunConfig config = pairs_config(directory.path());
  for (const std::int64_t steps : {2, 100}) {
    config.run.steps = steps;
    const auto data = open_lanes(config, 64);
    REQUIRE(data.ok());
    const ReferenceRows rows = (*data)->facts().reference;
    const auto all_of = [&](const engine::PassPlan& pass, std::int64_t first, std::int64_t end,
                            std::int64_t lanes) {
      std::set<std::int64_t> documents;
      for (std::int64_t step = first; step < end; ++step) {
        for (std::int64_t lane = 0; lane < lanes; ++lane) {
          for (const auto& sequence :
               sequences_of(**data, {.pass = pass, .step = step, .lane = lane})) {
            CHECK(sequence.document < rows.documents);
            documents.insert(sequence.document);
          }
        }
      }
      return documents;
    };
    const auto known = all_of(engine::kReference, 0, rows.commands, 3);
    const auto trained = all_of(engine::kTrainStep, 0, steps, 3);
    const auto evaluated = all_of(engine::kEvaluation, 0, 1, 2);
    CHECK(std::includes(known.begin(), known.end(), trained.begin(), trained.end()));
    CHECK(std::includes(known.begin(), known.end(), evaluated.begin(), evaluated.end()));
    // An epoch reads each row once; a shorter run asks about what it reads alone.
    const auto epoch = static_cast<std::int64_t>(((*data)->facts().training_rows + 5) / 6);
    CHECK(rows.training_commands == std::min(steps, epoch));
  }
}

TEST_CASE("lane source: pairs and documents are not taken for each other",
          "[actors][lane_source]") {
  const test::TempDirectory directory;
  configs::RunConfig config = pairs_config(directory.path());
  config.objective.name = "sft";
  check_refused(config, "holds rows of kind \"preference\"");
  const test::TempDirectory chats;
  test::write_rows(chats.path());
  config = config_of(chats.path());
  config.objective.name = "dpo";
  check_refused(config, "\"chosen\" and \"rejected\"");
  const test::TempDirectory weighted;
  test::write_rows(weighted.path(), {.kind = "preference", .documents = 30, .weights = true});
  config.data.dir = weighted.path().string();
  check_refused(config, "its messages have weights");
}

}  // namespace train::data
