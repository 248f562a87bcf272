// Families of state spaces against transformers in float64
// (tests/reference/models/make_state_space_fixtures.py). Tolerance: 1e-5 of a tensor's largest
// element; the engine computes in float32.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/engine/parity/published_models.hpp"
#include "tests/engine/parity/published_summary.hpp"
#include "tests/engine/parity/state_space_models.hpp"
#include "tests/engine/rank/small_model.hpp"
#include "tests/support/runs/world_step.hpp"

namespace train::engine::state_space_parity_test {
namespace {

using testing::check_gradients;
using testing::check_summary;
using testing::kSummaryTolerance;
using testing::state_space_cases;
using testing::state_space_model;
using testing::state_space_models;
using Json = nlohmann::json;

void fill_all(const WorldStep& step, const Json& entry) {
  for (const UnitParameters& unit : step.rank(0).plan().units()) {
    for (const Parameter& parameter : unit.parameters) {
      if (!parameter.unpublished()) {
        testing::fill_state_space(entry, parameter,
                                  testing::state_of(step.rank(0), "model." + parameter.name));
      }
    }
  }
}

/// Logits of every position of every sequence, [rows, vocab].
std::vector<float> all_logits(const Json& entry) {
  const WorldStep::Options options = testing::published_options(entry);
  const auto stream = kernels::make_inline_stream(1);
  Model model(options.model, kernels::cpu_backend(), 2, options.seq_len, /*with_gradient=*/false);
  std::vector<std::vector<float>> weights;
  for (const UnitParameters& unit : describe_units(options.model)) {
    auto& values = weights.emplace_back(static_cast<std::size_t>(unit.element_count));
    for (const Parameter& parameter : unit.parameters) {
      testing::fill_state_space(
          entry, parameter,
          std::span(values).subspan(static_cast<std::size_t>(parameter.offset),
                                    static_cast<std::size_t>(parameter.count())));
    }
  }
  const std::int64_t rows = testing::rows_of(entry);
  std::vector<std::int32_t> tokens;
  for (std::int64_t row = 0; row < rows; ++row) {
    tokens.push_back(testing::shifted_token(entry, row, 0));
  }
  const Lane lane{.sequences = rows / options.seq_len,
                  .seq_len = options.seq_len,
                  .tokens = tokens.data(),
                  .with_gradient = false};
  UnitMemory memory{.tied_weights = weights.front().data()};
  for (std::size_t unit = 0; unit < weights.size(); ++unit) {
    memory.weights = weights[unit].data();
    model.unit(unit).forward(*stream, memory, lane);
  }
  std::vector<float> logits(static_cast<std::size_t>(rows * options.model.vocab_size));
  model.row_logits(*stream, memory, 0, rows, logits.data());
  stream->synchronize();
  return logits;
}

}  // namespace

TEST_CASE("state space parity: loss and gradients of every family are transformers'",
          "[engine][state_space]") {
  const std::string name = GENERATE(from_range(state_space_cases()));
  const std::string part = GENERATE("nothing", "block");
  CAPTURE(name, part);
  const Json& entry = state_space_model(name);
  const auto stream = kernels::make_inline_stream(1);
  WorldStep::Options options = testing::published_options(entry);
  if (part != "nothing") {
    options.memory.activation_checkpointing = "all";
    options.memory.checkpointed_part = part;
  }
  WorldStep step(kernels::cpu_backend(), options);
  fill_all(step, entry);
  const StepResult result = step.run(*stream, 0, testing::shifted_tokens(entry));
  CHECK(result.loss == Approx(entry.at("losses")[0].get<double>()).epsilon(1e-6));
  check_gradients(step, entry.at("gradients"));
}

TEST_CASE("state space parity: logits of every family are transformers'", "[engine][state_space]") {
  const std::string name = GENERATE(from_range(state_space_cases()));
  CAPTURE(name);
  const Json& entry = state_space_model(name);
  check_summary("logits", all_logits(entry), entry.at("logits"),
                kSummaryTolerance * entry.at("logits")[0].get<double>());
}

TEST_CASE("state space parity: five clipped AdamW steps of every family are transformers'",
          "[engine][state_space]") {
  const std::string name = GENERATE(from_range(state_space_cases()));
  CAPTURE(name);
  const Json& entry = state_space_model(name);
  const auto stream = kernels::make_inline_stream(1);
  WorldStep step(kernels::cpu_backend(), testing::published_options(entry));
  fill_all(step, entry);
  for (std::int64_t s = 0; s < state_space_models().at("steps").get<std::int64_t>(); ++s) {
    const StepResult result = step.run(*stream, s, testing::shifted_tokens(entry));
    const auto at = static_cast<std::size_t>(s);
    CHECK(result.loss == Approx(entry.at("losses")[at].get<double>()).epsilon(kSummaryTolerance));
    CHECK(result.grad_norm ==
          Approx(entry.at("norms")[at].get<double>()).epsilon(kSummaryTolerance));
  }
  for (const testing::GradientShard& shard : testing::trained_gradients(step.rank(0))) {
    const Json& summary = entry.at("weights").at(shard.name);
    check_summary(shard.name, testing::state_of(step.rank(0), "model." + shard.name), summary,
                  kSummaryTolerance * summary.at(0).get<double>());
  }
}

TEST_CASE("state space parity: parameters are as many as transformers has",
          "[engine][state_space]") {
  const std::string name = GENERATE(from_range(state_space_cases()));
  CAPTURE(name);
  const Json& entry = state_space_model(name);
  CHECK(count_parameters(testing::published_options(entry).model).total ==
        entry.at("parameters").get<std::int64_t>());
}

}  // namespace train::engine::state_space_parity_test
