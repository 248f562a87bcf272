#include "engine/model/model.hpp"
#include "kernels/head/head_loss.hpp"
#include "kernels/head/log_probs.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.hpp"
#include "engine/model/architectures/architectures.hpp"
#include "engine/model/blocks/head_unit.hpp"
#include "tests/engine/model/model_memory.hpp"
#include "tests/engine/rank/small_model.hpp"

namespace train::engine::model_test {
namespace {

using testing::ModelMemory;
using testing::run_lane;

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

ModelShape some_shape() {
  ModelShape shape = testing::small_shape(GENERATE(Architecture::enoki, Architecture::dstar_qwen3));
  shape.tie_embeddings = GENERATE(false, true);
  return shape;
}

/// DeepSeek-V3's attention over latents, without experts.
ModelSpec latent_model(bool query_latent) {
  auto spec = spec_from_config(
      std::string(R"({"model_type": "deepseek_v3", "vocab_size": 41, "hidden_size": 24,
        "intermediate_size": 32, "num_hidden_layers": 3, "num_attention_heads": 3,
        "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 5,
        "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2,
        "moe_intermediate_size": 8, "first_k_dense_replace": 3, "q_lora_rank": )") +
          (query_latent ? "10}" : "null}"),
      "latent_model", 12);
  INFO((spec.ok() ? "" : spec.error().message));
  REQUIRE(spec.ok());
  return std::move(spec).value();
}

}  // namespace

TEST_CASE("model: a model without gradients computes the same loss", "[engine][model]") {
  const ModelShape shape = some_shape();
  const auto stream = kernels::make_inline_stream(1);
  ModelMemory memory(shape);
  const Text text = text_of(2 * 12);
  kernels::LossSums training, evaluation;
  Lane lane{.sequences = 2,
            .seq_len = 12,
            .tokens = text.tokens.data(),
            .targets = text.targets.data(),
            .sums = &training};
  Model with(shape, kernels::cpu_backend(), 2, 12, true);
  Model without(shape, kernels::cpu_backend(), 2, 12, false);
  run_lane(*stream, with, memory, lane);
  lane.sums = &evaluation;
  lane.with_gradient = false;
  run_lane(*stream, without, memory, lane);
  CHECK(training.cross_entropy > 0.0);
  CHECK(evaluation.cross_entropy == training.cross_entropy);
  CHECK(evaluation.z_squared == training.z_squared);
  CHECK(without.activation_bytes() < with.activation_bytes());
}

TEST_CASE("model: log-probabilities of a lane are its cross-entropies, and row weights scale them",
          "[engine][model]") {
  const ModelShape shape = some_shape();
  const auto stream = kernels::make_inline_stream(1);
  ModelMemory memory(shape);
  Text text = text_of(2 * 12);
  text.targets[3] = -1;
  kernels::LossSums plain, weighted, smoothed;
  Lane lane{.sequences = 2,
            .seq_len = 12,
            .tokens = text.tokens.data(),
            .targets = text.targets.data(),
            .sums = &plain};
  Model model(shape, kernels::cpu_backend(), 2, 12, true);
  const std::size_t head = model.unit_count() - 1;
  for (std::size_t unit = 0; unit < head; ++unit) {
    model.unit(unit).forward(*stream, memory.of(unit), lane);
  }
  std::vector<float> log_probs(text.targets.size());
  std::vector<std::int32_t> argmax(text.targets.size());
  model.row_log_probs(*stream, memory.of(head), lane,
                      {.log_probs = log_probs.data(), .argmax = argmax.data()});
  run_lane(*stream, model, memory, lane);
  // An objective's second pass, with weights that the first one has given.
  std::vector<float> weights(log_probs.size());
  double sum = 0.0;
  double weighted_sum = 0.0;
  double correct = 0.0;
  for (std::size_t row = 0; row < weights.size(); ++row) {
    weights[row] = row % 3 == 0 ? std::exp(log_probs[row]) : -0.5F;
    sum -= static_cast<double>(log_probs[row]);
    weighted_sum -= static_cast<double>(weights[row] * log_probs[row]);
    correct += text.targets[row] >= 0 && argmax[row] == text.targets[row] ? 1.0 : 0.0;
  }
  CHECK(log_probs[3] == 0.0F);
  CHECK(plain.targets == 23.0);
  CHECK(plain.cross_entropy == Approx(sum).epsilon(1e-6));
  CHECK(plain.correct == correct);
  const auto gradients = memory.gradients;
  lane.row_weights = weights.data();
  lane.sums = &weighted;
  run_lane(*stream, model, memory, lane);
  CHECK(weighted.cross_entropy == Approx(weighted_sum).epsilon(1e-5));
  CHECK(weighted.targets == plain.targets);
  CHECK(memory.gradients != gradients);
  lane.row_weights = nullptr;
  lane.label_smoothing = 0.1F;
  lane.sums = &smoothed;
  run_lane(*stream, model, memory, lane);
  CHECK(smoothed.cross_entropy != plain.cross_entropy);
  CHECK(memory.gradients != gradients);
  lane.label_smoothing = 0.0F;
  run_lane(*stream, model, memory, lane);
  CHECK(memory.gradients == gradients);
}

TEST_CASE("model: the head alone makes the loss, and writes its gradient in the forward pass",
          "[engine][model]") {
  const ModelShape shape = some_shape();
  const auto units = describe_units(shape);
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    const bool is_head = units[unit].name == "head";
    CHECK(units[unit].traits.makes_loss == is_head);
    CHECK(units[unit].traits.gradient_in_forward == is_head);
  }
}

