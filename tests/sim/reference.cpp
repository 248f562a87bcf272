#include "tests/sim/reference.hpp"

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <tuple>
#include <utility>

#include "actors/train/rank_setup.hpp"
#include "base/check.hpp"
#include "kernels/backend.hpp"
#include "tests/support/temp_directory.hpp"
#include "tests/support/world_step.hpp"

namespace train::sim {
namespace {

/// Reads the lane into its slot, and from there to where the loop wants it.
void read_lane(const actors::RankRuntime& rank, const engine::LaneWork& work, std::int32_t* tokens,
               std::int32_t* targets) {
  const Status read = rank.read_lane(work);
  TRAIN_CHECK(read.ok(), "{}", read.error().message);
  const auto& options = rank.engine->options();
  const auto count = static_cast<std::size_t>(options.batch.micro_batch * options.seq_len);
  std::copy_n(rank.engine->lanes().slot_tokens(work.slot), count, tokens);
  std::copy_n(rank.engine->lanes().slot_targets(work.slot), count, targets);
}

Reference compute(configs::RunConfig config) {
  config.parallel = {};
  const auto plan = actors::plan_run(config);
  TRAIN_CHECK(plan.ok(), "{}", plan.error().message);
  const auto rank = actors::make_rank(*plan, 0, {}, 1, actors::StreamKind::inline_);
  TRAIN_CHECK(rank.ok(), "{}", rank.error().message);
  engine::WorldStep loop(kernels::cpu_backend(), plan->engine);
  const auto stream = kernels::make_inline_stream(1);
  const auto reads = [&rank](engine::CommandKind kind) {
    return [&rank, kind](std::int64_t step, std::int64_t lane, std::int32_t* tokens,
                         std::int32_t* targets) {
      read_lane(**rank, {.kind = kind, .step = step, .lane = lane}, tokens, targets);
    };
  };
  Reference reference;
  for (std::int64_t step = 0; step <= config.run.steps; ++step) {
    reference.digests.push_back(loop.digest());
    if (config.eval.interval_steps > 0) {
      reference.evaluations[step] = loop.evaluate(*stream, reads(engine::CommandKind::evaluate));
    }
    if (step < config.run.steps) {
      reference.steps.push_back(loop.run(*stream, step, reads(engine::CommandKind::train_step)));
    }
  }
  return reference;
}

}  // namespace

const Reference& reference_of(const configs::RunConfig& config) {
  static std::map<std::tuple<std::int64_t, std::int64_t, bool>, Reference> known;
  const std::tuple key{config.batch.lanes, config.run.steps, config.eval.interval_steps > 0};
  const auto found = known.find(key);
  return found != known.end() ? found->second : known.emplace(key, compute(config)).first->second;
}

void write_tokens(const std::string& directory) {
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
