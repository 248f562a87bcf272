// Every published family against transformers in float64
// (tests/reference/models/make_model_fixtures.py). Tolerance: 1e-5 of a tensor's largest element;
// the engine computes in float32.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/engine/parity/published_models.hpp"
#include "tests/engine/parity/published_summary.hpp"
#include "tests/engine/rank/small_model.hpp"
#include "tests/support/runs/world_step.hpp"

namespace train::engine::published_parity_test {
namespace {

using Json = nlohmann::json;
using testing::check_gradients;
using testing::check_summary;
using testing::fill_by_formula;
using testing::is_gemma;
using testing::published_cases;
using testing::published_model;
using testing::published_models;
using testing::published_options;
using testing::rows_of;
using testing::token_by_formula;
using testing::tokens_by_formula;

using testing::kSummaryTolerance;

void set_by_formula(const WorldStep& step, const Json& entry) {
  for (const UnitParameters& unit : step.rank(0).plan().units()) {
    for (const Parameter& parameter : unit.parameters) {
      fill_by_formula(parameter, is_gemma(entry),
                      testing::state_of(step.rank(0), "model." + parameter.name));
    }
  }
}

/// Of every position of every sequence, [rows, vocab]: the last ones of all the texts that begin
/// like the lane's.
std::vector<float> all_logits(const Json& entry) {
  const WorldStep::Options options = published_options(entry);
  const auto stream = kernels::make_inline_stream(1);
  Model model(options.model, kernels::cpu_backend(), 1, options.seq_len, /*with_gradient=*/false);
  std::vector<std::vector<float>> weights;
  for (const UnitParameters& unit : describe_units(options.model)) {
    auto& values = weights.emplace_back(static_cast<std::size_t>(unit.element_count));
    for (const Parameter& parameter : unit.parameters) {
      fill_by_formula(parameter, is_gemma(entry),
                      std::span(values).subspan(static_cast<std::size_t>(parameter.offset),
                                                static_cast<std::size_t>(parameter.count())));
    }
  }
  std::vector<float> logits;
  for (std::int64_t row = 0; row < rows_of(entry); ++row) {
    const std::int64_t length = row % options.seq_len + 1;
    std::vector<std::int32_t> tokens;
    for (std::int64_t at = row - length + 1; at <= row; ++at) {
      tokens.push_back(token_by_formula(entry, at, 0));
    }
    const Lane lane{
        .sequences = 1, .seq_len = length, .tokens = tokens.data(), .with_gradient = false};
    UnitMemory memory{.tied_weights = weights.front().data()};
    for (std::size_t unit = 0; unit < weights.size(); ++unit) {
      memory.weights = weights[unit].data();
      model.unit(unit).forward(*stream, memory, lane);
    }
    logits.resize(logits.size() + static_cast<std::size_t>(options.model.vocab_size));
    model.row_logits(*stream, memory, lane.seq_len - 1, 1,
                     &logits.back() + 1 - options.model.vocab_size);
    stream->synchronize();
  }
  return logits;
}

}  // namespace

TEST_CASE("published parity: loss and gradients of every family are transformers'",
          "[engine][published_parity]") {
  const std::string name = GENERATE(from_range(published_cases()));
  CAPTURE(name);
  const Json& entry = published_model(name);
  const auto stream = kernels::make_inline_stream(1);
  const std::string part = GENERATE("nothing", "attention", "mlp", "block");
  WorldStep::Options options = published_options(entry);
  if (part != "nothing") {
    options.memory.activation_checkpointing = "all";
    options.memory.checkpointed_part = part;
  }
  WorldStep step(kernels::cpu_backend(), options);
  set_by_formula(step, entry);
  const StepResult result = step.run(*stream, 0, tokens_by_formula(entry));
  CHECK(result.loss == Approx(entry.at("losses")[0].get<double>()).epsilon(1e-6));
  check_gradients(step, entry.at("gradients"));
}

TEST_CASE("published parity: logits of every family are transformers'",
          "[engine][published_parity]") {
  const std::string name = GENERATE(from_range(published_cases()));
  CAPTURE(name);
  const Json& entry = published_model(name);
  std::vector<float> logits = all_logits(entry);
  // As text is generated: the cap of logits is whoever reads them's.
  const float cap = published_options(entry).model.logit_softcap;
  std::transform(logits.begin(), logits.end(), logits.begin(),
                 [cap](float x) { return cap > 0.0F ? cap * std::tanh(x / cap) : x; });
  check_summary("logits", logits, entry.at("logits"),
                kSummaryTolerance * entry.at("logits")[0].get<double>());
}

TEST_CASE("published parity: five clipped AdamW steps of every family are transformers'",
          "[engine][published_parity]") {
  const std::string name = GENERATE(from_range(published_cases()));
  CAPTURE(name);
  const Json& entry = published_model(name);
  const auto stream = kernels::make_inline_stream(1);
  WorldStep step(kernels::cpu_backend(), published_options(entry));
  set_by_formula(step, entry);
  for (std::int64_t s = 0; s < published_models().at("steps").get<std::int64_t>(); ++s) {
    const StepResult result = step.run(*stream, s, tokens_by_formula(entry));
    const auto at = static_cast<std::size_t>(s);
    CHECK(result.loss == Approx(entry.at("losses")[at].get<double>()).epsilon(kSummaryTolerance));
    CHECK(result.grad_norm ==
          Approx(entry.at("norms")[at].get<double>()).epsilon(kSummaryTolerance));
  }
  for (const testing::GradientShard& shard : testing::gradients_of(step.rank(0))) {
    const Json& summary = entry.at("weights").at(shard.name);
    check_summary(shard.name, testing::state_of(step.rank(0), "model." + shard.name), summary,
                  kSummaryTolerance * summary.at(0).get<double>());
  }
}

TEST_CASE("published parity: parameters are as many as transformers has",
          "[engine][published_parity]") {
  const std::string name = GENERATE(from_range(published_cases()));
  CAPTURE(name);
  const Json& entry = published_model(name);
  CHECK(count_parameters(published_options(entry).model).total ==
        entry.at("parameters").get<std::int64_t>());
}

TEST_CASE("published parity: threads do not change a bit", "[engine][published_parity][EN-1]") {
  const std::string name = GENERATE("llama_yarn", "gemma3_text", "gpt_neox", "gpt2");
  CAPTURE(name);
  const Json& entry = published_model(name);
  std::vector<std::vector<float>> found;
  for (const int threads : {1, 2, 3}) {
    const auto stream = kernels::make_inline_stream(threads);
    WorldStep step(kernels::cpu_backend(), published_options(entry));
    set_by_formula(step, entry);
    (void)step.run(*stream, 0, tokens_by_formula(entry));
    std::vector<float>& all = found.emplace_back();
    for (const testing::GradientShard& shard : testing::gradients_of(step.rank(0))) {
      const auto values = testing::values_of(shard);
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  CHECK(found[0] == found[1]);
  CHECK(found[0] == found[2]);
}

}  // namespace train::engine::published_parity_test