TEST_CASE("model: the backward pass overwrites every parameter's gradient", "[engine][model]") {
  const ModelShape shape = some_shape();
  const auto stream = kernels::make_inline_stream(1);
  Model model(shape, kernels::cpu_backend(), 2, 12, true);
  const Text text = text_of(2 * 12);
  kernels::LossSums sums;
  const Lane lane{.sequences = 2,
                  .seq_len = 12,
                  .tokens = text.tokens.data(),
                  .targets = text.targets.data(),
                  .sums = &sums};
  ModelMemory clean(shape);
  ModelMemory dirty(shape, std::numeric_limits<float>::quiet_NaN());
  run_lane(*stream, model, clean, lane);
  run_lane(*stream, model, dirty, lane);
  for (std::size_t u = 0; u < clean.units.size(); ++u) {
    for (const Parameter& parameter : clean.units[u].parameters) {
      CAPTURE(parameter.name);
      const auto first = static_cast<std::ptrdiff_t>(parameter.offset);
      const auto count = static_cast<std::ptrdiff_t>(parameter.count());
      const auto& left = clean.gradients[u];
      const auto& right = dirty.gradients[u];
      CHECK(std::vector<float>(left.begin() + first, left.begin() + first + count) ==
            std::vector<float>(right.begin() + first, right.begin() + first + count));
    }
  }
}

TEST_CASE("model: what is kept and what is computed again changes bytes, never a bit",
          "[engine][model]") {
  ModelShape shape = some_shape();
  shape.layers = 4;
  shape.residual_scale = GENERATE(1.0F, 0.5F);
  shape.qk_norm = GENERATE(true, false);
  const auto stream = kernels::make_inline_stream(1);
  const Text text = text_of(2 * 12);
  kernels::LossSums plain_sums, sums;
  Lane lane{.sequences = 2,
            .seq_len = 12,
            .tokens = text.tokens.data(),
            .targets = text.targets.data(),
            .sums = &plain_sums};
  Model plain(shape, kernels::cpu_backend(), 2, 12, true, {.lean = false});
  ModelMemory expected(shape);
  run_lane(*stream, plain, expected, lane);
  lane.sums = &sums;
  std::size_t most_bytes = plain.activation_bytes();
  const bool lean = GENERATE(true, false);
  const std::string part = GENERATE("attention", "mlp", "block");
  for (const std::int64_t every :
       lean ? std::vector<std::int64_t>{0, 2, 1} : std::vector<std::int64_t>{2, 1}) {
    CAPTURE(every, lean, part);
    Model model(shape, kernels::cpu_backend(), 2, 12, true,
                {.checkpointing = {every, part}, .lean = lean});
    ModelMemory memory(shape, std::numeric_limits<float>::quiet_NaN());
    for (int again = 0; again < 2; ++again) {  // The second lane finds the first one's leftovers.
      memory.gradients = ModelMemory(shape).gradients;
      run_lane(*stream, model, memory, lane);
      CHECK(sums.cross_entropy == plain_sums.cross_entropy);
      CHECK(memory.gradients == expected.gradients);
    }
    CHECK(model.activation_bytes() < most_bytes);
    most_bytes = model.activation_bytes();
  }
}

TEST_CASE("model: what latent attention computes again changes bytes, never a bit",
          "[engine][model]") {
  const ModelSpec spec = latent_model(GENERATE(true, false));
  const auto stream = kernels::make_inline_stream(1);
  const Text text = text_of(2 * 12);
  kernels::LossSums plain_sums, sums;
  Lane lane{.sequences = 2,
            .seq_len = 12,
            .tokens = text.tokens.data(),
            .targets = text.targets.data(),
            .sums = &plain_sums};
  Model plain(spec, kernels::cpu_backend(), 2, 12, true, {.lean = false});
  ModelMemory expected(spec);
  run_lane(*stream, plain, expected, lane);
  lane.sums = &sums;
  const bool lean = GENERATE(true, false);
  const std::string part = GENERATE("nothing", "latent", "attention", "block");
  CAPTURE(lean, part);
  if (!lean && part == "nothing") {
    return;
  }
  const Checkpointing again = part == "nothing" ? Checkpointing{} : Checkpointing{1, part};
  Model model(spec, kernels::cpu_backend(), 2, 12, true, {.checkpointing = again, .lean = lean});
  ModelMemory memory(spec);
  run_lane(*stream, model, memory, lane);
  CHECK(sums.cross_entropy == plain_sums.cross_entropy);
  CHECK(memory.gradients == expected.gradients);
  CHECK(model.activation_bytes() < plain.activation_bytes());
}

