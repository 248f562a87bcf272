// The same bits at any number of ranks, strategy, gating and wrapping: loss, gradient norms and
// weights after each of three steps, and the evaluation after them.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "engine/rank/exec/rank_memory.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "tests/engine/rank/small_model.hpp"
#include "tests/support/inputs/reshape.hpp"

namespace train::engine::world_bits_test {
namespace {

using Options = WorldStep::Options;

struct Trace {
  std::vector<double> losses;
  std::vector<double> norms;  ///< Global, then by unit; of all steps.
  std::vector<std::uint64_t> digests;
  double evaluated = 0.0;
  double accuracy = 0.0;

  friend bool operator==(const Trace&, const Trace&) = default;
};

Options world_options() {
  auto options = testing::small_options(Architecture::enoki);
  options.model.vocab_size = 64;
  options.batch.lanes = 8;
  options.batch.micro_batch = 1;
  options.seq_len = 12;
  options.eval_lanes = 3;
  options.model.z_loss_coeff = 0.01F;
  options.optimizer.weight_decay = 0.1;
  options.optimizer.grad_clip = 0.5;
  return options;
}

Options with(Options options, std::int64_t ranks, const std::string& strategy,
             std::int64_t group = 0, const std::string& sync = "auto") {
  options.parallel.ranks = ranks;
  options.parallel.strategy = strategy;
  options.parallel.group = group;
  options.parallel.sync = sync;
  return options;
}

Trace run(const Options& options, int steps = 3) {
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  const auto text = testing::repeating_text(options);
  Trace trace;
  for (int step = 0; step < steps; ++step) {
    const StepResult result = world.run(*stream, step, text);
    REQUIRE_FALSE(result.nonfinite);
    trace.losses.push_back(result.loss);
    trace.norms.push_back(result.grad_norm);
    trace.norms.insert(trace.norms.end(), result.unit_grad_norms.begin(),
                       result.unit_grad_norms.end());
    trace.digests.push_back(world.digest());
  }
  const EvaluationResult evaluation = world.evaluate(*stream, text);
  trace.evaluated = evaluation.cross_entropy;
  trace.accuracy = evaluation.accuracy;
  return trace;
}

struct Split {
  const char* strategy;
  std::int64_t group;
};

std::vector<Split> splits_of(std::int64_t ranks) {
  std::vector<Split> splits = {
      {"none", 0}, {"optimizer", 0}, {"gradient", 0}, {"full", 0}, {"hybrid", ranks}};
  for (const std::int64_t group : {2, 4}) {
    if (ranks % group == 0 && group != ranks) {
      splits.push_back({"hybrid", group});
    }
  }
  return splits;
}

}  // namespace

TEST_CASE("world bits: ranks, strategy and gating never show", "[engine][world_step][EN-1]") {
  const Trace alone = run(world_options());
  REQUIRE(alone.digests.front() != alone.digests.back());
  for (const std::int64_t ranks : {1, 2, 3, 4, 5, 8}) {
    for (const Split split : splits_of(ranks)) {
      for (const char* sync : {"every_lane", "last_lane", "3"}) {
        CAPTURE(ranks, split.strategy, split.group, sync);
        CHECK(run(with(world_options(), ranks, split.strategy, split.group, sync)) == alone);
      }
    }
  }
}

TEST_CASE("world bits: each radix has its own bits, at any number of ranks",
          "[engine][world_step][EN-1]") {
  struct Case {
    std::vector<std::int64_t> radix;
    std::int64_t lanes;
    std::vector<std::string> syncs;
    int worlds;  ///< Layouts that the radix does not refuse.
  };
  const Case one = GENERATE(Case{{16}, 48, {"every_lane", "last_lane"}, 18},
                            Case{{4, 2}, 24, {"every_lane", "4", "last_lane"}, 30},
                            Case{{3}, 12, {"every_lane", "3", "last_lane"}, 33});
  auto options = world_options();
  options.batch.lanes = one.lanes;
  const Trace binary = run(options, 1);
  options.batch.radix = one.radix;
  const Trace alone = run(options, 1);
  CHECK(alone.digests != binary.digests);
  int worlds = 0;
  for (const std::int64_t ranks : {1, 2, 3, 4}) {
    for (const Split split : {Split{"none", 0}, Split{"full", 0}, Split{"hybrid", ranks}}) {
      for (const std::string& sync : one.syncs) {
        const Options here = with(options, ranks, split.strategy, split.group, sync);
        if (plan_of(here).ok()) {
          CAPTURE(one.radix, ranks, split.strategy, sync);
          CHECK(run(here, 1) == alone);
          ++worlds;
        } else {
          CHECK(sync != "every_lane");
        }
      }
    }
  }
  CAPTURE(one.radix);
  CHECK(worlds == one.worlds);
}

TEST_CASE("world bits: a number of lanes that no number of ranks divides",
          "[engine][world_step][EN-1]") {
  auto options = world_options();
  options.batch.lanes = 7;
  options.eval_lanes = 5;
  const Trace alone = run(options);
  for (const std::int64_t ranks : {2, 3, 4, 6, 7}) {
    for (const char* strategy : {"none", "full"}) {
      for (const char* sync : {"every_lane", "2"}) {
        CAPTURE(ranks, strategy, sync);
        CHECK(run(with(options, ranks, strategy, 0, sync)) == alone);
      }
    }
  }
}

TEST_CASE("world bits: resharding and gather credits never show", "[engine][world_step][EN-1]") {
  const Trace alone = run(world_options());
  for (const char* reshard : {"never", "after_forward", "2"}) {
    for (const std::int64_t credits : {1, 2, 4}) {
      for (const Split split : {Split{"full", 0}, Split{"hybrid", 4}}) {
        auto options = with(world_options(), split.group == 0 ? 4 : 8, split.strategy, split.group);
        options.parallel.reshard = reshard;
        options.parallel.gather_credits = credits;
        if (!plan_of(options)) {
          continue;
        }
        CAPTURE(reshard, credits, split.strategy);
        CHECK(run(options) == alone);
      }
    }
  }
}

TEST_CASE("world bits: wrapping and a strategy per unit never show", "[engine][world_step][EN-1]") {
  const Trace alone = run(world_options());
  using Patterns = std::vector<std::string>;
  for (const Patterns& wrapping :
       {Patterns{"by_size"}, Patterns{"head"}, Patterns{"block 1", "embedding"}}) {
    for (const char* strategy : {"none", "optimizer", "gradient", "full"}) {
      auto options = with(world_options(), 3, strategy);
      options.parallel.wrapping = wrapping;
      options.parallel.wrap_min_parameters = 2000;
      CAPTURE(wrapping.front(), strategy);
      REQUIRE(plan_of(options).value().groups().size() < 4);
      CHECK(run(options) == alone);
    }
  }
  auto mixed = with(world_options(), 4, "full");
  mixed.parallel.strategy_by_unit = {"embedding = none", "head = optimizer", "block 1 = gradient"};
  CHECK(run(mixed) == alone);
  mixed.parallel.group = 2;
  mixed.parallel.strategy_by_unit = {"embedding = hybrid", "head = gradient", "block 0 = none"};
  CHECK(run(mixed) == alone);
}

/// The matrices of the blocks, or every parameter there is.
std::vector<std::string> whole_parameters(const Options& options, bool all) {
  std::vector<std::string> names;
  for (const UnitParameters& unit : describe_units(options.model)) {
    for (const Parameter& parameter : unit.parameters) {
      if (all || (unit.name.rfind("block", 0) == 0 && !parameter.is_vector())) {
        names.push_back(parameter.name);
      }
    }
  }
  return names;
}

TEST_CASE("world bits: parameters with one owner never show",
          "[engine][world_step][optimizer][EN-1]") {
  for (const char* compute : {"fp32", "bf16"}) {
    auto options = world_options();
    options.precision.compute = compute;
    const Trace alone = run(options);
    for (const bool all : {false, true}) {
      options.whole_parameters = whole_parameters(options, all);
      for (const std::int64_t ranks : {1, 2, 3, 4, 8}) {
        for (const Split split : splits_of(ranks)) {
          for (const char* sync : {"every_lane", "last_lane"}) {
            CAPTURE(compute, all, ranks, split.strategy, split.group, sync);
            CHECK(run(with(options, ranks, split.strategy, split.group, sync), 3) == alone);
          }
        }
      }
    }
  }
}

TEST_CASE("world bits: owners and everything else that shards never show",
          "[engine][world_step][optimizer][EN-1]") {
  auto options = world_options();
  options.model.tie_embeddings = true;
  const Trace alone = run(options);
  options.whole_parameters = whole_parameters(options, false);
  for (const char* reshard : {"never", "after_forward", "2"}) {
    for (const Split split : {Split{"full", 0}, Split{"hybrid", 4}}) {
      auto world = with(options, split.group == 0 ? 4 : 8, split.strategy, split.group);
      world.parallel.reshard = reshard;
      CAPTURE(reshard, split.strategy);
      CHECK(run(world) == alone);
    }
  }
  auto mixed = with(options, 4, "full");
  mixed.parallel.group = 2;
  mixed.parallel.strategy_by_unit = {"embedding = none", "head = none", "block 1 = hybrid"};
  CHECK(run(mixed) == alone);
  mixed.parallel.wrapping = {"by_size"};
  mixed.parallel.strategy_by_unit.clear();
  CHECK(run(mixed) == alone);
}

TEST_CASE("world bits: tied embeddings", "[engine][world_step][EN-1]") {
  auto options = world_options();
  options.model.tie_embeddings = true;
  const Trace alone = run(options);
  CHECK(alone.digests != run(world_options()).digests);
  for (const std::int64_t ranks : {2, 3, 4}) {
    for (const Split split : splits_of(ranks)) {
      for (const char* reshard : {"after_forward", "never"}) {
        auto world = with(options, ranks, split.strategy, split.group);
        world.parallel.reshard = reshard;
        CAPTURE(ranks, split.strategy, split.group, reshard);
        CHECK(run(world) == alone);
      }
    }
  }
}

TEST_CASE("world bits: activation checkpointing and the other architecture",
          "[engine][world_step][EN-1]") {
  auto options = world_options();
  testing::reshape(options, [](ModelShape& shape) {
    shape.architecture = Architecture::dstar_qwen3;
    shape.output_gate = true;
  });
  const Trace alone = run(options);
  for (const char* checkpointing : {"all", "2"}) {
    for (const char* part : {"block", "attention", "mlp"}) {
      CAPTURE(checkpointing, part);
      options.memory.activation_checkpointing = checkpointing;
      options.memory.checkpointed_part = part;
      CHECK(run(options) == alone);
      CHECK(run(with(options, 3, "full")) == alone);
    }
  }
}

TEST_CASE("world bits: with bf16 compute any number of ranks does as one does",
          "[engine][world_step][EN-1]") {
  auto options = world_options();
  options.precision.compute = "bf16";
  const Trace alone = run(options);
  const Trace exact = run(world_options());
  CHECK(alone.digests != exact.digests);
  CHECK(alone.losses.back() == Approx(exact.losses.back()).epsilon(0.02));
  for (const std::int64_t ranks : {2, 3, 4}) {
    for (const Split split : splits_of(ranks)) {
      CAPTURE(ranks, split.strategy, split.group);
      CHECK(run(with(options, ranks, split.strategy, split.group)) == alone);
    }
  }
  options.parallel.reshard = "2";
  CHECK(run(with(options, 4, "full")) == alone);
}

TEST_CASE("world bits: bf16 reductions come close, and the strategy does not show",
          "[engine][world_step]") {
  const Trace exact = run(world_options());
  auto options = world_options();
  options.precision.reduce = "bf16";
  CHECK(run(options) == exact);
  for (const std::int64_t ranks : {2, 4}) {
    const Trace none = run(with(options, ranks, "none", 0, "every_lane"));
    CHECK(none.digests != exact.digests);
    for (std::size_t step = 0; step < exact.losses.size(); ++step) {
      CHECK(std::isfinite(none.losses[step]));
      CHECK(none.losses[step] == Approx(exact.losses[step]).epsilon(0.01));
    }
    for (const Split split : splits_of(ranks)) {
      CHECK(run(with(options, ranks, split.strategy, split.group, "every_lane")) == none);
    }
  }
}

TEST_CASE("world bits: determinism = run is fixed for one number of ranks",
          "[engine][world_step]") {
  auto options = world_options();
  const Trace world = run(options);
  options.precision.determinism = "run";
  bool differs = false;
  for (const std::int64_t ranks : {1, 2, 3}) {
    for (const char* strategy : {"none", "gradient", "full"}) {
      for (const char* sync : {"every_lane", "last_lane"}) {
        const Options one = with(options, ranks, strategy, 0, sync);
        const Trace first = run(one);
        CHECK(run(one) == first);
        CHECK(first.losses.back() == Approx(world.losses.back()).epsilon(1e-3));
        differs = differs || first.digests != world.digests;
      }
    }
  }
  CHECK(differs);
}

TEST_CASE("world step: a probe of many ranks finds the lane and the unit", "[engine][world_step]") {
  const auto* const strategy = GENERATE("none", "gradient", "full");
  auto options = with(world_options(), 3, strategy);
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  const auto text = testing::repeating_text(options);
  CHECK_FALSE(world.find_nonfinite(*stream, 0, text).found);
  const auto set_weight = [&](float value) {
    for (std::int64_t rank = 0; rank < 3; ++rank) {
      for (const StateView& view : world.rank(rank).state().views()) {
        if (view.name == "model.transformer.h.1.mlp.c_fc.weight" && view.first_row == 0) {
          reinterpret_cast<float*>(view.data)[5] = value;
        }
      }
    }
  };
  set_weight(INFINITY);
  const NonfiniteOrigin origin = world.find_nonfinite(*stream, 0, text);
  CHECK(origin.found);
  CHECK(origin.lane == 0);
  CHECK(origin.unit == 2);
  CHECK_FALSE(origin.backward);
  const std::uint64_t before = world.digest();
  CHECK(world.run(*stream, 0, text).nonfinite);
  CHECK(world.digest() == before);
}

TEST_CASE("world step: what a failure left in shared memory is no finding",
          "[engine][world_step]") {
  auto options = world_options();
  testing::reshape(options, [](ModelShape& shape) {
    shape.head_dim = 12;
    shape.embedding_dim = 24;  // The head's norm is followed by padding,
  });
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  // which in the gradient buffer is the place of token 1 of the embedding, the last group of a
  // lane.
  const auto text = [&](std::int64_t step, std::int64_t lane, std::int32_t* tokens,
                        std::int32_t* targets) {
    testing::repeating_text(options)(step, lane, tokens, targets);
    std::fill_n(tokens, options.seq_len, 1);
  };
  const auto weights = testing::state_of(world.rank(0), "model.transformer.h.0.mlp.c_fc.weight");
  const float before = weights[5];
  weights[5] = INFINITY;
  CHECK(world.run(*stream, 0, text).nonfinite);
  weights[5] = before;
  CHECK_FALSE(world.find_nonfinite(*stream, 0, text).found);
}

TEST_CASE("world step: each strategy splits what it says, to within a twentieth",
          "[engine][world_step][memory_plan]") {
  auto options = world_options();
  testing::reshape(options, [](ModelShape& shape) {
    shape.embedding_dim = 64;
    shape.head_dim = 32;
    shape.mlp_hidden = 256;
    shape.vocab_size = 256;
  });
  const MemoryPlan whole = plan_memory(options);
  const auto share = [](std::size_t part, std::size_t all) {
    return static_cast<double>(part) / static_cast<double>(all);
  };
  struct Row {
    const char* strategy;
    double parameters, gradients, optimizer;
  };
  constexpr double kSplit = 1.0 / 4.0;
  for (const Row row : {Row{"none", 1.0, 1.0, 1.0}, Row{"optimizer", 1.0, 1.0, kSplit},
                        Row{"gradient", 1.0, kSplit, kSplit}, Row{"full", kSplit, kSplit, kSplit},
                        Row{"hybrid", 0.5, 0.5, 0.5}}) {
    const auto split = with(options, 4, row.strategy, row.strategy[0] == 'h' ? 2 : 0);
    CAPTURE(row.strategy);
    const RankEngine rank(kernels::cpu_backend(), split);
    const MemoryPlan kept = rank.allocated();
    CHECK(kept == plan_memory(split));
    CHECK(share(kept.parameters_bytes, whole.parameters_bytes) ==
          Approx(row.parameters).epsilon(0.05));
    CHECK(share(kept.gradients_bytes, whole.gradients_bytes) ==
          Approx(row.gradients).epsilon(0.05));
    CHECK(share(kept.optimizer_bytes, whole.optimizer_bytes) ==
          Approx(row.optimizer).epsilon(0.05));
  }
}

}  // namespace train::engine::world_bits_test
