// Attention beside a scan, with and without learned tokens before each text, as layers: all that a
// run does to a model works with it.

#include "engine/model/blocks/state_space/hybrid_heads_block.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/architectures/architectures.hpp"
#include "engine/model/initial_weights.hpp"
#include "kernels/head/head_loss.hpp"
#include "tests/engine/model/layer_runs.hpp"
#include "tests/engine/rank/small_model.hpp"

namespace train::engine::hybrid_heads_block_test {
namespace {

using testing::run;
using testing::Text;
using testing::Trace;
using Options = WorldStep::Options;

/// Layers 1 and 2 read the keys of layer 0, layer 4 has its own and sees all.
ModelSpec small_model(int learned_tokens) {
  auto spec =
      spec_from_config(fmt::format(R"({{"model_type": "hymba", "vocab_size": 41, "hidden_size": 16,
          "intermediate_size": 24, "num_hidden_layers": 5, "num_attention_heads": 4,
          "num_key_value_heads": 2, "max_position_embeddings": 64, "num_memory_tokens": {},
          "sliding_window": 3, "global_attn_idx": [4], "kv_reuse_group": [[0, 1, 2]],
          "mamba_d_state": 4, "mamba_dt_rank": 3, "tie_word_embeddings": false}})",
                                   learned_tokens),
                       "c.json", 0);
  REQUIRE(spec.ok());
  return *spec;
}

std::vector<ModelSpec> all_models() { return {small_model(0), small_model(5)}; }

Options options_of(const ModelSpec& model) {
  Options options = testing::small_options(Architecture::enoki);
  options.model = model;
  options.batch.lanes = 4;
  options.eval_lanes = 3;
  return options;
}

std::vector<std::vector<float>> weights_of(const ModelSpec& spec) {
  std::vector<std::vector<float>> weights;
  for (const UnitParameters& unit : describe_units(spec)) {
    auto& values = weights.emplace_back(static_cast<std::size_t>(unit.element_count));
    for (const Parameter& parameter : unit.parameters) {
      fill_initial_rows(parameter, spec, {.seed = 3, .init_std = 0.5}, 0, parameter.rows(),
                        std::span(values).subspan(static_cast<std::size_t>(parameter.offset),
                                                  static_cast<std::size_t>(parameter.count())));
    }
  }
  return weights;
}

/// Gradients of all units by two texts of 11 tokens. A lane of other tokens goes before it.
std::vector<float> gradients_of(const ModelSpec& spec, const ActivationOptions& options) {
  constexpr std::int64_t kTexts = 2;
  constexpr std::int64_t kLength = 11;
  Model model(spec, kernels::cpu_backend(), kTexts, kLength, /*with_gradient=*/true, options);
  const auto stream = kernels::make_inline_stream(1);
  const auto weights = weights_of(spec);
  std::vector<std::vector<float>> gradients;
  for (const UnitParameters& unit : describe_units(spec)) {
    gradients.emplace_back(static_cast<std::size_t>(unit.gradient_count()));
  }
  const std::size_t lowest = lowest_trained_unit(spec);
  for (const std::int32_t of_lane : {1, 0}) {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> targets;
    for (std::int32_t i = 0; i < kTexts * kLength; ++i) {
      tokens.push_back((i * i * 3 + i + of_lane * 7) % 41);
      targets.push_back((i * 5 + 2 + of_lane) % 41);
    }
    kernels::LossSums sums;
    const Lane lane{.sequences = kTexts,
                    .seq_len = kLength,
                    .tokens = tokens.data(),
                    .targets = targets.data(),
                    .sums = &sums};
    const auto memory = [&](std::size_t unit) {
      return UnitMemory{.weights = weights[unit].data(), .gradient = gradients[unit].data()};
    };
    for (std::size_t unit = 0; unit < model.unit_count(); ++unit) {
      model.unit(unit).forward(*stream, memory(unit), lane);
    }
    for (std::size_t unit = model.unit_count(); unit > lowest; --unit) {
      model.unit(unit - 1).backward(*stream, memory(unit - 1), lane);
    }
    stream->synchronize();
  }
  std::vector<float> all;
  for (const auto& unit : gradients) {
    all.insert(all.end(), unit.begin(), unit.end());
  }
  return all;
}

/// Logits of one lane of documents, whose rows have these positions.
std::vector<float> logits_of(const ModelSpec& spec, const std::vector<std::int32_t>& tokens,
                             const std::vector<std::int32_t>& positions) {
  const auto rows = static_cast<std::int64_t>(tokens.size());
  Model model(spec, kernels::cpu_backend(), 1, rows, /*with_gradient=*/false);
  const auto stream = kernels::make_inline_stream(1);
  const auto weights = weights_of(spec);
  const Lane lane{.sequences = 1,
                  .seq_len = rows,
                  .tokens = tokens.data(),
                  .positions = positions.data(),
                  .with_gradient = false};
  for (std::size_t unit = 0; unit < model.unit_count(); ++unit) {
    model.unit(unit).forward(*stream, {.weights = weights[unit].data()}, lane);
  }
  std::vector<float> logits(static_cast<std::size_t>(rows * spec.vocab_size));
  model.row_logits(*stream, {.weights = weights.back().data()}, 0, rows, logits.data());
  stream->synchronize();
  return logits;
}

}  // namespace

