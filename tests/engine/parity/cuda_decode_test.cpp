// Decoding with latent attention on a device against the CPU: texts begin in one lane and go on
// token by token, with both forms of the state that is kept.
#include "engine/model/architectures/architectures.hpp"
#include "tests/engine/model/model_memory.hpp"
#include "tests/kernels/cuda_fixture.hpp"

namespace train::engine::cuda_decode_test {
namespace {

using kernels::testing::Side;

constexpr std::int64_t kTexts = 3;
constexpr std::int64_t kContext = 16;

ModelSpec latent_model() {
  const char* const config = R"({"model_type": "deepseek_v3", "vocab_size": 40,
      "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2,
      "num_attention_heads": 3, "num_key_value_heads": 3, "q_lora_rank": 10, "kv_lora_rank": 12,
      "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5, "n_routed_experts": 4,
      "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
      "first_k_dense_replace": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-6})";
  auto spec = spec_from_config(config, "cuda_decode_test", kContext);
  INFO((spec ? std::string() : spec.error().message));
  REQUIRE(spec.ok());
  return *spec;
}

/// Rows of a lane: tokens [first, end) of texts.
struct Rows {
  std::vector<std::int32_t> tokens, positions, texts;

  void add(std::int32_t text, std::int32_t first, std::int32_t end) {
    for (std::int32_t position = first; position < end; ++position) {
      tokens.push_back((7 * position * position + 11 * text + 3) % 40);
      positions.push_back(position);
      texts.push_back(text);
    }
  }
  [[nodiscard]] Lane lane(Side& side, CacheUse use) const {
    const std::int64_t rows = std::ssize(tokens);
    const bool extends = use == CacheUse::extend;
    return {.sequences = extends ? rows : 1,
            .seq_len = extends ? 1 : rows,
            .tokens = side.put(tokens),
            .positions = side.put(positions),
            .cache = use,
            .texts = side.put(texts),
            .with_gradient = false};
  }
};

void decode(Side& side, const ModelSpec& spec, CacheForm form) {
  const testing::ModelMemory memory(spec, 0.0F, {.seed = 5, .init_std = 0.3});
  Model model(spec, side.kernels, 1, kContext, false, {.cached_texts = kTexts, .cache_form = form});
  std::vector<UnitMemory> units;
  for (const std::vector<float>& flat : memory.weights) {
    units.push_back({.weights = side.put(flat)});
  }
  const auto run = [&](const Rows& rows, CacheUse use) {
    const Lane lane = rows.lane(side, use);
    for (std::size_t unit = 0; unit < model.unit_count(); ++unit) {
      model.unit(unit).forward(side.stream(), units[unit], lane);
    }
    float* logits = side.result(
        kernels::testing::Values(static_cast<std::size_t>(lane.rows() * spec.vocab_size)));
    model.row_logits(side.stream(), units.back(), 0, lane.rows(), logits);
    side.stream().synchronize();
  };
  const std::int32_t lengths[kTexts] = {3, 1, 6};
  Rows begun;
  for (std::int32_t text = 0; text < kTexts; ++text) {
    begun.add(text, 0, lengths[text]);
  }
  run(begun, CacheUse::fill);
  for (std::int32_t more = 0; more < 3; ++more) {
    Rows next;
    for (std::int32_t text = 0; text < kTexts; ++text) {
      next.add(text, lengths[text] + more, lengths[text] + more + 1);
    }
    run(next, CacheUse::extend);
  }
}

}  // namespace

TEST_CASE("cuda decoding: kept latents, keys and values give the CPU's logits",
          "[.gpu][engine][latent_cache]") {
  const ModelSpec spec = latent_model();
  for (const CacheForm form : {CacheForm::expanded, CacheForm::latent}) {
    const char* const name = form == CacheForm::latent ? "latents" : "keys and values";
    kernels::testing::compare_sides("decoding", name, kernels::DType::f32, 300.0,
                                    [&](Side& side) { decode(side, spec, form); });
  }
}

}  // namespace train::engine::cuda_decode_test
