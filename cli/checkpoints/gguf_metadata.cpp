#include "cli/checkpoints/gguf_metadata.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "checkpoint/models/gguf_rope.hpp"
#include "engine/model/blocks/attention_block.hpp"
#include "engine/model/blocks/latent_attention_spec.hpp"
#include "engine/model/blocks/mlp_block.hpp"
#include "engine/model/blocks/state_space/mamba2_block.hpp"
#include "engine/model/blocks/state_space/mamba_block.hpp"
#include "engine/model/config_json/rope_config.hpp"
#include "engine/model/experts/experts_block.hpp"

namespace train::cli {
namespace {

using engine::AttentionSpec;
using engine::ExpertsSpec;
using engine::LatentAttentionSpec;
using engine::Mamba2Spec;
using engine::MambaSpec;
using engine::MlpSpec;
using Json = nlohmann::ordered_json;

/// Metadata in the making: the first thing that llama.cpp cannot express is kept.
class Maker {
 public:
  Maker(const engine::ModelSpec& model, const Json& config, std::string_view architecture)
      : model_(&model), config_(&config), architecture_(architecture) {
    text("general.architecture", std::string(architecture));
    text("general.type", "model");
  }

  [[nodiscard]] const engine::ModelSpec& model() const { return *model_; }
  [[nodiscard]] const Json& config() const { return *config_; }
  [[nodiscard]] std::string_view architecture() const { return architecture_; }

  void text(std::string key, std::string value) {
    made_.fields.push_back({std::move(key), std::move(value)});
  }
  void count(std::string_view key, std::int64_t value) {
    own(key, static_cast<std::uint32_t>(value));
  }
  void real(std::string_view key, double value) { own(key, static_cast<float>(value)); }
  void own(std::string_view key, storage::GgufFieldValue value) {
    made_.fields.push_back({fmt::format("{}.{}", architecture_, key), std::move(value)});
  }
  void constant(std::string_view name, std::vector<float> values) {
    made_.constants.push_back({std::string(name), std::move(values)});
  }
  void note(std::string sentence) { made_.notes.push_back(std::move(sentence)); }
  void refuse(const std::string& what) {
    if (mistake_.empty()) {
      mistake_ = fmt::format("llama.cpp's architecture {} cannot express {}", architecture_, what);
    }
  }
  void require(bool holds, const std::string& what) {
    if (!holds) {
      refuse(what);
    }
  }

  Result<GgufModelMetadata> finish() && {
    if (!mistake_.empty()) {
      return user_error(mistake_ + "; export it with --format hf");
    }
    return std::move(made_);
  }