TEST_CASE("hybrid heads block: the gradient is the slope of the loss", "[engine][state_space]") {
  Text text(small_model(0));
  for (std::size_t unit = 0; unit <= 5; ++unit) {
    const auto [expected, found] = text.slopes(unit);
    CAPTURE(unit);
    CHECK(found == Approx(expected).epsilon(2e-3));
  }
}

TEST_CASE(
    "hybrid heads block: where the layer that makes the keys is frozen, others learn the same",
    "[engine][state_space][P1]") {
  for (ModelSpec spec : all_models()) {
    const std::vector<float> all = gradients_of(spec, {});
    spec.frozen = {"embedding"};
    for (const char* below : {"block 0", "block 1", "block 2"}) {
      spec.frozen.emplace_back(below);
      const std::vector<float> above = gradients_of(spec, {});
      CAPTURE(spec.prefix_tokens, below);
      REQUIRE(above.size() < all.size());
      CHECK(std::equal(above.begin(), above.end(), all.end() - std::ssize(above)));
    }
  }
}

TEST_CASE("hybrid heads block: what is kept or computed again changes no gradient",
          "[engine][state_space][P1]") {
  for (ModelSpec spec : all_models()) {
    for (const bool part : {false, true}) {
      spec.frozen = part ? std::vector<std::string>{"embedding", "block 0", "block 1"}
                         : std::vector<std::string>();
      const std::vector<float> kept = gradients_of(spec, {.lean = false});
      CHECK(std::ranges::any_of(kept, [](float value) { return value != 0.0F; }));
      for (const bool lean : {false, true}) {
        for (const std::int64_t every : {0, 1, 2, 3}) {
          for (const char* again : {"block", "attention", "mlp"}) {
            CAPTURE(spec.prefix_tokens, part, lean, every, again);
            CHECK(gradients_of(spec, {.checkpointing = {every, again}, .lean = lean}) == kept);
          }
        }
      }
    }
  }
}

TEST_CASE("hybrid heads block: neither ranks nor what is computed again show",
          "[engine][state_space][P1]") {
  for (const ModelSpec& spec : all_models()) {
    const Trace alone = run(options_of(spec));
    REQUIRE(alone.losses.back() < alone.losses.front());
    for (const std::int64_t ranks : {1, 2, 3, 4}) {
      for (const char* strategy : {"none", "full"}) {
        CAPTURE(spec.prefix_tokens, ranks, strategy);
        Options options = options_of(spec);
        options.parallel.ranks = ranks;
        options.parallel.strategy = strategy;
        options.memory.activation_checkpointing = ranks % 2 == 0 ? "all" : "2";
        CHECK(run(options) == alone);
      }
    }
  }
}

TEST_CASE("hybrid heads block: adapters of every map, and frozen parts, on any ranks",
          "[engine][state_space][P1]") {
  for (ModelSpec spec : all_models()) {
    for (const bool lora : {false, true}) {
      spec.lora = lora ? LoraSpec{.rank = 2, .targets = {"all-linear"}} : LoraSpec();
      spec.frozen = lora ? std::vector<std::string>()
                         : std::vector{std::string("*A_log*"), std::string("*memory_tokens")};
      const Trace alone = run(options_of(spec));
      REQUIRE(alone.losses.back() < alone.losses.front());
      Options options = options_of(spec);
      options.parallel.ranks = 3;
      options.parallel.strategy = "full";
      CHECK(run(options) == alone);
    }
  }
}

TEST_CASE("hybrid heads block: a document's rows have the bits of it alone, whatever is before it",
          "[engine][state_space][P1]") {
  const ModelSpec spec = small_model(0);
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

TEST_CASE("hybrid heads block: its memory is planned, with and without texts that are written",
          "[engine][state_space]") {
  for (const ModelSpec& spec : all_models()) {
    for (const char* part : {"block", "mlp", "attention"}) {
      for (const std::int64_t texts : {0, 3}) {
        const ActivationOptions options{.checkpointing = {1, part}, .cached_texts = texts};
        const bool with_gradient = texts == 0;
        CHECK(
            planned_activation_bytes(spec, 3, 16, with_gradient, options) ==
            Model(spec, kernels::cpu_backend(), 3, 16, with_gradient, options).activation_bytes());
      }
    }
  }
}

}  // namespace train::engine::hybrid_heads_block_test