TEST_CASE("model: planned activation bytes are what is allocated", "[engine][model]") {
  ModelShape shape = some_shape();
  shape.qk_norm = GENERATE(true, false);
  const kernels::KernelTable& kernels = kernels::cpu_backend();
  for (const bool with_gradient : {true, false}) {
    for (const std::int64_t every : {0, 1, 2, 5}) {
      for (const char* part : {"attention", "mlp", "block"}) {
        CAPTURE(with_gradient, every, part);
        const ActivationOptions options{.checkpointing = {every, part}};
        CHECK(planned_activation_bytes(shape, 3, 16, with_gradient, options) ==
              Model(shape, kernels, 3, 16, with_gradient, options).activation_bytes());
      }
    }
  }
}

TEST_CASE("model: a tied head without the embedding's memory is a defect", "[engine][model]") {
  ModelShape shape = testing::small_shape(Architecture::enoki);
  shape.tie_embeddings = true;
  const auto stream = kernels::make_inline_stream(1);
  Model model(shape, kernels::cpu_backend(), 1, 12, false);
  ModelMemory memory(shape);
  const Text text = text_of(12);
  const Lane lane{
      .sequences = 1, .seq_len = 12, .tokens = text.tokens.data(), .with_gradient = false};
  std::vector<float> logits(static_cast<std::size_t>(shape.vocab_size));
  UnitMemory head = memory.of(model.unit_count() - 1);
  head.tied_weights = nullptr;
  run_lane(*stream, model, memory, lane);
  CHECK_THROWS_AS(model.row_logits(*stream, head, lane.seq_len - 1, 1, logits.data()), CheckFailed);
}

TEST_CASE("model: the unit where values stop being finite can be found", "[engine][model]") {
  const ModelShape shape = testing::small_shape(Architecture::enoki);
  const auto stream = kernels::make_inline_stream(1);
  ModelMemory memory(shape);
  memory.weights[2][5] = std::numeric_limits<float>::quiet_NaN();  // block 1
  Model model(shape, kernels::cpu_backend(), 1, 12, true);
  const Text text = text_of(12);
  const Lane lane{
      .sequences = 1, .seq_len = 12, .tokens = text.tokens.data(), .with_gradient = false};
  std::vector<std::int64_t> nonfinite(model.unit_count(), -1);
  run_lane(*stream, model, memory, lane);
  for (std::size_t u = 0; u < model.unit_count(); ++u) {
    model.unit(u).count_nonfinite_output(*stream, lane, &nonfinite[u]);
  }
  CHECK(model.unit(2).name() == "block 1");
  CHECK(nonfinite[0] == 0);
  CHECK(nonfinite[1] == 0);
  CHECK(nonfinite[2] > 0);
  CHECK(nonfinite[3] > 0);
}

TEST_CASE("model: parameters lie in the flat buffers without overlap", "[engine][model]") {
  const ModelShape shape = some_shape();
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
            (parameter.is_vector() || parameter.name == "transformer.wte.weight"));
      end = parameter.offset + parameter.count();
      total += parameter.count();
    }
    CHECK(unit.element_count >= end);
  }
  CHECK(total == count_parameters(shape).total);
}

TEST_CASE(
    "head: as many rows of logits at a time as fit in 32 MiB, few in 64, many for tensor cores",
    "[engine][head]") {
  using kernels::DType;
  CHECK(head_chunk_rows(4096, 50304, DType::f32) == 128);
  CHECK(head_chunk_rows(4096, 151936, DType::f32) == 64);
  CHECK(head_chunk_rows(4096, 262144, DType::f32) == 64);
  CHECK(head_chunk_rows(4096, 64, DType::f32) == 4096);
  CHECK(head_chunk_rows(1 << 20, 64, DType::f32) == 131072);
  CHECK(head_chunk_rows(4096, 1 << 20, DType::f32) == 16);
  CHECK(head_chunk_rows(5, 50304, DType::f32) == 5);
  CHECK(head_chunk_rows(32768, 50304, DType::bf16) == 4096);
  CHECK(head_chunk_rows(1 << 20, 64, DType::bf16) == 131072);
  CHECK(head_chunk_rows(5, 50304, DType::bf16) == 5);
}

}  // namespace train::engine::model_test