 private:
  const engine::ModelSpec* model_;
  const Json* config_;
  std::string architecture_;
  GgufModelMetadata made_;
  std::string mistake_;
};

/// Attention of layer `index`, which every family here has but those of latent attention.
const AttentionSpec& attention_of(const engine::ModelSpec& model, std::size_t index = 0) {
  return engine::block_of<AttentionSpec>(model.layers.at(index));
}

double real_of(const Json& object, const char* key, double otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : otherwise;
}

std::int64_t count_of(const Json& object, const char* key, std::int64_t otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>()
                                                             : otherwise;
}

/// Settings of one rope; for a model with two that of layers which see all.
Json rope_settings(const engine::ModelSpec& model, const char* kind = "full_attention") {
  const Json keys = Json::parse(model.rope_keys);
  const Json& all = keys.at("rope_parameters");
  return all.contains(kind) ? all.at(kind) : all;
}

bool rounds_yarn(const Json& settings) {
  return !settings.contains("truncate") || settings["truncate"] != false;
}

/// Yarn without the factor of cosine and sine.
void add_yarn_bounds(Maker& maker, const Json& settings) {
  maker.own("rope.scaling.type", "yarn");
  maker.real("rope.scaling.factor", real_of(settings, "factor", 1.0));
  maker.count("rope.scaling.original_context_length",
              count_of(settings, "original_max_position_embeddings", maker.model().max_positions));
  for (const auto& [key, of] : {std::pair("rope.scaling.yarn_beta_fast", "beta_fast"),
                                std::pair("rope.scaling.yarn_beta_slow", "beta_slow")}) {
    if (settings.contains(of) && settings[of].is_number()) {
      maker.real(key, settings[of].get<double>());
    }
  }
}

void add_yarn(Maker& maker, const Json& settings, double gain) {
  add_yarn_bounds(maker, settings);
  // llama.cpp multiplies this by the rule's own factor.
  const double more = gain / engine::yarn_gain(real_of(settings, "factor", 1.0), 1.0);
  constexpr double kNear = 1e-6;
  if (std::abs(more - 1.0) > kNear) {
    maker.real("rope.scaling.attn_factor", more);
  }
}

/// Lists that say a divisor for each frequency.
std::vector<float> divisors_of(const Json& settings, const char* key) {
  std::vector<float> values;
  for (const Json& value : settings.at(key)) {
    values.push_back(static_cast<float>(value.get<double>()));
  }
  return values;
}

/// Kind and settings of the first rope.
void add_rope(Maker& maker) {
  const engine::ModelSpec& model = maker.model();
  const Json settings = rope_settings(model);
  const engine::RopeSpec& rope = model.ropes.front();
  const std::string kind = settings.value("rope_type", "default");
  maker.real("rope.freq_base", rope.theta);
  if (kind == "linear") {
    maker.own("rope.scaling.type", "linear");
    maker.real("rope.scaling.factor", real_of(settings, "factor", 1.0));
  } else if (kind == "yarn") {
    maker.require(rounds_yarn(settings) || model.architecture == "gpt_oss",
                  "rope_parameters.truncate false");
    add_yarn(maker, settings, static_cast<double>(rope.factor));
  } else if (kind == "llama3") {
    maker.require(maker.architecture() == "llama", "rope type llama3");
    maker.constant(checkpoint::kGgufRopeTensors[0],
                   checkpoint::llama3_divisors(
                       {.context = real_of(settings, "original_max_position_embeddings", 8192.0),
                        .low = real_of(settings, "low_freq_factor", 1.0),
                        .high = real_of(settings, "high_freq_factor", 4.0)},
                       real_of(settings, "factor", 1.0), rope.theta,
                       static_cast<std::size_t>(rope.rotary_dim / 2)));
  } else if (kind == "longrope") {
    const bool llama = maker.architecture() == "llama";
    maker.require(llama || maker.architecture() == "phi3", "rope type longrope");
    const std::int64_t original =
        count_of(settings, "original_max_position_embeddings",
                 count_of(maker.config(), "original_max_position_embeddings", model.max_positions));
    if (llama) {  // For Phi-3 llama.cpp takes the factors without these.
      maker.own("rope.scaling.type", "longrope");
      maker.count("rope.scaling.original_context_length", original);
    }
    maker.note(fmt::format(
        "llama.cpp takes this rope's factors for long texts where its context (num_ctx) is larger "
        "than {} tokens, however long the text is: give it a smaller one for shorter texts",
        original));
    maker.constant(checkpoint::kGgufRopeTensors[1], divisors_of(settings, "short_factor"));
    maker.constant(checkpoint::kGgufRopeTensors[2], divisors_of(settings, "long_factor"));
    maker.real("rope.scaling.attn_factor", static_cast<double>(rope.factor));
  } else {
    maker.require(kind == "default", fmt::format("rope type {}", kind));
  }
}

/// The one window of layers for which `windowed` is true; 0: none has one. Refuses others.
std::int64_t window_of(Maker& maker, const std::function<bool(std::size_t)>& windowed) {
  std::int64_t window = 0;
  for (std::size_t i = 0; i < maker.model().layers.size(); ++i) {
    window = std::max(window, attention_of(maker.model(), i).window);
  }
  for (std::size_t i = 0; window > 0 && i < maker.model().layers.size(); ++i) {
    const std::int64_t own = attention_of(maker.model(), i).window;
    maker.require(own == (windowed(i) ? window : 0),
                  fmt::format("a window of {} in layer {} beside others of {}", own, i, window));
  }
  return window;
}

/// Refuses a scaled rope of windowed layers, which llama.cpp scales in none.
void check_windowed_rope(Maker& maker) {
  const Json settings = rope_settings(maker.model(), "sliding_attention");
  maker.require(settings.value("rope_type", "default") == "default",
                "scaled ropes of windowed layers");
}

bool every_layer(std::size_t /*layer*/) { return true; }

/// Period of windowed layers: the last of `period` sees all.
auto but_every(std::size_t period) {
  return [period](std::size_t layer) { return (layer + 1) % period != 0; };
}

/// Refuses an activation that llama.cpp does not have for the family.
void check_activation(Maker& maker) {
  using kernels::ActivationKind;
  const std::string_view family = maker.architecture();
  const auto fits = [family](ActivationKind kind) {
    // GPT-NeoX's is computed by hyperbolic tangents there, from a table that errs more.
    return family == "gptneox" ? kind == ActivationKind::gelu || kind == ActivationKind::gelu_tanh
           : family == "gpt2" || family.starts_with("gemma") ? kind == ActivationKind::gelu_tanh
           : family == "gpt-oss" ? kind == ActivationKind::clamped_swiglu
                                 : kind == ActivationKind::silu;
  };
  for (const engine::LayerSpec& layer : maker.model().layers) {
    const auto* mlp = engine::find_block<MlpSpec>(layer);
    const auto* experts = engine::find_block<ExpertsSpec>(layer);
    maker.require((mlp == nullptr || fits(mlp->activation)) &&
                      (experts == nullptr || fits(experts->activation)),
                  "this activation of its MLPs");
  }
}

/// Sizes of layers, and the norms' constant.
void add_sizes(Maker& maker, std::int64_t heads) {
  const engine::ModelSpec& model = maker.model();
  maker.count("block_count", static_cast<std::int64_t>(model.layers.size()));
  maker.count("context_length",
              model.max_positions > 0 ? model.max_positions : model.position_rows);
  maker.count("embedding_length", model.embedding_dim);
  maker.count("vocab_size", model.vocab_size);
  const auto* mlp = engine::find_block<MlpSpec>(model.layers.front());
  const auto* experts = engine::find_block<ExpertsSpec>(model.layers.front());
  const std::int64_t hidden = mlp != nullptr       ? mlp->hidden
                              : experts != nullptr ? experts->hidden
                                                   : 0;
  maker.count("feed_forward_length", count_of(maker.config(), "intermediate_size", hidden));
  maker.count("attention.head_count", heads);
  const bool rms = model.final_norm.kind == kernels::NormKind::rms;
  maker.real(rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
             static_cast<double>(model.final_norm.eps));
  maker.require(model.embedding_scale == 1.0F || model.architecture.starts_with("gemma"),
                "a scale of the embedding");
  maker.require(model.residual_scale == 1.0F, "a scale of residual branches");
  check_activation(maker);
}

/// Sizes of families that follow Llama.
void add_decoder(Maker& maker) {
  const AttentionSpec& attention = attention_of(maker.model());
  add_sizes(maker, attention.heads);
  maker.count("attention.head_count_kv", attention.kv_heads);
  maker.count("attention.key_length", attention.head_dim);
  maker.count("attention.value_length", attention.head_dim);
  add_rope(maker);
}

/// Refuses heads that are wider or narrower than the model together.
void check_width(Maker& maker) {
  const AttentionSpec& attention = attention_of(maker.model());
  maker.require(attention.heads * attention.head_dim == maker.model().embedding_dim,
                "heads that are not as wide as the model together");
}

/// Refuses a model without a head of its own, which llama.cpp asks for in some families.
void check_head(Maker& maker) {
  maker.require(!maker.model().tie_embeddings, "an embedding that is the head");
}

/// Refuses attention without biases, which llama.cpp asks for in some families.
void check_biases(Maker& maker) {
  const AttentionSpec& attention = attention_of(maker.model());
  maker.require(attention.projection_bias && attention.output_bias, "attention without biases");
}

/// Refuses a bias of attention's output, which llama.cpp has in few families.
void check_output(Maker& maker) {
  maker.require(!attention_of(maker.model()).output_bias, "a bias of attention's output");
}

/// Refuses a scale of scores other than llama.cpp's for the family.
void check_scale(Maker& maker, std::int64_t of) {
  const AttentionSpec& attention = attention_of(maker.model());
  const double scale = attention.scale == 0.0F
                           ? 1.0 / std::sqrt(static_cast<double>(attention.head_dim))
                           : static_cast<double>(attention.scale);
  constexpr double kNear = 1e-5;
  maker.require(std::abs(scale * std::sqrt(static_cast<double>(of)) - 1.0) < kNear,
                fmt::format("scores scaled by {:.6g}, where it takes 1 / sqrt({})", scale, of));
}

/// Experts of all layers alike, with a router that the family's files mean.
const ExpertsSpec* add_experts(Maker& maker, kernels::RouterKind router) {
  const auto* experts = engine::find_block<ExpertsSpec>(maker.model().layers.front());
  for (const engine::LayerSpec& layer : maker.model().layers) {
    const auto* own = engine::find_block<ExpertsSpec>(layer);
    maker.require(own != nullptr && experts != nullptr, "layers of experts beside layers without");
    if (own == nullptr || experts == nullptr) {
      return nullptr;
    }
    maker.require(own->router == router, "this choice of norm_topk_prob");
  }
  maker.count("expert_count", experts->experts);
  maker.count("expert_used_count", experts->slots);
  return experts;
}

void note_window(Maker& maker, std::int64_t window) {
  if (window > 0) {
    maker.count("attention.sliding_window", window);
    maker.note(
        fmt::format("llama.cpp reads no window for this family: texts of more than {} "
                    "tokens are computed otherwise there",
                    window));
  }
}

void add_llama(Maker& maker) {
  add_decoder(maker);
  maker.count("rope.dimension_count", maker.model().ropes.front().rotary_dim);
  note_window(maker, window_of(maker, every_layer));
}

void add_mixtral(Maker& maker) {
  add_llama(maker);
  add_experts(maker, kernels::RouterKind::softmax_normalised);
}

void add_qwen(Maker& maker) {
  add_decoder(maker);
  check_output(maker);
  maker.require(window_of(maker, every_layer) == 0, "sliding windows");
}

void add_qwen2(Maker& maker) {
  add_qwen(maker);
  check_width(maker);
}

void add_qwen_experts(Maker& maker, kernels::RouterKind router) {
  add_qwen(maker);
  if (const ExpertsSpec* experts = add_experts(maker, router)) {
    maker.count("expert_feed_forward_length", experts->hidden);
    if (experts->shared.hidden > 0) {
      maker.count("expert_shared_feed_forward_length", experts->shared.hidden);
    }
  }
}

void add_qwen2_moe(Maker& maker) {
  add_qwen_experts(maker, kernels::RouterKind::softmax);
  check_width(maker);
  check_head(maker);
}

void add_qwen3_moe(Maker& maker) {
  add_qwen_experts(maker, kernels::RouterKind::softmax_normalised);
}

void add_olmoe(Maker& maker) {
  const AttentionSpec& attention = attention_of(maker.model());
  add_qwen(maker);
  check_width(maker);
  check_head(maker);
  maker.require(attention.kv_heads == attention.heads, "heads that share keys");
  add_experts(maker, kernels::RouterKind::softmax);
  const auto clip = maker.config().find("clip_qkv");
  maker.require(clip == maker.config().end() || clip->is_null(), "clip_qkv");
}

void add_gemma2(Maker& maker) {
  constexpr std::size_t kLayersOf27b = 46;
  const engine::ModelSpec& model = maker.model();
  const AttentionSpec& attention = attention_of(model);
  add_decoder(maker);
  check_output(maker);
  maker.require(model.tie_embeddings, "a head of its own");
  maker.real("attn_logit_softcapping", static_cast<double>(attention.softcap));
  maker.real("final_logit_softcapping", static_cast<double>(model.logit_softcap));
  maker.require(attention.softcap > 0.0F && model.logit_softcap > 0.0F, "scores without a cap");
  const std::int64_t window = window_of(maker, but_every(2));
  maker.require(window > 0, "layers without windows");
  maker.count("attention.sliding_window", window);
  check_scale(maker, model.layers.size() == kLayersOf27b ? model.embedding_dim / attention.heads
                                                         : attention.head_dim);
}

void add_gemma3(Maker& maker) {
  constexpr std::size_t kLayersOf27b = 62;
  const engine::ModelSpec& model = maker.model();
  const AttentionSpec& attention = attention_of(model);
  add_decoder(maker);
  check_output(maker);
  maker.real("rope.freq_base_swa", model.ropes.back().theta);
  check_windowed_rope(maker);
  const std::int64_t window = window_of(maker, but_every(6));
  maker.count("attention.sliding_window", window);
  if (model.logit_softcap > 0.0F) {
    maker.real("final_logit_softcapping", static_cast<double>(model.logit_softcap));
  }
  check_scale(maker, model.layers.size() == kLayersOf27b ? model.embedding_dim / attention.heads
                                                         : attention.head_dim);
}

void add_phi3(Maker& maker) {
  const engine::ModelSpec& model = maker.model();
  add_decoder(maker);
  check_output(maker);
  check_width(maker);
  maker.count("rope.dimension_count", model.ropes.front().rotary_dim);
  if (rope_settings(model).value("rope_type", "default") != "yarn") {
    maker.count("rope.scaling.original_context_length",
                count_of(maker.config(), "original_max_position_embeddings", model.max_positions));
  }
  note_window(maker, window_of(maker, every_layer));
}

void add_olmo(Maker& maker) {
  const engine::ModelSpec& model = maker.model();
  add_decoder(maker);
  check_output(maker);
  check_width(maker);
  check_head(maker);
  std::vector<bool> windowed;
  std::int64_t window = 0;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const std::int64_t own = attention_of(model, i).window;
    windowed.push_back(own > 0);
    maker.require(own == 0 || window == 0 || own == window, "windows of several sizes");
    window = std::max(window, own);
  }
  if (window > 0) {
    // There windowed layers have the base of the others, whatever the file says, and no scaling.
    maker.require(model.ropes.back().theta == model.ropes.front().theta,
                  fmt::format("a rope_theta of {} in windowed layers beside {} in others",
                              model.ropes.back().theta, model.ropes.front().theta));
    check_windowed_rope(maker);
    maker.count("attention.sliding_window", window);
    maker.own("attention.sliding_window_pattern", std::move(windowed));
  }
}

void add_gpt2(Maker& maker) {
  add_sizes(maker, attention_of(maker.model()).heads);
  maker.require(maker.model().positions.size() > 0, "positions that are not learned");
}

void add_gpt_neox(Maker& maker) {
  const AttentionSpec& attention = attention_of(maker.model());
  add_sizes(maker, attention.heads);
  check_head(maker);
  check_biases(maker);
  maker.count("rope.dimension_count", maker.model().ropes.front().rotary_dim);
  maker.own("use_parallel_residual", maker.model().layers.front().parallel);
  add_rope(maker);
}

/// Experts behind dense layers, chosen by sigmoids. llama.cpp has no word for a choice of all
/// groups, which is that of one group.
const ExpertsSpec* add_sigmoid_experts(Maker& maker) {
  constexpr std::uint32_t kSigmoid = 2;  // llama.cpp's number of it.
  const auto& layers = maker.model().layers;
  const auto* experts = engine::find_block<ExpertsSpec>(layers.back());
  const auto first = std::ranges::find_if(layers, [](const engine::LayerSpec& layer) {
    return engine::find_block<ExpertsSpec>(layer) != nullptr;
  });
  if (experts == nullptr) {
    maker.refuse("layers without experts alone");
    return nullptr;
  }
  const std::int64_t groups = experts->groups == experts->kept_groups ? 1 : experts->groups;
  maker.require(groups < experts->experts, "groups of one expert");
  maker.count("leading_dense_block_count", std::distance(layers.begin(), first));
  maker.count("expert_count", experts->experts);
  maker.count("expert_used_count", experts->slots);
  maker.count("expert_group_count", groups);
  maker.count("expert_group_used_count", groups == 1 ? 1 : experts->kept_groups);
  maker.count("expert_feed_forward_length", experts->hidden);
  maker.count("expert_shared_count", experts->shared.hidden / experts->hidden);
  maker.own("expert_gating_func", kSigmoid);
  maker.real("expert_weights_scale", static_cast<double>(experts->scale));
  if (!maker.model().kept.empty()) {
    maker.note("layers that predict further tokens are left out: llama.cpp runs without them");
  }
  return experts;
}

bool is_normalised(const ExpertsSpec& experts) {
  return experts.router == kernels::RouterKind::sigmoid_normalised;
}

/// llama.cpp takes the square of yarn's gain into the scores, and turns by one without it.
void add_latent_rope(Maker& maker, const LatentAttentionSpec& attention) {
  constexpr double kNear = 1e-5;
  const engine::RopeSpec& rope = maker.model().ropes.front();
  const Json settings = rope_settings(maker.model());
  const std::string kind = settings.value("rope_type", "default");
  const double all = real_of(settings, "mscale_all_dim", 0.0);
  const bool yarn = kind == "yarn";
  maker.require(yarn || kind == "default", fmt::format("rope type {} of latent attention", kind));
  maker.require(rope.pairing == kernels::RopePairing::interleaved, "rope_interleave false");
  maker.real("rope.freq_base", rope.theta);
  maker.count("rope.dimension_count", attention.rope_dim);
  if (yarn) {
    maker.require(rounds_yarn(settings), "rope_parameters.truncate false");
    maker.require(all != 0.0 && std::abs(static_cast<double>(rope.factor) - 1.0) < kNear,
                  "yarn whose mscale is not mscale_all_dim");
    add_yarn_bounds(maker, settings);
    maker.real("rope.scaling.yarn_log_multiplier", 0.1 * all);
  }
}

/// DeepSeek-V3. llama.cpp computes over latents: one head of keys and values as wide as these.
void add_deepseek(Maker& maker) {
  const auto& layers = maker.model().layers;
  const auto& attention = engine::block_of<LatentAttentionSpec>(layers.front());
  // llama.cpp takes models of as many layers for V2-Lite and its like, which have no such latent.
  const bool lite = layers.size() == 26 || layers.size() == 27 ||
                    (layers.size() == 48 && maker.model().vocab_size == 128256);
  maker.require(!lite || attention.query_rank == 0,
                fmt::format("a latent of queries in a model of {} layers", layers.size()));
  maker.require(!attention.bias, "biases of latent attention");
  maker.require(attention.latent_eps == maker.model().final_norm.eps,
                fmt::format("norms of latents with an epsilon of {:.6g} beside others of {:.6g}",
                            attention.latent_eps, maker.model().final_norm.eps));
  add_sizes(maker, attention.heads);
  maker.count("attention.head_count_kv", 1);
  maker.count("attention.q_lora_rank", attention.query_rank);
  maker.count("attention.kv_lora_rank", attention.key_rank);
  maker.count("attention.key_length", attention.key_rank + attention.rope_dim);
  maker.count("attention.value_length", attention.key_rank);
  maker.count("attention.key_length_mla", attention.plain_dim + attention.rope_dim);
  maker.count("attention.value_length_mla", attention.value_dim);
  add_latent_rope(maker, attention);
  if (const ExpertsSpec* experts = add_sigmoid_experts(maker)) {
    maker.require(experts->shared.hidden > 0, "experts without a shared one");
    if (is_normalised(*experts)) {
      maker.own("expert_weights_norm", true);
    }
  }
}

void add_glm4_moe(Maker& maker) {
  add_decoder(maker);
  check_output(maker);
  maker.count("rope.dimension_count", maker.model().ropes.front().rotary_dim);
  if (const ExpertsSpec* experts = add_sigmoid_experts(maker)) {
    maker.own("expert_weights_norm", is_normalised(*experts));
  }
}

/// Windows where they are not in every second layer, the first among them.
void add_alternating_windows(Maker& maker) {
  const auto& layers = maker.model().layers;
  std::vector<bool> windowed;
  std::int64_t window = 0;
  bool alternating = true;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::int64_t own = attention_of(maker.model(), i).window;
    windowed.push_back(own > 0);
    alternating = alternating && (own > 0) == (i % 2 == 0);
    maker.require(own == 0 || window == 0 || own == window, "windows of several sizes");
    window = std::max(window, own);
  }
  maker.require(window > 0, "layers without windows");
  maker.count("attention.sliding_window", window);
  if (!alternating) {
    maker.own("attention.sliding_window_pattern", std::move(windowed));
  }
}

