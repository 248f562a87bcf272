#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "engine/rank/exec/rank_memory.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "tests/engine/rank/small_model.hpp"

namespace train::engine::pair_objective_test {
namespace {

using Options = WorldStep::Options;
using FillLane = WorldStep::FillLane;

constexpr const char* kObjectives[] = {"dpo", "dpo_norm", "simpo", "wpo", "orpo"};

/// A pair: a prompt and two answers that a seed decides.
struct Pair {
  std::int64_t number;
  std::int64_t prompt;
  std::int64_t chosen;
  std::int64_t rejected;
};

Options pair_options(const std::string& name) {
  Options options = testing::small_options(Architecture::dstar_qwen3);
  options.objective.name = name;
  options.objective.beta = name == "simpo" ? 2.0 : 0.1;
  options.batch.lanes = 4;
  options.batch.micro_batch = 1;
  options.eval_lanes = 3;
  options.reference_documents = 64;
  return options;
}

/// Fills `slot` with pairs from row `first` on, and padding behind them.
void pack(const Options& options, const LaneSlot& slot, const std::vector<Pair>& pairs,
          bool prompt_targets) {
  const auto fill = [&](std::size_t at, std::int32_t token, std::int32_t position) {
    slot.tokens[at] = token;
    slot.targets[at] = -1;
    slot.positions[at] = position;
    slot.weights[at] = 0.0F;
  };
  std::size_t at = 0;
  std::size_t next = 0;
  for (const Pair& pair : pairs) {
    for (const std::int32_t side : {0, 1}) {
      const std::int64_t length = pair.prompt + (side == 0 ? pair.chosen : pair.rejected);
      const auto token = [&](std::int64_t i) {
        const std::int64_t seed = pair.number * 7 + (i < pair.prompt ? 0 : 1 + side);
        return static_cast<std::int32_t>((seed + i * i) % 41);
      };
      slot.sequences[next++] = {.item = pair.number,
                                .document = 2 * pair.number + side,
                                .first = static_cast<std::int32_t>(at),
                                .rows = static_cast<std::int32_t>(length),
                                .side = side};
      for (std::int64_t i = 0; i < length; ++i, ++at) {
        fill(at, token(i), static_cast<std::int32_t>(i));
        const bool trained = i + 1 >= pair.prompt && i + 1 < length;
        if (trained || (prompt_targets && i + 1 < length)) {
          slot.targets[at] = token(i + 1);
          slot.weights[at] = trained ? 1.0F : 0.0F;
        }
      }
    }
  }
  if (next < slot.sequences.size()) {
    slot.sequences[next] = {};
  }
  const auto length = static_cast<std::size_t>(options.seq_len);
  for (std::int32_t position = 0; at < length; ++at, ++position) {
    fill(at, 0, position);
  }
}

/// Two pairs in even lanes, one in odd ones; 24 tokens.
std::vector<Pair> pairs_of(std::int64_t lane) {
  std::vector<Pair> pairs = {{2 * lane, 2, 3, 4 + lane % 3}};
  if (lane % 2 == 0) {
    pairs.push_back({2 * lane + 1, 1, 5, 2});
  }
  return pairs;
}

FillLane packed_pairs(const Options& options) {
  return [options](std::int64_t /*step*/, std::int64_t lane, const LaneSlot& slot) {
    pack(options, slot, pairs_of(lane), options.objective.name == "orpo");
  };
}

Options with_pairs(Options options) {
  options.step_weight = [lanes = options.batch.lanes](std::int64_t, std::size_t) {
    double pairs = 0.0;
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      pairs += static_cast<double>(pairs_of(lane).size());
    }
    return pairs;
  };
  return options;
}

std::uint64_t bits(double value) { return std::bit_cast<std::uint64_t>(value); }

struct Trace {
  std::vector<std::uint64_t> numbers;
  std::vector<std::uint64_t> digests;

  void add(double value) { numbers.push_back(bits(value)); }
  friend bool operator==(const Trace&, const Trace&) = default;
};

void compute_reference(WorldStep& world, kernels::Stream& stream, const FillLane& fill) {
  if (needs_reference(world.rank(0).rank_plan().objective())) {
    world.compute_reference(stream, 0, fill);
  }
}

Trace run(const Options& options, const FillLane& fill, int steps = 3) {
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  const bool live = options.objective.reference == "live";
  if (!live) {
    compute_reference(world, *stream, fill);
  }
  Trace trace;
  for (int step = 0; step < steps; ++step) {
    if (live) {
      world.compute_reference(*stream, step, fill);
    }
    const StepResult result = world.run(*stream, step, fill);
    REQUIRE_FALSE(result.nonfinite);
    trace.add(result.loss);
    trace.add(result.grad_norm);
    REQUIRE(result.metrics.size() == 6);
    for (const double metric : result.metrics) {
      trace.add(metric);
    }
    trace.digests.push_back(world.digest());
  }
  const EvaluationResult evaluation = world.evaluate(*stream, fill);
  trace.add(evaluation.cross_entropy);
  for (const double metric : evaluation.metrics) {
    trace.add(metric);
  }
  return trace;
}

}  // namespace

