// The mixers of Mamba and Mamba-2 as layers: all that a run does to a model works with it.

#include "engine/model/blocks/state_space/mamba_block.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/blocks/state_space/mamba2_block.hpp"
#include "engine/model/initial_weights.hpp"
#include "kernels/head/head_loss.hpp"
#include "tests/engine/model/layer_runs.hpp"
#include "tests/engine/rank/small_model.hpp"

namespace train::engine::mamba_block_test {
namespace {

using testing::run;
using testing::Text;
using testing::Trace;
using Options = WorldStep::Options;

MambaSpec small_mixer(ScanNorms norms) {
  MambaSpec mixer;
  mixer.inner = 24;
  mixer.states = 4;
  mixer.step_rank = 3;
  mixer.norms = norms;
  mixer.step_init = Initializer::uniform(-0.5, 0.5);
  mixer.step_norm = "mixer.dt_layernorm";
  mixer.b_norm = "mixer.b_layernorm";
  mixer.c_norm = "mixer.c_layernorm";
  return mixer;
}

/// A small model whose second layer has a scan in the place of attention.
ModelSpec mixed_model(ScanNorms norms) {
  ModelSpec spec = testing::small_shape(Architecture::enoki);
  spec.layers[1].branches[0].block = std::make_shared<const MambaSpec>(small_mixer(norms));
  return spec;
}

/// Likewise with a scan of heads.
ModelSpec model_of_heads() {
  Mamba2Spec mixer;
  mixer.heads = 4;
  mixer.width = 6;
  mixer.groups = 2;
  mixer.states = 5;
  ModelSpec spec = testing::small_shape(Architecture::enoki);
  spec.layers[1].branches[0].block = std::make_shared<const Mamba2Spec>(mixer);
  return spec;
}

std::vector<ModelSpec> all_models() {
  return {mixed_model(ScanNorms::none), mixed_model(ScanNorms::plain),
          mixed_model(ScanNorms::weighted), model_of_heads()};
}

Options options_of(const ModelSpec& model) {
  Options options = testing::small_options(Architecture::enoki);
  options.model = model;
  options.batch.lanes = 4;
  options.eval_lanes = 3;
  return options;
}

std::vector<Parameter> parameters_of(const ModelSpec& spec) {
  for (const UnitParameters& unit : describe_units(spec)) {
    if (unit.name == "block 1") {
      return unit.parameters;
    }
  }
  return {};
}

const Parameter& named(const std::vector<Parameter>& parameters, const std::string& end) {
  const auto found = std::find_if(parameters.begin(), parameters.end(),
                                  [&](const Parameter& each) { return each.name.ends_with(end); });
  REQUIRE(found != parameters.end());
  return *found;
}

std::vector<float> initial_values(const Parameter& parameter, const ModelSpec& spec) {
  std::vector<float> values(static_cast<std::size_t>(parameter.count()));
  fill_initial_rows(parameter, spec, {.seed = 7}, 0, parameter.rows(), values);
  return values;
}

/// Logits of one lane of documents, whose rows have these positions.
std::vector<float> logits_of(const ModelSpec& spec, const std::vector<std::int32_t>& tokens,
                             const std::vector<std::int32_t>& positions) {
  const auto rows = static_cast<std::int64_t>(tokens.size());
  Model model(spec, kernels::cpu_backend(), 1, rows, /*with_gradient=*/false);
  const auto stream = kernels::make_inline_stream(1);
  const Lane lane{.sequences = 1,
                  .seq_len = rows,
                  .tokens = tokens.data(),
                  .positions = positions.data(),
                  .with_gradient = false};
  std::vector<std::vector<float>> weights;
  for (const UnitParameters& unit : describe_units(spec)) {
    weights.emplace_back(static_cast<std::size_t>(unit.element_count));
    for (const Parameter& parameter : unit.parameters) {
      fill_initial_rows(parameter, spec, {.seed = 3, .init_std = 0.5}, 0, parameter.rows(),
                        std::span(weights.back())
                            .subspan(static_cast<std::size_t>(parameter.offset),
                                     static_cast<std::size_t>(parameter.count())));
    }
  }
  for (std::size_t unit = 0; unit < model.unit_count(); ++unit) {
    model.unit(unit).forward(
        *stream, {.weights = weights[unit].data(), .tied_weights = weights.front().data()}, lane);
  }
  std::vector<float> logits(static_cast<std::size_t>(rows * spec.vocab_size));
  model.row_logits(*stream,
                   {.weights = weights.back().data(), .tied_weights = weights.front().data()}, 0,
                   rows, logits.data());
  stream->synchronize();
  return logits;
}

}  // namespace

TEST_CASE("mamba block: the gradient is the slope of the loss", "[engine][state_space]") {
  for (const ModelSpec& spec : all_models()) {
    Text text(spec);
    for (const std::size_t unit : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
      const auto [expected, found] = text.slopes(unit);
      CAPTURE(block_sizes(spec.layers[1]), unit);
      CHECK(found == Approx(expected).epsilon(2e-3));
    }
  }
}

TEST_CASE("mamba block: neither ranks nor what is computed again show",
          "[engine][state_space][P1]") {
  for (const ModelSpec& spec : all_models()) {
    const Trace alone = run(options_of(spec));
    REQUIRE(alone.losses.back() < alone.losses.front());
    for (const std::int64_t ranks : {1, 2, 3, 4}) {
      for (const char* strategy : {"none", "full"}) {
        for (const char* part : {"block", "mlp", "attention"}) {
          CAPTURE(block_sizes(spec.layers[1]), ranks, strategy, part);
          Options options = options_of(spec);
          options.parallel.ranks = ranks;
          options.parallel.strategy = strategy;
          options.memory.activation_checkpointing = "all";
          options.memory.checkpointed_part = part;
          CHECK(run(options) == alone);
        }
      }
    }
  }
}

TEST_CASE("mamba block: a document's rows have the bits of it alone, whatever stands before it",
          "[engine][state_space][P1]") {
  for (const ModelSpec& spec : all_models()) {
    const std::vector<std::int32_t> own = {5, 17, 2, 40, 33, 8, 1, 25};
    const std::vector<std::int32_t> own_positions = {0, 1, 2, 3, 4, 5, 6, 7};
    const std::vector<float> alone = logits_of(spec, own, own_positions);
    for (const std::int32_t first : {3, 4}) {
      std::vector<std::int32_t> tokens = {first, 9, 30, 11, 7};
      std::vector<std::int32_t> positions = {0, 1, 2, 3, 4};
      tokens.insert(tokens.end(), own.begin(), own.end());
      positions.insert(positions.end(), own_positions.begin(), own_positions.end());
      const std::vector<float> packed = logits_of(spec, tokens, positions);
      CHECK(std::equal(alone.begin(), alone.end(), packed.end() - std::ssize(alone)));
    }
  }
}

TEST_CASE("mamba block: rates, skips and steps' biases are exact, not decayed, and no matrices",
          "[engine][state_space]") {
  const std::vector<Parameter> parameters = parameters_of(mixed_model(ScanNorms::weighted));
  const std::vector<Parameter> of_heads = parameters_of(model_of_heads());
  for (const char* name : {"mixer.A_log", "mixer.D", "mixer.dt_proj.bias", "mixer.dt_bias"}) {
    const Parameter& parameter =
        named(std::string(name).ends_with("dt_bias") ? of_heads : parameters, name);
    CHECK(parameter.exact);
    CHECK(parameter.group == ParameterGroup::no_decay);
    CHECK_FALSE(parameter.muon);
    CHECK_FALSE(parameter.adaptable);
  }
  CHECK_FALSE(named(parameters, "mixer.conv1d.weight").muon);
  for (const char* name : {"in_proj", "x_proj", "dt_proj", "out_proj"}) {
    CHECK(named(parameters, fmt::format("mixer.{}.weight", name)).adaptable);
  }
}

TEST_CASE("mamba block: initial values are those of the original", "[engine][state_space]") {
  ModelSpec spec = testing::small_shape(Architecture::enoki);
  MambaSpec mixer = small_mixer(ScanNorms::none);
  mixer.inner = 4096;
  mixer.step_init = Initializer::uniform(-0.25, 0.25);
  spec.layers[1].branches[0].block = std::make_shared<const MambaSpec>(mixer);
  const std::vector<Parameter> parameters = parameters_of(spec);
  const std::vector<float> rates = initial_values(named(parameters, "A_log"), spec);
  for (std::size_t i = 0; i < rates.size(); ++i) {
    REQUIRE(rates[i] == static_cast<float>(std::log(static_cast<double>(i % 4 + 1))));
  }
  for (const float skip : initial_values(named(parameters, "mixer.D"), spec)) {
    REQUIRE(skip == 1.0F);
  }
  const auto uniform = [&](const char* name, double bound) {
    const std::vector<float> values = initial_values(named(parameters, name), spec);
    double squares = 0.0;
    for (const float value : values) {
      REQUIRE(std::abs(static_cast<double>(value)) <= bound);
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
    CHECK(squares / static_cast<double>(values.size()) == Approx(bound * bound / 3).epsilon(0.05));
  };
  uniform("conv1d.weight", 0.5);
  uniform("dt_proj.weight", 0.25);
  // Logarithms of steps are uniform from that of 0.001 to that of 0.1.
  double sum = 0.0;
  double squares = 0.0;
  const std::vector<float> biases = initial_values(named(parameters, "dt_proj.bias"), spec);
  for (const float bias : biases) {
    const double step = std::log(std::log1p(std::exp(static_cast<double>(bias))));
    REQUIRE(step >= std::log(1e-3) - 1e-5);
    REQUIRE(step <= std::log(0.1) + 1e-5);
    sum += step;
    squares += step * step;
  }
  const double mean = sum / static_cast<double>(biases.size());
  CHECK(mean == Approx(std::log(1e-2)).epsilon(0.02));
  CHECK(squares / static_cast<double>(biases.size()) - mean * mean ==
        Approx(std::log(100.0) * std::log(100.0) / 12).epsilon(0.05));
}

TEST_CASE("mamba block: initial values of heads are those of transformers",
          "[engine][state_space]") {
  const ModelSpec spec = model_of_heads();
  const std::vector<Parameter> parameters = parameters_of(spec);
  const std::vector<float> rates = initial_values(named(parameters, "A_log"), spec);
  for (std::size_t head = 0; head < rates.size(); ++head) {
    CHECK(rates[head] == static_cast<float>(std::log(static_cast<double>(head + 1))));
  }
  CHECK(initial_values(named(parameters, "mixer.D"), spec) == std::vector<float>(4, 1.0F));
  CHECK(named(parameters, "dt_bias").init.kind == InitKind::step_bias);
  for (const float bias : initial_values(named(parameters, "dt_bias"), spec)) {
    const double step = std::log1p(std::exp(static_cast<double>(bias)));
    CHECK(step >= 1e-3 * (1.0 - 1e-5));
    CHECK(step <= 0.1 * (1.0 + 1e-5));
  }
}

TEST_CASE("mamba block: no step is smaller than the least", "[engine][state_space]") {
  const Parameter parameter{
      .name = "bias", .shape = {1000}, .init = Initializer::step(1e-6, 1e-5, 1e-4)};
  for (const float bias : initial_values(parameter, testing::small_shape(Architecture::enoki))) {
    REQUIRE(std::log1p(std::exp(static_cast<double>(bias))) == Approx(1e-4).epsilon(1e-5));
  }
}

TEST_CASE("mamba block: an adapter of every map, and frozen parts of a scan",
          "[engine][state_space][P1]") {
  for (const bool lora : {false, true}) {
    for (ModelSpec spec : {mixed_model(ScanNorms::none), model_of_heads()}) {
      if (lora) {
        spec.lora = {.rank = 2, .targets = {"all-linear"}};
      } else {
        spec.frozen = {"*A_log", "*conv1d.bias", "*mixer.D"};
      }
      const Trace alone = run(options_of(spec));
      REQUIRE(alone.losses.back() < alone.losses.front());
      Options options = options_of(spec);
      options.parallel.ranks = 3;
      options.parallel.strategy = "full";
      CHECK(run(options) == alone);
    }
  }
}

TEST_CASE("mamba block: its memory is planned, its parameters and FLOPs are counted",
          "[engine][state_space]") {
  for (const ModelSpec& spec : all_models()) {
    for (const char* part : {"block", "mlp", "attention"}) {
      const ActivationOptions options{.checkpointing = {1, part}};
      CHECK(planned_activation_bytes(spec, 3, 16, true, options) ==
            Model(spec, kernels::cpu_backend(), 3, 16, true, options).activation_bytes());
    }
  }
  const ModelSpec spec = mixed_model(ScanNorms::none);
  std::int64_t count = 0;
  double matrices = 0.0;
  for (const Parameter& parameter : parameters_of(spec)) {
    count += parameter.name.find("mixer.") == std::string::npos ? 0 : parameter.count();
    matrices += parameter.linear && parameter.name.find("mixer.") != std::string::npos
                    ? static_cast<double>(parameter.count())
                    : 0.0;
  }
  // in, x, dt, out; A_log, D, the convolution with its bias, dt's bias.
  CHECK(count == 16 * 48 + 24 * 11 + 3 * 24 + 24 * 16 + 24 * 4 + 24 + 24 * 5 + 24);
  CHECK(matrices == 16.0 * 48 + 24 * 11 + 3 * 24 + 24 * 16);
  CHECK(small_mixer(ScanNorms::none).score_flops(64) == 24.0 * (2 * 4 + 7 * 4));
  CHECK(block_sizes(spec.layers[1]) == "24 channels of 4 states, MLP 40");
  const ModelSpec heads = model_of_heads();
  count = 0;
  for (const Parameter& parameter : parameters_of(heads)) {
    count += parameter.name.find("mixer.") == std::string::npos ? 0 : parameter.count();
  }
  // in [24 + 44 + 4], out; three of heads; the convolution of 44 with its bias; the norm.
  CHECK(count == 16 * 72 + 24 * 16 + 3 * 4 + 44 * 5 + 24);
  CHECK(block_sizes(heads.layers[1]) == "4 heads of 6 with 5 states, MLP 40");
}

}  // namespace train::engine::mamba_block_test