void add_gpt_oss(Maker& maker) {
  constexpr float kAlpha = 1.702F;
  constexpr float kLimit = 7.0F;
  const engine::ModelSpec& model = maker.model();
  const AttentionSpec& attention = attention_of(model);
  add_decoder(maker);
  add_alternating_windows(maker);
  const ExpertsSpec* experts = add_experts(maker, kernels::RouterKind::softmax_normalised);
  if (experts != nullptr) {
    maker.count("expert_feed_forward_length", experts->hidden);
    maker.require(experts->alpha == kAlpha && experts->limit == kLimit,
                  "this swiglu_alpha or swiglu_limit");
  }
  check_biases(maker);
  check_head(maker);
  maker.require(model.ropes.front().rotary_dim == attention.head_dim, "a partial rope");
  const Json settings = rope_settings(model);
  if (settings.value("rope_type", "default") == "yarn" && !rounds_yarn(settings)) {
    maker.note(
        "llama.cpp rounds the bounds of yarn, which this model does not: some frequencies "
        "differ a little there");
  }
}

/// Adds the keys that scans of both kinds have.
template <class Mixer>
void add_scans(Maker& maker, const Mixer& mixer, std::int64_t inner, std::int64_t rank) {
  maker.count("ssm.conv_kernel", mixer.taps);
  maker.count("ssm.inner_size", inner);
  maker.count("ssm.state_size", mixer.states);
  maker.count("ssm.time_step_rank", rank);
  maker.require(!mixer.bias, "biases of the scans' maps");
  maker.require(mixer.conv_bias, "convolutions without biases");
}