TEST_CASE("pair objective: at the first step DPO's loss is ln 2 and no margin moves",
          "[engine][objective]") {
  const std::string loss = GENERATE("sigmoid", "robust");
  const std::string reference = GENERATE("cache", "live");
  const std::size_t pairs = GENERATE(1, 2);  // Of an even lane: alone, or packed.
  CAPTURE(loss, reference, pairs);
  Options options = with_pairs(pair_options("dpo"));
  options.objective.loss = loss;
  options.objective.reference = reference;
  const FillLane fill = [&](std::int64_t, std::int64_t lane, const LaneSlot& slot) {
    auto of_lane = pairs_of(lane);
    of_lane.resize(std::min(pairs, of_lane.size()));
    pack(options, slot, of_lane, /*prompt_targets=*/false);
  };
  if (pairs == 1) {
    options.step_weight = [](std::int64_t, std::size_t) { return 4.0; };
  }
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  world.compute_reference(*stream, 0, fill);
  const StepResult first = world.run(*stream, 0, fill);
  CHECK(static_cast<float>(first.loss) == static_cast<float>(std::log(2.0)));
  for (const std::size_t zero : {0U, 1U, 2U, 3U}) {
    CHECK(first.metrics[zero] == 0.0);
  }
  CHECK(first.metrics[4] < 0.0);
  CHECK(first.grad_norm > 0.0);
  if (reference == "live") {
    world.compute_reference(*stream, 1, fill);
  }
  const StepResult second = world.run(*stream, 1, fill);
  CHECK(second.loss < first.loss);
  CHECK(second.metrics[3] > 0.0);
}

TEST_CASE("pair objective: ranks and strategy never show", "[engine][objective][EN-1]") {
  for (const char* name : kObjectives) {
    const Options options = with_pairs(pair_options(name));
    const FillLane fill = packed_pairs(options);
    const Trace alone = run(options, fill);
    REQUIRE(alone.digests.front() != alone.digests.back());
    for (const std::int64_t ranks : {2, 3, 4}) {
      for (const char* strategy : {"none", "full"}) {
        CAPTURE(name, ranks, strategy);
        Options split = options;
        split.parallel.ranks = ranks;
        split.parallel.strategy = strategy;
        CHECK(run(split, fill) == alone);
      }
    }
  }
}

TEST_CASE("pair objective: a live reference has the bits of a cached one",
          "[engine][objective][EN-1]") {
  for (const char* compute : {"fp32", "bf16"}) {
    for (const bool adapters : {false, true}) {
      Options options = with_pairs(pair_options("dpo"));
      options.precision.compute = compute;
      if (adapters) {
        options.lora = {.rank = 2, .alpha = 4.0};
      }
      const FillLane fill = packed_pairs(options);
      const Trace cached = run(options, fill);
      REQUIRE(cached.digests.front() != cached.digests.back());
      options.objective.reference = "live";
      CHECK(has_live_reference(options));
      CHECK((plan_memory(options).reference_bytes == 0) == adapters);
      for (const std::int64_t ranks : {1, 2, 3}) {
        for (const char* strategy : {"none", "optimizer", "full"}) {
          CAPTURE(compute, adapters, ranks, strategy);
          Options split = options;
          split.parallel.ranks = ranks;
          split.parallel.strategy = ranks == 1 ? "none" : strategy;
          CHECK(run(split, fill) == cached);
        }
      }
    }
  }
}

TEST_CASE("pair objective: a frozen unit has no second copy for a live reference",
          "[engine][objective]") {
  Options options = with_pairs(pair_options("dpo"));
  options.objective.reference = "live";
  const std::size_t whole = plan_memory(options).reference_bytes;
  CHECK(whole == plan_memory(options).parameters_bytes);
  options.train.freeze = {"embedding"};
  const MemoryPlan part = plan_memory(options);
  CHECK(part.reference_bytes > 0);
  CHECK(part.reference_bytes < whole);
  const WorldStep world(kernels::cpu_backend(), options);
  CHECK(world.rank(0).allocated() == part);
}

TEST_CASE("pair objective: a pair has the same bits packed and alone", "[engine][objective]") {
  for (const char* name : kObjectives) {
    CAPTURE(name);
    Options options = pair_options(name);
    options.batch.lanes = 1;
    options.eval_lanes = 1;
    const Pair pair{3, 2, 3, 4};
    const auto evaluate = [&](const std::vector<Pair>& pairs) {
      const FillLane fill = [&](std::int64_t, std::int64_t, const LaneSlot& slot) {
        pack(options, slot, pairs, options.objective.name == "orpo");
      };
      const auto stream = kernels::make_inline_stream(1);
      WorldStep world(kernels::cpu_backend(), options);
      compute_reference(world, *stream, fill);
      return world.evaluate(*stream, fill);
    };
    const Pair other{5, 1, 5, 4};
    const EvaluationResult alone = evaluate({pair});
    const EvaluationResult beside = evaluate({other});
    const EvaluationResult packed = evaluate({other, pair});
    CHECK(packed.cross_entropy == (beside.cross_entropy + alone.cross_entropy) / 2.0);
    CHECK(packed.metrics[4] == (beside.metrics[4] + alone.metrics[4]) / 2.0);
    CHECK(packed.targets == 2.0);
  }
}

TEST_CASE("pair objective: the plan's memory is what is allocated", "[engine][objective]") {
  for (const char* name : kObjectives) {
    CAPTURE(name);
    Options options = with_pairs(pair_options(name));
    options.parallel.ranks = 2;
    options.lane_sequences = 6;
    for (const char* strategy : {"none", "full"}) {
      for (const char* reference : {"cache", "live"}) {
        CAPTURE(strategy, reference);
        options.parallel.strategy = strategy;
        options.objective.reference = reference;
        const WorldStep world(kernels::cpu_backend(), options);
        CHECK(world.rank(0).allocated() == plan_memory(options));
      }
    }
  }
}

}  // namespace train::engine::pair_objective_test
