// Families with experts against transformers in float64
// (tests/reference/models/make_expert_fixtures.py). Tolerance: 1e-5 of a tensor's largest element;
// the engine computes in float32. No choice of an expert is close there: both choose the same.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/model/balance.hpp"
#include "engine/model/experts/experts_block.hpp"
#include "tests/engine/parity/expert_models.hpp"
#include "tests/engine/parity/published_models.hpp"
#include "tests/engine/parity/published_summary.hpp"
#include "tests/engine/rank/small_model.hpp"
#include "tests/support/runs/world_step.hpp"

namespace train::engine::experts_parity_test {
namespace {

using Json = nlohmann::json;
using testing::check_gradients;
using testing::check_summary;
using testing::fill_experts;
using testing::kSummaryTolerance;
using testing::token_of;
using testing::tokens_of;

void fill(const RankEngine& rank, const Json& entry) {
  for (const UnitParameters& unit : rank.plan().units()) {
    for (const Parameter& parameter : unit.parameters) {
      if (!parameter.unpublished()) {
        fill_experts(entry, parameter, testing::state_of(rank, "model." + parameter.name));
      }
    }
  }
}

void fill_all(const WorldStep& step, const Json& entry) {
  for (std::int64_t rank = 0; rank < step.rank(0).plan().ranks(); ++rank) {
    fill(step.rank(rank), entry);
  }
}

bool has_sigmoids(const Json& entry) {
  const auto type = entry.at("config").at("model_type").get<std::string>();
  return type == "deepseek_v3" || type == "glm4_moe";
}

/// Logits of every position of every sequence, [rows, vocab].
std::vector<float> all_logits(const Json& entry) {
  const WorldStep::Options options = testing::published_options(entry);
  const auto stream = kernels::make_inline_stream(1);
  Model model(options.model, kernels::cpu_backend(), 1, options.seq_len, /*with_gradient=*/false);
  std::vector<std::vector<float>> weights;
  for (const UnitParameters& unit : describe_units(options.model)) {
    auto& values = weights.emplace_back(static_cast<std::size_t>(unit.element_count));
    for (const Parameter& parameter : unit.parameters) {
      fill_experts(entry, parameter,
                   std::span(values).subspan(static_cast<std::size_t>(parameter.offset),
                                             static_cast<std::size_t>(parameter.count())));
    }
  }
  std::vector<float> logits;
  const std::int64_t vocab = options.model.vocab_size;
  for (std::int64_t begin = 0; begin < testing::rows_of(entry); begin += options.seq_len) {
    std::vector<std::int32_t> tokens;
    for (std::int64_t at = 0; at < options.seq_len; ++at) {
      tokens.push_back(token_of(entry, begin + at, 0));
    }
    const Lane lane{.sequences = 1,
                    .seq_len = options.seq_len,
                    .tokens = tokens.data(),
                    .with_gradient = false};
    UnitMemory memory{.tied_weights = weights.front().data()};
    for (std::size_t unit = 0; unit < weights.size(); ++unit) {
      memory.weights = weights[unit].data();
      model.unit(unit).forward(*stream, memory, lane);
    }
    const std::size_t before = logits.size();
    logits.resize(before + static_cast<std::size_t>(options.seq_len * vocab));
    model.row_logits(*stream, memory, 0, options.seq_len, logits.data() + before);
    stream->synchronize();
  }
  return logits;
}

}  // namespace

TEST_CASE("experts parity: loss and gradients of every family are transformers'",
          "[engine][experts_parity]") {
  const std::string name = GENERATE(from_range(testing::expert_cases()));
  const std::string part = GENERATE("nothing", "mlp", "block", "latent");
  if (part == "latent" && !name.starts_with("deepseek")) {
    return;
  }
  CAPTURE(name, part);
  const Json& entry = testing::expert_models().at("cases").at(name);
  const auto stream = kernels::make_inline_stream(1);
  WorldStep::Options options = testing::published_options(entry);
  if (part != "nothing") {
    options.memory.activation_checkpointing = "all";
    options.memory.checkpointed_part = part;
  }
  WorldStep step(kernels::cpu_backend(), options);
  fill_all(step, entry);
  const StepResult result = step.run(*stream, 0, tokens_of(entry));
  CHECK(result.loss == Approx(entry.at("losses")[0].get<double>()).epsilon(1e-6));
  check_gradients(step, entry.at("gradients"));
}

TEST_CASE("experts parity: logits of every family are transformers'", "[engine][experts_parity]") {
  const std::string name = GENERATE(from_range(testing::expert_cases()));
  CAPTURE(name);
  const Json& entry = testing::expert_models().at("cases").at(name);
  check_summary("logits", all_logits(entry), entry.at("logits"),
                kSummaryTolerance * entry.at("logits")[0].get<double>());
}

TEST_CASE("experts parity: five clipped AdamW steps of every family are transformers'",
          "[engine][experts_parity]") {
  const std::string name = GENERATE(from_range(testing::expert_cases()));
  CAPTURE(name);
  const Json& entry = testing::expert_models().at("cases").at(name);
  const auto stream = kernels::make_inline_stream(1);
  WorldStep step(kernels::cpu_backend(), testing::published_options(entry));
  fill_all(step, entry);
  for (std::int64_t s = 0; s < testing::expert_models().at("steps").get<std::int64_t>(); ++s) {
    const StepResult result = step.run(*stream, s, tokens_of(entry));
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

TEST_CASE("experts parity: balancing by the loads of the whole step is torch's of the whole batch",
          "[engine][experts_parity]") {
  const auto& cases = testing::expert_models().at("step_cases").items();
  for (const auto& [name, entry] : cases) {
    for (const std::int64_t ranks : {1, 2}) {
      CAPTURE(name, ranks);
      WorldStep::Options options = testing::published_options(entry);
      options.batch.lanes = options.batch.micro_batch;  // A sequence each, with loads of its own.
      options.batch.micro_batch = 1;
      options.parallel.ranks = ranks;
      const auto coeff = testing::expert_models().at("step_coeff").get<float>();
      REQUIRE(set_balance({{.scope = kernels::BalanceScope::step, .coeff = coeff}}, options.model));
      const auto lanes = [&entry = entry](std::int64_t, std::int64_t lane, std::int32_t* tokens,
                                          std::int32_t* targets) {
        const auto length = entry.at("length").get<std::int64_t>();
        for (std::int64_t row = 0; row < length; ++row) {
          tokens[row] = token_of(entry, lane * length + row, 0);
          targets[row] = token_of(entry, lane * length + row, 1);
        }
      };
      const auto stream = kernels::make_inline_stream(1);
      WorldStep step(kernels::cpu_backend(), options);
      fill_all(step, entry);
      for (std::int64_t s = 0; s < testing::expert_models().at("steps").get<std::int64_t>(); ++s) {
        const StepResult result = step.run(*stream, s, WorldStep::ReadLane(lanes));
        const auto wanted = [&entry = entry, at = static_cast<std::size_t>(s)](const char* what) {
          return Approx(entry.at(what)[at].get<double>()).epsilon(kSummaryTolerance);
        };
        CHECK(result.loss == wanted("losses"));
        CHECK(result.metrics.front() == wanted("balance"));
        CHECK(result.grad_norm == wanted("norms"));
        if (s == 0 && ranks == 1) {
          check_gradients(step, entry.at("gradients"));
        }
      }
    }
  }
}

TEST_CASE("experts parity: an expert that no row chooses has a gradient of +0",
          "[engine][experts_parity]") {
  const std::string name = GENERATE(from_range(testing::expert_cases()));
  CAPTURE(name);
  const Json& entry = testing::expert_models().at("cases").at(name);
  if (has_sigmoids(entry)) {
    return;  // Their choice has a bias, and may fall on any expert.
  }
  const auto stream = kernels::make_inline_stream(1);
  WorldStep step(kernels::cpu_backend(), testing::published_options(entry));
  fill_all(step, entry);
  (void)step.run(*stream, 0, tokens_of(entry));
  std::size_t unused = 0;
  for (const testing::GradientShard& shard : testing::gradients_of(step.rank(0))) {
    if (shard.name.find("experts.5.") != std::string::npos) {
      const auto values = testing::values_of(shard);
      CHECK(std::all_of(values.begin(), values.end(),
                        [](float value) { return value == 0.0F && !std::signbit(value); }));
      ++unused;
    }
  }
  CHECK(unused >= 3);
}

TEST_CASE("experts parity: parameters are as many as transformers has",
          "[engine][experts_parity]") {
  const std::string name = GENERATE(from_range(testing::expert_cases()));
  CAPTURE(name);
  const Json& entry = testing::expert_models().at("cases").at(name);
  CHECK(count_parameters(testing::published_options(entry).model).total ==
        entry.at("parameters").get<std::int64_t>());
}

TEST_CASE("experts parity: threads do not change a bit", "[engine][experts_parity][EN-1]") {
  const std::string name = GENERATE("mixtral_balanced", "olmoe", "qwen2_moe", "qwen3_moe",
                                    "deepseek_v3", "glm4_moe", "gpt_oss");
  CAPTURE(name);
  const Json& entry = testing::expert_models().at("cases").at(name);
  std::vector<std::vector<float>> found;
  for (const int threads : {1, 2, 3}) {
    const auto stream = kernels::make_inline_stream(threads);
    WorldStep step(kernels::cpu_backend(), testing::published_options(entry));
    fill_all(step, entry);
    (void)step.run(*stream, 0, tokens_of(entry));
    std::vector<float>& all = found.emplace_back();
    for (const testing::GradientShard& shard : testing::gradients_of(step.rank(0))) {
      const auto values = testing::values_of(shard);
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  CHECK(found[0] == found[1]);
  CHECK(found[0] == found[2]);
}

}  // namespace train::engine::experts_parity_test
