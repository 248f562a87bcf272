#include "engine/model/model.hpp"

#include <catch2/catch.hpp>
#include <limits>
#include <vector>

#include "engine/lanes/lane_tree.hpp"
#include "engine/memory_plan.hpp"
#include "engine/model/head_unit.hpp"
#include "engine/unit_state.hpp"
#include "tests/engine/small_model.hpp"

namespace train::engine {
namespace {

std::vector<UnitState> initialised_units(const ModelShape& shape) {
  std::vector<UnitState> units;
  for (const UnitParameters& unit : describe_units(shape)) {
    units.emplace_back(unit).initialise(shape, {.seed = 3});
  }
  return units;
}

struct Text {
  std::vector<std::int32_t> tokens, targets;
};

Text text_of(std::int64_t rows) {
  Text text;
  for (std::int64_t i = 0; i < rows; ++i) {
    text.tokens.push_back(static_cast<std::int32_t>(i * i % 41));
    text.targets.push_back(static_cast<std::int32_t>((i + 1) * (i + 1) % 41));
  }
  return text;
}

/// Where the flat gradients of all units go.
std::vector<std::vector<float>> gradients_of(const std::vector<UnitState>& units, float value) {
  std::vector<std::vector<float>> gradients;
  for (const UnitState& state : units) {
    gradients.emplace_back(static_cast<std::size_t>(state.unit().element_count), value);
  }
  return gradients;
}

}  // namespace

TEST_CASE("model: a model without gradients computes the same loss", "[engine][model]") {
  const ModelShape shape = testing::small_shape(GENERATE(Architecture::enoki, Architecture::qwen3));
  const auto stream = kernels::make_inline_stream(1);
  auto units = initialised_units(shape);
  auto gradients = gradients_of(units, 0.0F);
  const Text text = text_of(2 * 12);
  kernels::LossSums training, evaluation;
  Lane lane{.sequences = 2,
            .seq_len = 12,
            .tokens = text.tokens.data(),
            .targets = text.targets.data(),
            .sums = &training};
  Model with(shape, kernels::cpu_backend(), 2, 12, true);
  Model without(shape, kernels::cpu_backend(), 2, 12, false);
  for (std::size_t u = 0; u < units.size(); ++u) {
    with.unit(u).forward(*stream, units[u].weights(), lane, gradients[u].data());
  }
  lane.sums = &evaluation;
  lane.with_gradient = false;
  for (std::size_t u = 0; u < units.size(); ++u) {
    without.unit(u).forward(*stream, units[u].weights(), lane, nullptr);
  }
  CHECK(training.cross_entropy > 0.0);
  CHECK(evaluation.cross_entropy == training.cross_entropy);
  CHECK(evaluation.z_squared == training.z_squared);
  CHECK(without.activation_bytes() < with.activation_bytes());
}

TEST_CASE("model: the backward pass overwrites every parameter's gradient", "[engine][model]") {
  const ModelShape shape = testing::small_shape(GENERATE(Architecture::enoki, Architecture::qwen3));
  const auto stream = kernels::make_inline_stream(1);
  auto units = initialised_units(shape);
  Model model(shape, kernels::cpu_backend(), 2, 12, true);
  const Text text = text_of(2 * 12);
  kernels::LossSums sums;
  const Lane lane{.sequences = 2,
                  .seq_len = 12,
                  .tokens = text.tokens.data(),
                  .targets = text.targets.data(),
                  .sums = &sums};
  const auto run = [&](float dirt) {
    auto gradients = gradients_of(units, dirt);
    for (std::size_t u = 0; u < units.size(); ++u) {
      model.unit(u).forward(*stream, units[u].weights(), lane, gradients[u].data());
    }
    for (std::size_t u = units.size(); u-- > 0;) {
      model.unit(u).backward(*stream, units[u].weights(), lane, gradients[u].data());
    }
    return gradients;
  };
  const auto clean = run(0.0F);
  const auto dirty = run(std::numeric_limits<float>::quiet_NaN());
  for (std::size_t u = 0; u < units.size(); ++u) {
    for (const Parameter& parameter : units[u].unit().parameters) {
      CAPTURE(parameter.name);
      const auto first = static_cast<std::ptrdiff_t>(parameter.offset);
      const auto count = static_cast<std::ptrdiff_t>(parameter.count());
      CHECK(std::vector<float>(clean[u].begin() + first, clean[u].begin() + first + count) ==
            std::vector<float>(dirty[u].begin() + first, dirty[u].begin() + first + count));
    }
  }
}

TEST_CASE("model: the unit where values stop being finite can be found", "[engine][model]") {
  const ModelShape shape = testing::small_shape(Architecture::enoki);
  const auto stream = kernels::make_inline_stream(1);
  auto units = initialised_units(shape);
  units[2].weights()[5] = std::numeric_limits<float>::quiet_NaN();  // block 1
  Model model(shape, kernels::cpu_backend(), 1, 12, true);
  const Text text = text_of(12);
  const Lane lane{.sequences = 1, .seq_len = 12, .tokens = text.tokens.data()};
  std::vector<std::int64_t> nonfinite(units.size(), -1);
  for (std::size_t u = 0; u < units.size(); ++u) {
    model.unit(u).forward(*stream, units[u].weights(), lane, nullptr);
  }
  for (std::size_t u = 0; u < units.size(); ++u) {
    model.unit(u).count_nonfinite_output(*stream, lane, &nonfinite[u]);
  }
  CHECK(model.unit(2).name() == "block 1");
  CHECK(nonfinite[0] == 0);
  CHECK(nonfinite[1] == 0);
  CHECK(nonfinite[2] > 0);
  CHECK(nonfinite[3] > 0);
}

TEST_CASE("model: parameters lie in the flat buffers without overlap", "[engine][model]") {
  const ModelShape shape = testing::small_shape(GENERATE(Architecture::enoki, Architecture::qwen3));
  const auto units = describe_units(shape);
  REQUIRE(units.size() == 4);
  CHECK(units.front().name == "embedding");
  CHECK(units[1].name == "block 0");
  CHECK(units.back().name == "head");
  std::int64_t total = 0;
  for (const UnitParameters& unit : units) {
    std::int64_t end = 0;
    for (const Parameter& parameter : unit.parameters) {
      CAPTURE(parameter.name);
      CHECK(parameter.offset >= end);
      CHECK(parameter.offset % 16 == 0);
      CHECK((parameter.group == ParameterGroup::no_decay) ==
            (parameter.vector || parameter.name == "transformer.wte.weight"));
      end = parameter.offset + parameter.count();
      total += parameter.count();
    }
    CHECK(unit.element_count >= end);
  }
  CHECK(total == count_parameters(shape).total);
}

TEST_CASE("memory plan: equals what is allocated", "[engine][memory_plan]") {
  ModelShape shape = testing::small_shape(GENERATE(Architecture::enoki, Architecture::qwen3));
  shape.qk_norm = GENERATE(true, false);
  shape.residual_scale = GENERATE(1.0F, 0.5F);
  RankEngine::Options options;
  options.shape = shape;
  options.seq_len = 16;
  options.batch = {.lanes = 5, .micro_batch = 3};
  const MemoryPlan plan = plan_memory(options);
  const kernels::KernelTable& kernels = kernels::cpu_backend();
  CHECK(plan.activations_bytes == Model(shape, kernels, 3, 16, true).activation_bytes());
  CHECK(planned_activation_bytes(shape, 3, 16, false) ==
        Model(shape, kernels, 3, 16, false).activation_bytes());
  std::size_t trees = 0;
  std::size_t flat = 0;
  for (const UnitParameters& unit : describe_units(shape)) {
    trees += LaneTree(kernels, unit.element_count, 5, "tree").size_bytes();
    flat += static_cast<std::size_t>(unit.element_count) * 4;
  }
  CHECK(plan.gradients_bytes == trees);
  CHECK(plan.parameters_bytes == flat);
  CHECK(plan.optimizer_bytes == 2 * flat);
  CHECK(plan.total_bytes() > 3 * flat + trees + plan.activations_bytes);
}

TEST_CASE("head: as many rows of logits at a time as fit in 8 MiB", "[engine][head]") {
  CHECK(head_chunk_rows(4096, 50304) == 32);
  CHECK(head_chunk_rows(4096, 64) == 4096);
  CHECK(head_chunk_rows(1 << 20, 64) == 32768);
  CHECK(head_chunk_rows(4096, 1 << 20) == 16);
  CHECK(head_chunk_rows(5, 50304) == 5);
}

}  // namespace train::engine
