// A kind of layer that comes with its own block alone: all that a run does to a model works with
// it.

#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/generate/text_generator.hpp"
#include "engine/model/initial_weights.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "kernels/head/head_loss.hpp"
#include "tests/engine/model/layer_runs.hpp"
#include "tests/engine/rank/small_model.hpp"
#include "tests/support/blocks/moving_average.hpp"

namespace train::engine::layer_kind_test {
namespace {

using Catch::Matchers::Contains;
using testing::MovingAverageSpec;
using testing::run;
using testing::Text;
using testing::Trace;
using Options = WorldStep::Options;

/// A small model whose second layer has a moving average in the place of attention.
ModelSpec mixed_model() {
  ModelSpec spec = testing::small_shape(Architecture::enoki);
  spec.layers[1].branches[0].block = std::make_shared<const MovingAverageSpec>();
  return spec;
}

/// The same with a matrix of which a token uses a quarter.
struct SparseSpec final : MovingAverageSpec {
  [[nodiscard]] std::unique_ptr<Block> make(const BlockContext& context,
                                            const ModelSpec& model) const override {
    context.parameters.add({.name = context.prefix + "experts.weight",
                            .shape = {64, model.embedding_dim},
                            .linear = true,
                            .used_share = 0.25});
    return MovingAverageSpec::make(context, model);
  }
};

Options options_of(const ModelSpec& model) {
  Options options = testing::small_options(Architecture::enoki);
  options.model = model;
  options.batch.lanes = 4;
  options.eval_lanes = 3;
  return options;
}

}  // namespace

TEST_CASE("layer kind: the gradient is the slope of the loss", "[engine][layer_kind]") {
  Text text(mixed_model());
  for (const std::size_t unit : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    const auto [expected, found] = text.slopes(unit);
    CAPTURE(unit);
    CHECK(found == Approx(expected).epsilon(2e-3));
  }
}

TEST_CASE("layer kind: neither ranks nor what is computed again show", "[engine][layer_kind]") {
  const Trace alone = run(options_of(mixed_model()));
  REQUIRE(alone.losses.back() < alone.losses.front());
  CHECK(alone.digests != run(options_of(testing::small_shape(Architecture::enoki))).digests);
  for (const std::int64_t ranks : {1, 2, 3, 4}) {
    for (const char* strategy : {"none", "full"}) {
      for (const char* part : {"block", "mlp", "moving average", "attention"}) {
        CAPTURE(ranks, strategy, part);
        Options options = options_of(mixed_model());
        options.parallel.ranks = ranks;
        options.parallel.strategy = strategy;
        options.memory.activation_checkpointing = "all";
        options.memory.checkpointed_part = part;
        CHECK(run(options) == alone);
      }
    }
  }
}

TEST_CASE("layer kind: blocks' sums are means over all lanes, of one name together",
          "[engine][layer_kind]") {
  const Trace one = run(options_of(mixed_model()), 1);
  REQUIRE(one.metrics.size() == 2);  // A step's and an evaluation's.
  CHECK(one.metrics[0] > 0.0);
  CHECK(one.metrics[1] > 0.0);
  CHECK(run(options_of(testing::small_shape(Architecture::enoki))).metrics.empty());
  ModelSpec both = mixed_model();
  both.layers[0].branches[0].block = both.layers[1].branches[0].block;
  CHECK(both.block_sums() == std::vector<std::string>{"mean_square", "mean_square"});
  CHECK(block_metrics(both) == std::vector<std::string>{"mean_square"});
  // What both read has the same norm, whose weights are one: LayerNorm's rows have mean square 1.
  Options options = options_of(both);
  options.seq_len = 1;
  CHECK(run(options, 1).metrics[0] == Approx(1.0).epsilon(1e-3));
}

TEST_CASE("layer kind: any number of branches, and two of a kind in a layer",
          "[engine][layer_kind]") {
  ModelSpec spec = mixed_model();
  LayerSpec& layer = spec.layers[0];
  BranchSpec branch = layer.branches[0];
  branch.pre->name = "ln_3";
  auto average = std::make_shared<MovingAverageSpec>();
  average->weight = "other_mix";
  branch.block = average;
  layer.branches.push_back(branch);
  spec.layers[1].branches.push_back(branch);  // Its first branch is of the same kind.
  spec.layers[1].parallel = GENERATE(false, true);
  Text text(spec);
  for (const std::size_t unit : {std::size_t{1}, std::size_t{2}}) {
    const auto [expected, found] = text.slopes(unit);
    CHECK(found == Approx(expected).epsilon(2e-3));
  }
  const Trace alone = run(options_of(spec));
  for (const char* part : {"block", "mlp", "moving average", "attention"}) {
    Options options = options_of(spec);
    options.memory.activation_checkpointing = "all";
    options.memory.checkpointed_part = part;
    CAPTURE(part);
    CHECK(run(options) == alone);
  }
}

TEST_CASE("layer kind: a parameter of three dimensions, with initial values and a rate of its own",
          "[engine][layer_kind][parameter]") {
  const auto model = [](double lr_scale) {
    MovingAverageSpec average;
    average.shape = {4, 2, 2};
    average.init = Initializer::uniform(0.5, 1.5);
    average.lr_scale = lr_scale;
    ModelSpec spec = testing::small_shape(Architecture::enoki);
    spec.layers[1].branches[0].block = std::make_shared<const MovingAverageSpec>(average);
    return spec;
  };
  const Trace alone = run(options_of(model(0.25)));
  REQUIRE(alone.losses.back() < alone.losses.front());
  CHECK(alone.digests != run(options_of(model(1.0))).digests);
  for (const std::int64_t ranks : {2, 3, 4}) {
    for (const char* strategy : {"none", "optimizer", "gradient", "full"}) {
      CAPTURE(ranks, strategy);
      Options options = options_of(model(0.25));
      options.parallel.ranks = ranks;
      options.parallel.strategy = strategy;
      CHECK(run(options) == alone);
    }
  }
}

TEST_CASE("layer kind: a parameter that stays in fp32 where the others are bf16",
          "[engine][layer_kind][parameter][P1]") {
  const auto model = [](bool exact, bool frozen) {
    MovingAverageSpec average;
    average.shape = {4, 2, 2};
    average.init = Initializer::uniform(0.5, 1.5);
    average.exact = exact;
    ModelSpec spec = testing::small_shape(Architecture::enoki);
    spec.layers[1].branches[0].block = std::make_shared<const MovingAverageSpec>(average);
    if (frozen) {
      spec.frozen = {"*mix.weight"};
    }
    return spec;
  };
  const bool frozen = GENERATE(false, true);
  const auto options_with = [&](bool exact, const char* compute) {
    Options options = options_of(model(exact, frozen));
    options.precision.compute = compute;
    return options;
  };
  CHECK(run(options_with(true, "fp32")) == run(options_with(false, "fp32")));
  const Trace alone = run(options_with(true, "bf16"));
  CHECK(alone.digests != run(options_with(false, "bf16")).digests);
  for (const std::int64_t ranks : {2, 3, 4}) {
    for (const char* strategy : {"none", "optimizer", "gradient", "full"}) {
      CAPTURE(frozen, ranks, strategy);
      Options options = options_with(true, "bf16");
      options.parallel.ranks = ranks;
      options.parallel.strategy = strategy;
      CHECK(run(options) == alone);
    }
  }
  Options kept = options_with(true, "bf16");
  kept.parallel.ranks = 4;
  kept.parallel.strategy = "full";
  kept.parallel.reshard = "2";
  CHECK(run(kept) == alone);
}

TEST_CASE("layer kind: Muon takes slices of three dimensions for matrices, each at its owner",
          "[engine][layer_kind][parameter][P1]") {
  const auto options_with = [](std::vector<std::int64_t> shape) {
    MovingAverageSpec average;
    average.shape = std::move(shape);
    average.init = Initializer::uniform(0.5, 1.5);
    average.muon = true;
    ModelSpec spec = testing::small_shape(Architecture::enoki);
    spec.layers[1].branches[0].block = std::make_shared<const MovingAverageSpec>(average);
    Options options = options_of(spec);
    options.optimizer.name = "muon";
    return options;
  };
  const Trace alone = run(options_with({4, 2, 2}));
  REQUIRE(alone.losses.back() < alone.losses.front());
  CHECK(alone.digests != run(options_with({4, 4})).digests);
  for (const std::int64_t ranks : {2, 3, 4}) {
    for (const char* strategy : {"none", "optimizer", "gradient", "full"}) {
      CAPTURE(ranks, strategy);
      Options options = options_with({4, 2, 2});
      options.parallel.ranks = ranks;
      options.parallel.strategy = strategy;
      CHECK(run(options) == alone);
    }
  }
  const auto plan = plan_of(options_with({4, 2, 2}));
  REQUIRE(plan);
  for (const ShardGroup& group : plan->groups()) {
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      CHECK((group.parameters[i].shape.size() != 3 || group.owners[i] == kCutByRows));
    }
  }
}

