// Low-rank adapters: peft's losses, gradients and steps
// (tests/reference/models/make_lora_fixtures.py, float64), and the bits of one rank on any number
// of them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/rank/exec/rank_memory.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "tests/engine/parity/published_models.hpp"
#include "tests/engine/rank/small_model.hpp"

namespace train::engine::lora_test {
namespace {

using Json = nlohmann::json;
using Options = WorldStep::Options;

constexpr double kTolerance = 1e-5;

const Json& fixture() {
  static const Json read = [] {
    std::ifstream file(std::string(ACTORTRAIN_SOURCE_DIR) + "/tests/reference/fixtures/lora.json");
    return Json::parse(file).at("cases");
  }();
  return read;
}

Options options_of(const std::string& name) {
  Options options = testing::published_options(testing::published_model(name));
  const Json& entry = fixture().at(name);
  options.lora.rank = entry.at("rank");
  options.lora.alpha = entry.at("alpha");
  options.lora.rslora = entry.at("rslora");
  const Json& targets = entry.at("targets");
  options.lora.targets = targets.is_string() ? std::vector<std::string>{targets}
                                             : targets.get<std::vector<std::string>>();
  return options;
}

/// The script's weights: those of the models' formula, of a B an eighth.
void set_by_formula(const WorldStep& world) {
  for (const UnitParameters& unit : world.rank(0).plan().units()) {
    for (const Parameter& parameter : unit.parameters) {
      const auto values = testing::state_of(world.rank(0), "model." + parameter.name);
      testing::fill_by_formula(parameter, /*gemma=*/false, values);
      if (parameter.name.ends_with(".lora_B.weight")) {
        for (float& value : values) {
          value *= 0.125F;
        }
      }
    }
  }
}

/// `wanted`: largest magnitude, sums along two waves, then elements of the script's choice.
/// `least`: a tensor of smaller elements counts as one of these.
void check_summary(const std::string& name, std::span<const float> found, const Json& wanted,
                   double least = 0.0) {
  CAPTURE(name);
  const double room = kTolerance * std::max(wanted.at(0).get<double>(), least);
  for (std::size_t i = 3; i < wanted.size(); ++i) {
    const std::size_t at = (testing::crc32_of(name) + 7919 * (i - 3)) % found.size();
    CAPTURE(at);
    CHECK(std::abs(static_cast<double>(found[at]) - wanted.at(i).get<double>()) <= room);
  }
  double largest = 0.0;
  double along = 0.0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto value = static_cast<double>(found[i]);
    largest = std::max(largest, std::abs(value));
    along += value * std::sin(0.37 * static_cast<double>(i + 1));
  }
  CHECK(std::abs(largest - wanted.at(0).get<double>()) <= room);
  CHECK(std::abs(along - wanted.at(1).get<double>()) <=
        room * std::sqrt(static_cast<double>(found.size())));
}

Options small_options(std::int64_t ranks, const std::string& strategy) {
  auto options = testing::small_options(Architecture::enoki);
  options.batch.lanes = 4;
  options.optimizer.weight_decay = 0.1;
  options.parallel.ranks = ranks;
  options.parallel.strategy = strategy;
  options.lora = {.rank = 3, .alpha = 6.0, .targets = {"c_attn", "*.mlp.*"}};
  return options;
}

std::vector<double> trace(const Options& options) {
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  const auto text = testing::repeating_text(options);
  std::vector<double> values;
  for (std::int64_t step = 0; step < 3; ++step) {
    const StepResult result = world.run(*stream, step, text);
    values.insert(values.end(), {result.loss, result.grad_norm});
    values.push_back(static_cast<double>(world.digest() >> 12U));
  }
  return values;
}

}  // namespace

