// Forward, backward and optimizer against an independent PyTorch implementation in float64
// (tests/reference). Tolerance: 1e-5 of the largest element of a tensor.

#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/engine/parity/parity_fixture.hpp"
#include "tests/engine/rank/small_model.hpp"
#include "tests/support/runs/world_step.hpp"

namespace train::engine::parity_test {
namespace {

using Json = nlohmann::json;
using testing::kTolerance;
using testing::load_fixture;
using testing::read_shape;
using testing::read_weights;
using testing::relative_error;

WorldStep::Options read_options(const Json& fixture) {
  WorldStep::Options options;
  options.model = read_shape(fixture.at("shape"));
  options.batch.lanes = fixture.at("lanes");
  options.batch.micro_batch = fixture.at("sequences");
  options.seq_len = fixture.at("seq_len");
  options.total_steps = 100;
  options.schedule.name = "constant";
  if (fixture.contains("adamw")) {
    const Json& adamw = fixture.at("adamw");
    options.optimizer.lr = adamw.at("lr");
    options.optimizer.beta1 = adamw.at("beta1");
    options.optimizer.beta2 = adamw.at("beta2");
    options.optimizer.eps = adamw.at("eps");
    options.optimizer.weight_decay = adamw.at("weight_decay");
    options.optimizer.grad_clip = adamw.at("grad_clip");
  }
  return options;
}

WorldStep::ReadLane read_lanes(const Json& fixture) {
  const auto tokens = fixture.at("tokens").get<std::vector<std::int32_t>>();
  const auto targets = fixture.at("targets").get<std::vector<std::int32_t>>();
  const std::int64_t rows =
      fixture.at("sequences").get<std::int64_t>() * fixture.at("seq_len").get<std::int64_t>();
  return [=](std::int64_t, std::int64_t lane, std::int32_t* out_tokens, std::int32_t* out_targets) {
    std::copy_n(tokens.begin() + lane * rows, rows, out_tokens);
    std::copy_n(targets.begin() + lane * rows, rows, out_targets);
  };
}

void set_weights(const RankEngine& rank, const Json& weights) {
  for (const UnitParameters& unit : rank.plan().units()) {
    for (const Parameter& parameter : unit.parameters) {
      const auto out = testing::state_of(rank, "model." + parameter.name);
      REQUIRE(static_cast<std::int64_t>(out.size()) == parameter.count());
      read_weights(weights, parameter, out.data());
    }
  }
}

const std::vector<std::string> kCases = {"enoki",     "enoki_no_qk_norm", "enoki_residual_scale",
                                         "qwen3",     "qwen3_no_gate",    "qwen3_wide_heads",
                                         "enoki_tied"};

}  // namespace

TEST_CASE("parity: parameters have the reference's names, order and sizes", "[engine][parity]") {
  const std::string name = GENERATE(from_range(kCases));
  CAPTURE(name);
  const Json fixture = load_fixture(name);
  std::vector<std::string> names;
  for (const UnitParameters& unit : describe_units(read_shape(fixture.at("shape")))) {
    for (const Parameter& parameter : unit.parameters) {
      names.push_back(parameter.name);
      CHECK(static_cast<std::size_t>(parameter.count()) ==
            fixture.at("gradients").at(parameter.name).size());
    }
  }
  CHECK(names == fixture.at("order").get<std::vector<std::string>>());
}

TEST_CASE("parity: loss and every gradient equal PyTorch's", "[engine][parity]") {
  const std::string name = GENERATE(from_range(kCases));
  const Json fixture = load_fixture(name);
  const auto stream = kernels::make_inline_stream(1);
  WorldStep step(kernels::cpu_backend(), read_options(fixture));
  set_weights(step.rank(0), fixture.at("weights_1024ths"));
  const StepResult result = step.run(*stream, 0, read_lanes(fixture));

  CHECK(result.loss == Approx(fixture.at("loss").get<double>()).epsilon(kTolerance));
  CHECK(result.cross_entropy ==
        Approx(fixture.at("cross_entropy").get<double>()).epsilon(kTolerance));
  for (const testing::GradientShard& shard : testing::gradients_of(step.rank(0))) {
    CAPTURE(name, shard.name);
    CHECK(relative_error(shard.data, fixture.at("gradients").at(shard.name)) < kTolerance);
  }
}

TEST_CASE("parity: three clipped AdamW steps equal PyTorch's", "[engine][parity]") {
  const std::string name = GENERATE("enoki", "qwen3");
  const Json fixture = load_fixture(name);
  const Json& adamw = fixture.at("adamw");
  const auto stream = kernels::make_inline_stream(1);
  WorldStep step(kernels::cpu_backend(), read_options(fixture));
  set_weights(step.rank(0), fixture.at("weights_1024ths"));
  for (std::int64_t s = 0; s < 3; ++s) {
    const StepResult result = step.run(*stream, s, read_lanes(fixture));
    const auto at = static_cast<std::size_t>(s);
    CHECK(result.loss == Approx(adamw.at("losses")[at].get<double>()).epsilon(kTolerance));
    CHECK(result.grad_norm == Approx(adamw.at("grad_norms")[at].get<double>()).epsilon(kTolerance));
  }
  for (const testing::GradientShard& shard : testing::gradients_of(step.rank(0))) {
    CAPTURE(name, shard.name);
    // Adam divides by the root of the second moment: where a gradient is all but zero, rounding
    // decides the update, so the weights agree less closely than the gradients.
    CHECK(relative_error(testing::state_of(step.rank(0), "model." + shard.name).data(),
                         adamw.at("weights").at(shard.name)) < 1e-4);
  }
}

TEST_CASE("parity: the logits of the last position equal PyTorch's", "[engine][parity]") {
  const std::string name = GENERATE(from_range(kCases));
  CAPTURE(name);
  const Json fixture = load_fixture(name);
  const ModelShape shape = read_shape(fixture.at("shape"));
  const std::int64_t seq_len = fixture.at("seq_len");
  const auto tokens = fixture.at("tokens").get<std::vector<std::int32_t>>();
  const auto stream = kernels::make_inline_stream(1);
  // Room for more than the lane has: a prompt is shorter than the longest text.
  Model model(shape, kernels::cpu_backend(), 1, seq_len + 3, /*with_gradient=*/false);
  std::vector<std::vector<float>> weights;
  for (const UnitParameters& unit : describe_units(shape)) {
    weights.emplace_back(static_cast<std::size_t>(unit.element_count));
    for (const Parameter& parameter : unit.parameters) {
      read_weights(fixture.at("weights_1024ths"), parameter,
                   weights.back().data() + parameter.offset);
    }
  }
  const auto memory_of = [&](std::size_t unit) {
    return UnitMemory{.weights = weights[unit].data(), .tied_weights = weights.front().data()};
  };
  const Lane lane{
      .sequences = 1, .seq_len = seq_len, .tokens = tokens.data(), .with_gradient = false};
  for (std::size_t u = 0; u < weights.size(); ++u) {
    model.unit(u).forward(*stream, memory_of(u), lane);
  }
  std::vector<float> logits(static_cast<std::size_t>(shape.vocab_size));
  model.row_logits(*stream, memory_of(weights.size() - 1), lane.seq_len - 1, 1, logits.data());
  stream->synchronize();
  CHECK(relative_error(logits.data(), fixture.at("last_logits")) < kTolerance);
}

}  // namespace train::engine::parity_test