/// Sizes of a model of scans alone. llama.cpp's converter writes that context, too.
void add_scan_sizes(Maker& maker) {
  constexpr std::int64_t any_context = std::int64_t{1} << 20;
  const engine::ModelSpec& model = maker.model();
  maker.count("block_count", static_cast<std::int64_t>(model.layers.size()));
  maker.count("context_length", any_context);
  maker.count("embedding_length", model.embedding_dim);
  maker.count("vocab_size", model.vocab_size);
  maker.count("feed_forward_length", 0);
  maker.count("attention.head_count", 0);
  maker.real("attention.layer_norm_rms_epsilon", static_cast<double>(model.final_norm.eps));
}

/// Channels of Mamba's mixer, of which llama.cpp has twice the model's width alone.
void add_channels(Maker& maker, const MambaSpec& mixer) {
  add_scans(maker, mixer, mixer.inner, mixer.step_rank);
  maker.require(mixer.inner == 2 * maker.model().embedding_dim,
                "another expand than 2 of Mamba's channels");
}

void add_mamba(Maker& maker) {
  const auto& mixer = engine::block_of<MambaSpec>(maker.model().layers.front());
  add_scan_sizes(maker);
  add_channels(maker, mixer);
  const bool norms = mixer.norms == engine::ScanNorms::plain;
  maker.own("ssm.dt_b_c_rms", norms);
  if (norms && mixer.norm_eps != maker.model().final_norm.eps) {
    maker.note(
        fmt::format("llama.cpp has one epsilon for all norms, {:.6g}: those of steps, B and "
                    "C have {:.6g} here",
                    maker.model().final_norm.eps, mixer.norm_eps));
  }
}

