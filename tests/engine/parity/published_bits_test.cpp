// Every published family: the same bits at any number of ranks and any strategy. What the units of
// a family add (biases, gains, tied or learned tables, fused matrices) is sharded and exchanged
// with their rows, so each must be met here.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "engine/model/balance.hpp"
#include "engine/model/blocks/attention_block.hpp"
#include "tests/engine/parity/expert_models.hpp"
#include "tests/engine/parity/published_models.hpp"
#include "tests/engine/parity/state_space_models.hpp"
#include "tests/engine/rank/small_model.hpp"

namespace train::engine::published_bits_test {
namespace {

using Options = WorldStep::Options;

struct Split {
  std::int64_t ranks;
  const char* strategy;
  std::int64_t group = 0;
};

/// Whole copies, everything split, and two or one groups of ranks that split among themselves.
const std::vector<Split> kSplits = {{2, "none"},      {2, "full"}, {2, "hybrid", 2},
                                    {3, "none"},      {3, "full"}, {4, "none"},
                                    {3, "hybrid", 3}, {4, "full"}, {4, "hybrid", 2}};

/// 5 lanes of one sequence: no number of ranks but one divides them.
Options bits_options(const nlohmann::json& entry) {
  Options options = testing::published_options(entry);
  options.batch.lanes = 5;
  options.batch.micro_batch = 1;
  options.eval_lanes = 3;
  options.init.seed = 11;
  return options;
}

struct Trace {
  std::vector<double> losses;  ///< And the norms, of all steps; of the evaluation after them.
  std::vector<std::uint64_t> digests;

  friend bool operator==(const Trace&, const Trace&) = default;
};

Trace run(const Options& options) {
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  const auto text = testing::repeating_text(options);
  Trace trace;
  for (std::int64_t step = 0; step < 3; ++step) {
    const StepResult result = world.run(*stream, step, text);
    REQUIRE_FALSE(result.nonfinite);
    trace.losses.push_back(result.loss);
    trace.losses.push_back(result.grad_norm);
    trace.losses.insert(trace.losses.end(), result.unit_grad_norms.begin(),
                        result.unit_grad_norms.end());
    trace.digests.push_back(world.digest());
  }
  trace.losses.push_back(world.evaluate(*stream, text).cross_entropy);
  return trace;
}

void check_split(const Options& options, const Trace& alone, const Split& split) {
  CAPTURE(split.ranks, split.strategy, split.group);
  Options other = options;
  other.parallel.ranks = split.ranks;
  other.parallel.strategy = split.strategy;
  other.parallel.group = split.group;
  CHECK(run(other) == alone);
}

/// Each number of ranks with each strategy, all computed again or nothing.
void check_all_splits(const Options& options) {
  const Trace alone = run(options);
  bool again = alone.digests.back() % 2 == 0;
  for (const std::int64_t ranks : {1, 2, 3, 4}) {
    for (const char* strategy : {"none", "optimizer", "gradient", "full", "hybrid"}) {
      const bool hybrid = strategy == std::string("hybrid");
      if (hybrid && ranks % 2 != 0) {
        continue;
      }
      again = !again;
      CAPTURE(again);
      Options other = options;
      other.memory.activation_checkpointing = again ? "all" : "none";
      check_split(other, alone, {ranks, strategy, hybrid ? 2 : 0});
    }
  }
}

}  // namespace

TEST_CASE("published bits: a family each at another number of ranks and strategy",
          "[engine][world_step][published_bits][EN-1]") {
  std::size_t at = 0;
  for (const std::string& name : testing::published_cases()) {
    CAPTURE(name);
    const Options options = bits_options(testing::published_model(name));
    const Trace alone = run(options);
    CHECK(alone.digests.front() != alone.digests.back());
    check_split(options, alone, kSplits[at++ % kSplits.size()]);
  }
}

TEST_CASE("published bits: clipped queries, keys and values, whatever is computed again",
          "[engine][world_step][published_bits][EN-1]") {
  const nlohmann::json& entry = testing::expert_models().at("cases").at("olmoe_clipped");
  const Options options = bits_options(entry);
  REQUIRE(block_of<AttentionSpec>(options.model.layers.front()).clip == 0.5F);
  const Trace alone = run(options);
  nlohmann::json unclipped = entry;
  unclipped.at("config").at("clip_qkv") = nullptr;
  CHECK(run(bits_options(unclipped)).digests != alone.digests);
  for (const Split& split : kSplits) {
    for (const char* part : {"none", "block", "attention"}) {
      CAPTURE(part);
      Options other = options;
      if (std::string(part) != "none") {
        other.memory.activation_checkpointing = "all";
        other.memory.checkpointed_part = part;
      }
      check_split(other, alone, split);
    }
  }
}

TEST_CASE("published bits: every family at every number of ranks and strategy",
          "[.full][engine][world_step][published_bits][EN-1]") {
  for (const std::string& name : testing::published_cases()) {
    CAPTURE(name);
    const Options options = bits_options(testing::published_model(name));
    const Trace alone = run(options);
    for (const Split& split : kSplits) {
      check_split(options, alone, split);
    }
  }
}

TEST_CASE("published bits: experts at every number of ranks, strategy and recomputation",
          "[.full][engine][world_step][published_bits][EN-1]") {
  int corrected = 0;
  for (const std::string& name : testing::expert_cases()) {
    CAPTURE(name);
    Options options = bits_options(testing::expert_models().at("cases").at(name));
    corrected += set_choice_bias_rate(0.01, options.model).ok() ? 1 : 0;  // Such a bias moves.
    check_all_splits(options);
  }
  CHECK(corrected >= 2);
}

TEST_CASE("published bits: state spaces at every number of ranks, strategy and recomputation",
          "[.full][engine][world_step][published_bits][EN-1]") {
  for (const char* const name :
       {"mamba_70", "mamba_biases", "falcon_mamba_70", "mamba2_129", "mamba2_limits", "jamba",
        "jamba_dense", "hymba_groups", "hymba_packed", "hymba_70"}) {
    CAPTURE(name);
    check_all_splits(bits_options(testing::state_space_model(name)));
  }
}

}  // namespace train::engine::published_bits_test
