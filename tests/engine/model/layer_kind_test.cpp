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
#include "tests/engine/rank/small_model.hpp"
#include "tests/support/blocks/moving_average.hpp"

namespace train::engine::layer_kind_test {
namespace {

using Catch::Matchers::Contains;
using testing::MovingAverageSpec;
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

struct Trace {
  std::vector<double> losses;
  std::vector<std::uint64_t> digests;
  std::vector<double> metrics;  ///< Of all steps, then of the evaluation.

  friend bool operator==(const Trace&, const Trace&) = default;
};

Trace run(const Options& options, int steps = 3) {
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  Trace trace;
  for (int step = 0; step < steps; ++step) {
    const StepResult result = world.run(*stream, step, testing::repeating_text(options));
    REQUIRE_FALSE(result.nonfinite);
    trace.losses.push_back(result.loss);
    trace.digests.push_back(world.digest());
    trace.metrics.insert(trace.metrics.end(), result.metrics.begin(), result.metrics.end());
  }
  const auto evaluated = world.evaluate(*stream, testing::repeating_text(options)).metrics;
  trace.metrics.insert(trace.metrics.end(), evaluated.begin(), evaluated.end());
  return trace;
}

/// A model, its weights, and a lane of one text.
class Text {
 public:
  explicit Text(ModelSpec spec)
      : spec_(std::move(spec)), model_(spec_, kernels::cpu_backend(), 1, kLength, true) {
    for (const UnitParameters& unit : describe_units(spec_)) {
      weights_.emplace_back(static_cast<std::size_t>(unit.element_count));
      gradients_.emplace_back(static_cast<std::size_t>(unit.gradient_count()));
      for (const Parameter& parameter : unit.parameters) {
        fill_initial_rows(parameter, spec_, {.seed = 3, .init_std = 0.5}, 0, parameter.rows(),
                          std::span(weights_.back())
                              .subspan(static_cast<std::size_t>(parameter.offset),
                                       static_cast<std::size_t>(parameter.count())));
      }
    }
    for (std::int32_t i = 0; i < kLength; ++i) {
      tokens_.push_back((i * i * 3 + i) % 41);
      targets_.push_back((i * 5 + 2) % 41);
      positions_.push_back(i < 5 ? i : i - 5);  // Two documents.
    }
  }

  /// The loss, and unless `forward_only` the gradients too.
  double loss(bool forward_only) {
    const auto stream = kernels::make_inline_stream(1);
    kernels::LossSums sums;
    const Lane lane{.sequences = 1,
                    .seq_len = kLength,
                    .tokens = tokens_.data(),
                    .positions = positions_.data(),
                    .targets = targets_.data(),
                    .sums = &sums,
                    .with_gradient = !forward_only};
    const auto memory = [&](std::size_t unit) {
      return UnitMemory{.weights = weights_[unit].data(), .gradient = gradients_[unit].data()};
    };
    for (std::size_t unit = 0; unit < model_.unit_count(); ++unit) {
      model_.unit(unit).forward(*stream, memory(unit), lane);
    }
    for (std::size_t unit = model_.unit_count(); !forward_only && unit > 0; --unit) {
      model_.unit(unit - 1).backward(*stream, memory(unit - 1), lane);
    }
    return sums.cross_entropy;
  }

  /// Along the gradient of the unit `index`: what it says of the loss, and what the loss does.
  std::pair<double, double> slopes(std::size_t index) {
    (void)loss(false);
    const std::vector<float> gradient = gradients_[index];
    double square = 0.0;
    for (const float value : gradient) {
      square += static_cast<double>(value) * static_cast<double>(value);
    }
    const double step = 2e-3 / std::sqrt(square);
    const std::vector<float> weights = weights_[index];
    const auto moved = [&](double by) {
      for (std::size_t i = 0; i < weights.size(); ++i) {
        weights_[index][i] = weights[i] + static_cast<float>(by) * gradient[i];
      }
      return loss(true);
    };
    const double difference = moved(step) - moved(-step);
    weights_[index] = weights;
    return {square, difference / (2.0 * step)};
  }

 private:
  static constexpr std::int64_t kLength = 12;
  ModelSpec spec_;
  Model model_;
  std::vector<std::vector<float>> weights_, gradients_;
  std::vector<std::int32_t> tokens_, targets_, positions_;
};

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
