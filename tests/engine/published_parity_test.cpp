// Every published family against transformers in float64 (tests/reference/make_model_fixtures.py).
// Tolerance: 2e-5 of a gradient's norm; the engine computes in float32.

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/model/architectures/architectures.hpp"
#include "tests/engine/small_model.hpp"
#include "tests/support/world_step.hpp"

namespace train::engine {
namespace {

using Json = nlohmann::json;

const Json& published_models() {
  static const Json fixture = [] {
    std::ifstream file(std::string(ACTORTRAIN_SOURCE_DIR) +
                       "/tests/reference/fixtures/models.json");
    return Json::parse(file);
  }();
  return fixture;
}

std::vector<std::string> published_cases() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : published_models().at("cases").items()) {
    names.push_back(name);
  }
  return names;
}

/// CRC-32 of Ethernet, as Python's zlib has it.
std::uint32_t crc32_of(const std::string& text) {
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char letter : text) {
    crc ^= static_cast<unsigned char>(letter);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U);
    }
  }
  return ~crc;
}

/// The weights of the fixture's formula.
void fill_by_formula(const Parameter& parameter, bool gemma, std::span<float> out) {
  const double step = 0.1 + static_cast<double>(crc32_of(parameter.name) % 1000) / 1000.0;
  const bool gain = parameter.vector && parameter.name.ends_with("weight") && !gemma;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto at = static_cast<double>(i + 1);
    const auto value = static_cast<float>(0.25 * std::sin(step * at * at));
    out[i] = gain ? value + 1.0F : value;
  }
}

WorldStep::Options options_of(const Json& entry) {
  WorldStep::Options options;
  options.seq_len = published_models().at("length");
  auto spec = spec_from_config(entry.at("config").dump(), "fixture", options.seq_len);
  REQUIRE(spec.ok());
  options.model = *spec;
  options.batch.lanes = 1;
  options.batch.micro_batch = published_models().at("sequences");
  options.total_steps = 10;
  options.schedule.name = "constant";
  options.parallel.wrapping = {"per_block"};
  return options;
}

WorldStep::ReadLane tokens_by_formula() {
  return [](std::int64_t, std::int64_t, std::int32_t* tokens, std::int32_t* targets) {
    const std::int64_t length = published_models().at("length");
    const std::int64_t sequences = published_models().at("sequences");
    const std::int64_t vocab = published_models().at("vocab");
    const auto token = [&](std::int64_t at) {
      return static_cast<std::int32_t>((at * at * 7 + at * 3 + 5) % vocab);
    };
    for (std::int64_t row = 0; row < sequences * length; ++row) {
      const std::int64_t at = row / length * (length + 1) + row % length;
      tokens[row] = token(at);
      targets[row] = token(at + 1);
    }
  };
}

/// Sum of values times a wave.
double along_wave(std::span<const float> values, double step) {
  double sum = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    sum += static_cast<double>(values[i]) * std::sin(step * static_cast<double>(i + 1));
  }
  return sum;
}

double norm_of(std::span<const float> values) {
  double sum = 0.0;
  for (const float value : values) {
    sum += static_cast<double>(value) * static_cast<double>(value);
  }
  return std::sqrt(sum);
}

void set_by_formula(const WorldStep& step, const Json& entry) {
  const bool gemma = entry.at("config").at("model_type").get<std::string>().starts_with("gemma");
  for (const UnitParameters& unit : step.rank(0).plan().units()) {
    for (const Parameter& parameter : unit.parameters) {
      fill_by_formula(parameter, gemma, testing::state_of(step.rank(0), "model." + parameter.name));
    }
  }
}

void check_gradients(const WorldStep& step, const Json& expected) {
  std::size_t compared = 0;
  for (const testing::GradientShard& shard : testing::gradients_of(step.rank(0))) {
    CAPTURE(shard.name);
    const auto wanted = expected.at(shard.name).get<std::vector<double>>();
    const auto found = testing::values_of(shard);
    // A gradient that is zero in exact arithmetic, such as that of a bias of keys, is noise.
    const double room = 2e-5 * wanted[0] + 1e-7;
    CHECK(norm_of(found) == Approx(wanted[0]).margin(room));
    CHECK(along_wave(found, 0.37) == Approx(wanted[1]).margin(room));
    CHECK(along_wave(found, 1.1) == Approx(wanted[2]).margin(room));
    ++compared;
  }
  CHECK(compared == expected.size());
}

}  // namespace

TEST_CASE("published parity: loss and gradients of every family are transformers'",
          "[engine][published_parity]") {
  const std::string name = GENERATE(from_range(published_cases()));
  CAPTURE(name);
  const Json& entry = published_models().at("cases").at(name);
  const auto stream = kernels::make_inline_stream(1);
  const auto part =
      GENERATE(Recompute::nothing, Recompute::attention, Recompute::mlp, Recompute::block);
  WorldStep::Options options = options_of(entry);
  if (part != Recompute::nothing) {
    options.memory.activation_checkpointing = "all";
    options.memory.checkpointed_part = part == Recompute::attention ? "attention"
                                       : part == Recompute::mlp     ? "mlp"
                                                                    : "block";
  }
  WorldStep step(kernels::cpu_backend(), options);
  set_by_formula(step, entry);
  const StepResult result = step.run(*stream, 0, tokens_by_formula());
  CHECK(result.loss == Approx(entry.at("loss").get<double>()).epsilon(1e-6));
  check_gradients(step, entry.at("gradients"));
}

TEST_CASE("published parity: parameters are as many as transformers has",
          "[engine][published_parity]") {
  const std::string name = GENERATE(from_range(published_cases()));
  CAPTURE(name);
  const Json& entry = published_models().at("cases").at(name);
  CHECK(count_parameters(options_of(entry).model).total ==
        entry.at("parameters").get<std::int64_t>());
}

TEST_CASE("published parity: threads do not change a bit", "[engine][published_parity][EN-1]") {
  const std::string name = GENERATE("llama_yarn", "gemma3_text", "gpt_neox", "gpt2");
  CAPTURE(name);
  const Json& entry = published_models().at("cases").at(name);
  std::vector<std::vector<float>> found;
  for (const int threads : {1, 2, 3}) {
    const auto stream = kernels::make_inline_stream(threads);
    WorldStep step(kernels::cpu_backend(), options_of(entry));
    set_by_formula(step, entry);
    (void)step.run(*stream, 0, tokens_by_formula());
    std::vector<float>& all = found.emplace_back();
    for (const testing::GradientShard& shard : testing::gradients_of(step.rank(0))) {
      const auto values = testing::values_of(shard);
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  CHECK(found[0] == found[1]);
  CHECK(found[0] == found[2]);
}

}  // namespace train::engine
