#include "tests/sim/reference.hpp"

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <tuple>
#include <utility>

#include "actors/train/runtime/rank_setup.hpp"
#include "base/check.hpp"
#include "data/rows/row_writer.hpp"
#include "kernels/backend.hpp"
#include "tests/sim/seed_plan.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/runs/world_step.hpp"

namespace train::sim {
namespace {

/// Reads lanes into a slot of `rank`, and from there to where the loop wants them.
engine::WorldStep::FillLane reads_of(const actors::RankRuntime& rank,
                                     const engine::PassPlan& pass) {
  return [&rank, pass](std::int64_t step, std::int64_t lane, const engine::LaneSlot& slot) {
    const Status read = rank.read_lane({.pass = pass, .step = step, .lane = lane});
    TRAIN_CHECK(read.ok(), "{}", read.error().message);
    const engine::LaneSlot columns = rank.engine->lanes().slot(0);
    std::copy(columns.tokens.begin(), columns.tokens.end(), slot.tokens.begin());
    std::copy(columns.targets.begin(), columns.targets.end(), slot.targets.begin());
    std::copy(columns.positions.begin(), columns.positions.end(), slot.positions.begin());
    std::copy(columns.weights.begin(), columns.weights.end(), slot.weights.begin());
    std::copy(columns.sequences.begin(), columns.sequences.end(), slot.sequences.begin());
  };
}

Reference compute(configs::RunConfig config) {
  config.parallel = {};
  const test::TempDirectory run(
      test::quick_directory());  // Where a rank notes what it compares with.
  config.run.dir = run.path().string();
  std::filesystem::create_directory(run / config.run.name);
  const auto plan = run::plan_run(config);
  TRAIN_CHECK(plan.ok(), "{}", plan.error().message);
  const auto rank = actors::make_rank(*plan, 0, {}, 1, actors::StreamKind::inline_);
  TRAIN_CHECK(rank.ok(), "{}", rank.error().message);
  engine::WorldStep loop(kernels::cpu_backend(), plan->engine);
  const auto stream = kernels::make_inline_stream(1);
  std::vector<engine::WorldStep::FillLane> streams;
  for (const engine::PassPlan& pass : (*rank)->engine->rank_plan().passes().step()) {
    if (pass.reduces()) {
      streams.push_back(reads_of(**rank, pass));
    }
  }
  Reference reference;
  for (std::int64_t step = 0; step <= config.run.steps; ++step) {
    reference.digests.push_back(loop.digest());
    if (config.eval.interval_steps > 0) {
      reference.evaluations[step] = loop.evaluate(*stream, reads_of(**rank, engine::kEvaluation));
    }
    if (step < config.run.steps) {
      reference.steps.push_back(loop.run_passes(*stream, step, streams));
    }
  }
  return reference;
}

}  // namespace

const Reference& reference_of(const configs::RunConfig& config) {
  static std::map<std::tuple<std::int64_t, std::int64_t, bool, std::string>, Reference> known;
  const std::tuple key{config.batch.lanes, config.run.steps, config.eval.interval_steps > 0,
                       describe_objective(config)};
  const auto found = known.find(key);
  return found != known.end() ? found->second : known.emplace(key, compute(config)).first->second;
}

namespace {

data::RowCounts write_documents(const std::filesystem::path& directory, const char* split,
                                int documents, std::mt19937_64 random) {
  auto writer = data::RowSplitWriter::create(
      directory, split,
      {.token_bytes = 2, .row_length = 8, .packing = data::Packing::bfd, .seed = 3});
  TRAIN_CHECK(writer.ok(), "{}", writer.error().message);
  for (int i = 0; i < documents; ++i) {
    data::RowText text;
    const std::size_t length = 3 + random() % 4;
    for (std::size_t at = 0; at < length; ++at) {
      text.tokens.push_back(static_cast<std::uint32_t>(random() % 32));
      text.trained.push_back(at > 0);
    }
    const Status added = writer->add(text, 0);
    TRAIN_CHECK(added.ok(), "{}", added.error().message);
  }
  const Status finished = writer->finish();
  TRAIN_CHECK(finished.ok(), "{}", finished.error().message);
  return writer->counts();
}

void write_stream(const std::filesystem::path& directory, std::uint64_t seed) {
  std::filesystem::create_directories(directory);
  const data::RowCounts train = write_documents(directory, "train", 50, std::mt19937_64(seed));
  const data::RowCounts val = write_documents(directory, "val", 10, std::mt19937_64(seed + 1));
  const Status written = data::write_row_facts(directory, {.kind = "chat",
                                                           .tokenizer = "bytes",
                                                           .vocab_size = 32,
                                                           .token_bytes = 2,
                                                           .row_length = 8,
                                                           .packing = "bfd",
                                                           .sources = {"made"},
                                                           .train = train,
                                                           .val = val});
  TRAIN_CHECK(written.ok(), "{}", written.error().message);
}

}  // namespace

void write_tokens(const std::string& directory) {
  write_stream(std::filesystem::path(directory) / "retain", 11);
  write_stream(std::filesystem::path(directory) / "forget", 21);
  std::mt19937_64 random(1);
  for (const auto& [name, tokens] : {std::pair{"train.bin", 801}, std::pair{"val.bin", 81}}) {
    std::string bytes;
    for (int i = 0; i < tokens; ++i) {
      bytes.push_back(static_cast<char>(random() % 32));
      bytes.push_back('\0');
    }
    test::write_bytes(std::filesystem::path(directory) / name, bytes);
  }
}

}  // namespace train::sim