void add_mamba2(Maker& maker) {
  const auto& mixer = engine::block_of<Mamba2Spec>(maker.model().layers.front());
  add_scan_sizes(maker);
  add_scans(maker, mixer, mixer.inner(), mixer.heads);
  maker.count("ssm.group_count", mixer.groups);
  maker.require(mixer.least_step == 0.0F && std::isinf(mixer.most_step), "time_step_limit");
}

/// Jamba: layers without attention have no heads of keys.
void add_jamba(Maker& maker) {
  const engine::ModelSpec& model = maker.model();
  const AttentionSpec* attention = nullptr;
  const MambaSpec* mixer = nullptr;
  const ExpertsSpec* experts = nullptr;
  std::vector<std::int32_t> kv_heads;
  for (const engine::LayerSpec& layer : model.layers) {
    const auto* own = engine::find_block<AttentionSpec>(layer);
    kv_heads.push_back(own == nullptr ? 0 : static_cast<std::int32_t>(own->kv_heads));
    attention = own == nullptr ? attention : own;
    mixer = mixer == nullptr ? engine::find_block<MambaSpec>(layer) : mixer;
    experts = experts == nullptr ? engine::find_block<ExpertsSpec>(layer) : experts;
  }
  if (attention == nullptr || mixer == nullptr) {
    maker.refuse("a Jamba of one kind of layers");
    return;
  }
  const std::int64_t heads = attention->heads;
  maker.require(heads * attention->head_dim == model.embedding_dim,
                "heads that are not as wide as the model together");
  maker.count("block_count", static_cast<std::int64_t>(model.layers.size()));
  maker.count("context_length", model.max_positions);
  maker.count("embedding_length", model.embedding_dim);
  maker.count("vocab_size", model.vocab_size);
  maker.count("feed_forward_length", count_of(maker.config(), "intermediate_size", 0));
  maker.count("attention.head_count", heads);
  maker.own("attention.head_count_kv", std::move(kv_heads));
  maker.real("attention.layer_norm_rms_epsilon", static_cast<double>(model.final_norm.eps));
  add_channels(maker, *mixer);
  maker.count("expert_count", experts == nullptr ? 1 : experts->experts);
  maker.count("expert_used_count", experts == nullptr ? 1 : experts->slots);
}