TEST_CASE("layer kind: its memory is planned, its parameters and FLOPs are counted",
          "[engine][layer_kind]") {
  const ModelSpec spec = mixed_model();
  for (const char* part : {"block", "mlp", "moving average", "attention"}) {
    const ActivationOptions options{.checkpointing = {1, part}};
    CHECK(planned_activation_bytes(spec, 3, 16, true, options) ==
          Model(spec, kernels::cpu_backend(), 3, 16, true, options).activation_bytes());
  }
  const WorldStep world(kernels::cpu_backend(), options_of(spec));
  CHECK(testing::state_of(world.rank(0), "model.transformer.h.1.mix.weight").size() == 16);
  const ModelSpec attention = testing::small_shape(Architecture::enoki);
  // Four matrices of 16 x 16 and two norms of heads of 8 make place for 16 weights.
  CHECK(count_parameters(attention).total - count_parameters(spec).total ==
        4 * 16 * 16 + 2 * 8 - 16);
  CHECK(flops_per_token(attention, 24) - flops_per_token(spec, 24) ==
        Approx(6.0 * 4 * 16 * 16 + 12.0 * 16 * 12));
  ModelSpec sparse = spec;
  sparse.layers[1].branches[0].block = std::make_shared<const SparseSpec>();
  CHECK(flops_per_token(sparse, 24) - flops_per_token(spec, 24) == Approx(6.0 * 16 * 16));
  CHECK(block_sizes(spec.layers[1]) == "mean of 3, MLP 40");
  CHECK(spec.widest_head() == 8);
}

}  // namespace train::engine::layer_kind_test