TEST_CASE("lora: loss, gradients and five clipped AdamW steps are peft's", "[engine][lora]") {
  const std::string name = GENERATE("llama", "gpt_neox", "gpt2", "phi3");
  CAPTURE(name);
  const Json& entry = fixture().at(name);
  Options options = options_of(name);
  SECTION("all is kept") {}
  SECTION("all is computed again") { options.memory.activation_checkpointing = "all"; }
  REQUIRE(check_freeze(options).ok());
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  set_by_formula(world);
  const auto text = testing::tokens_by_formula(testing::published_model(name));
  for (std::size_t step = 0; step < entry.at("losses").size(); ++step) {
    const StepResult result = world.run(*stream, static_cast<std::int64_t>(step), text);
    CHECK(result.loss == Approx(entry.at("losses")[step].get<double>()).epsilon(kTolerance));
    CHECK(result.grad_norm == Approx(entry.at("norms")[step].get<double>()).epsilon(kTolerance));
    if (step > 0) {
      continue;
    }
    double largest = 0.0;
    for (const auto& [parameter, wanted] : entry.at("gradients").items()) {
      largest = std::max(largest, wanted.at(0).get<double>());
    }
    std::size_t trained = 0;
    for (const testing::GradientShard& shard : testing::gradients_of(world.rank(0))) {
      if (shard.rows > 0) {
        ++trained;
        check_summary(shard.name, testing::values_of(shard), entry.at("gradients").at(shard.name),
                      0.01 * largest);
      }
    }
    CHECK(trained == entry.at("gradients").size());
  }
  for (const auto& [parameter, wanted] : entry.at("weights").items()) {
    check_summary(parameter, testing::state_of(world.rank(0), "model." + parameter), wanted);
  }
}

TEST_CASE("lora: at first the model is as without, and only adapters change", "[engine][lora]") {
  Options options = small_options(1, "none");
  const auto stream = kernels::make_inline_stream(1);
  WorldStep adapted(kernels::cpu_backend(), options);
  options.lora = {};
  WorldStep plain(kernels::cpu_backend(), options);
  const auto text = testing::repeating_text(options);
  const std::string base = "model.transformer.h.1.mlp.c_fc.weight";
  const std::string a = "model.transformer.h.1.mlp.c_fc.lora_A.weight";
  const auto values = [&](const std::string& name) {
    const auto span = testing::state_of(adapted.rank(0), name);
    return std::vector<float>(span.begin(), span.end());
  };
  const auto base_before = values(base);
  const auto a_before = values(a);
  const float bound = 1.0F / std::sqrt(16.0F);
  const auto [low, high] = std::minmax_element(a_before.begin(), a_before.end());
  CHECK(*low >= -bound);
  CHECK(*high <= bound);
  CHECK(*high - *low > bound);
  const auto of_plain = testing::state_of(plain.rank(0), base);
  CHECK(std::equal(base_before.begin(), base_before.end(), of_plain.begin(), of_plain.end()));
  CHECK(adapted.run(*stream, 0, text).loss == plain.run(*stream, 0, text).loss);
  CHECK(values(a) != a_before);
}

TEST_CASE("lora: the same bits at any ranks and strategy", "[engine][lora][P1]") {
  const auto alone = trace(small_options(1, "none"));
  for (const std::int64_t ranks : {2, 3}) {
    for (const char* strategy : {"none", "optimizer", "full"}) {
      CAPTURE(ranks, strategy);
      CHECK(trace(small_options(ranks, strategy)) == alone);
    }
  }
}

TEST_CASE("lora: memory is as planned, and state is the adapters' alone",
          "[engine][lora][memory_plan]") {
  for (const char* strategy : {"none", "full"}) {
    const Options options = small_options(2, strategy);
    const RankEngine engine(kernels::cpu_backend(), options);
    CHECK(engine.allocated() == plan_memory(options));
  }
  const Options options = small_options(1, "none");
  std::int64_t elements = 0;
  for (const UnitParameters& unit : describe_units(trained_model(options))) {
    elements += unit.gradient_count();
  }
  CHECK(plan_memory(options).optimizer_bytes ==
        2 * sizeof(float) * static_cast<std::size_t>(elements));
}

TEST_CASE("lora: targets and ranks that fit nothing are refused by name", "[engine][lora]") {
  Options options = small_options(1, "none");
  options.lora.targets = {"c_attn", "q_proj"};
  Status refused = check_freeze(options);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message ==
        "lora.targets: \"q_proj\" matches no linear layer; they are called "
        "\"transformer.h.0.attn.c_attn\" to \"transformer.h.1.mlp.c_proj\"");
  options.lora.targets = {"all-linear"};
  options.lora.rank = 17;
  refused = check_freeze(options);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("lora.rank is 17, but transformer.h.0.attn.c_attn") == 0);
}

}  // namespace train::engine::lora_test