struct Family {
  std::string_view architecture;  ///< ModelSpec's.
  std::string_view name;          ///< llama.cpp's.
  void (*add)(Maker& maker);
};
constexpr std::array kFamilies = {
    Family{"llama", "llama", add_llama},
    Family{"mistral", "llama", add_llama},
    Family{"ministral", "llama", add_llama},
    Family{"mixtral", "llama", add_mixtral},
    Family{"qwen2", "qwen2", add_qwen2},
    Family{"qwen3", "qwen3", add_qwen},
    Family{"qwen2_moe", "qwen2moe", add_qwen2_moe},
    Family{"qwen3_moe", "qwen3moe", add_qwen3_moe},
    Family{"olmoe", "olmoe", add_olmoe},
    Family{"deepseek_v3", "deepseek2", add_deepseek},
    Family{"glm4_moe", "glm4moe", add_glm4_moe},
    Family{"gpt_oss", "gpt-oss", add_gpt_oss},
    Family{"gemma2", "gemma2", add_gemma2},
    Family{"gemma3_text", "gemma3", add_gemma3},
    Family{"phi3", "phi3", add_phi3},
    Family{"olmo2", "olmo2", add_olmo},
    Family{"olmo3", "olmo2", add_olmo},
    Family{"gpt2", "gpt2", add_gpt2},
    Family{"gpt_neox", "gptneox", add_gpt_neox},
    Family{"mamba", "mamba", add_mamba},
    Family{"falcon_mamba", "mamba", add_mamba},
    Family{"mamba2", "mamba2", add_mamba2},
    Family{"jamba", "jamba", add_jamba},
};

const Family* family_of(std::string_view architecture) {
  const auto* found = std::find_if(
      kFamilies.begin(), kFamilies.end(),
      [architecture](const Family& family) { return family.architecture == architecture; });
  return found == kFamilies.end() ? nullptr : found;
}

}  // namespace

std::string_view gguf_architecture(std::string_view architecture) {
  const Family* family = family_of(architecture);
  return family == nullptr ? std::string_view() : family->name;
}

Result<GgufModelMetadata> gguf_metadata(const engine::ModelSpec& model, const Json& config) {
  const Family* family = family_of(model.architecture);
  if (family == nullptr) {
    std::string known;
    for (const Family& one : kFamilies) {
      known += fmt::format("{}{}", known.empty() ? "" : ", ", one.architecture);
    }
    return user_error(
        fmt::format("a model of architecture {} is not written as GGUF ({} are); export it with "
                    "--format hf",
                    model.architecture, known));
  }
  Maker maker(model, config, family->name);
  family->add(maker);
  return std::move(maker).finish();
}

}  // namespace train::cli
