#include "checkpoint/models/gguf_architectures.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>
#include <vector>

#include "checkpoint/models/gguf_keys.hpp"
#include "checkpoint/models/gguf_rope.hpp"

namespace train::checkpoint {
namespace {

using Json = nlohmann::ordered_json;
using storage::GgufEntry;
using storage::GgufFile;

/// Refuses a window if no key gives the layers that have it.
void refuse_window(GgufKeys& keys) {
  constexpr std::string_view kWindow = "attention.sliding_window";
  if (keys.has(kWindow) && keys.count(kWindow) != 0) {
    keys.refuse(kWindow,
                "the file does not say which layers have it; give the model's own directory");
  }
}

/// Converts a pattern to layer_types: every n-th layer has full attention, or a list marks the
/// layers without. Nullopt: there is no pattern.
std::optional<Json> layer_types(GgufKeys& keys, std::uint64_t layers) {
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  const storage::GgufValue* pattern = keys.value(kPattern);
  if (pattern == nullptr) {
    return std::nullopt;
  }
  Json types = Json::array();
  const auto* listed = std::get_if<std::vector<bool>>(pattern);
  const std::uint64_t every = listed == nullptr ? keys.count(kPattern) : layers;
  if (every == 0 || (listed != nullptr && listed->size() != layers)) {
    keys.refuse(kPattern, fmt::format("it must be a period or a list of {}", layers));
    return std::nullopt;
  }
  for (std::uint64_t layer = 0; layer < layers; ++layer) {
    const bool windowed = listed == nullptr ? (layer + 1) % every != 0 : (*listed)[layer];
    types.push_back(windowed ? "sliding_attention" : "full_attention");
  }
  return types;
}

/// Checks the tensor in the first layer, which stands for all layers.
bool layers_have(const GgufKeys& keys, std::string_view tensor) {
  return keys.file().find(fmt::format("blk.0.{}", tensor)) != nullptr;
}

/// Adds the number of experts, under the key of the family, and how many compute a token.
void add_experts(GgufKeys& keys, const char* count_key, Json& config) {
  config[count_key] = keys.count("expert_count");
  config["num_experts_per_tok"] = keys.count("expert_used_count");
}

/// Llama, Mistral, identified by its window, and Mixtral by its experts.
void add_llama(GgufKeys& keys, Json& config) {
  const std::uint64_t window = keys.count("attention.sliding_window", 0);
  config["model_type"] = window == 0 ? "llama" : "mistral";
  if (window != 0) {
    config["sliding_window"] = window;
  }
  config["hidden_act"] = "silu";
  if (keys.count("expert_count", 0) > 0) {
    config["model_type"] = "mixtral";
    add_experts(keys, "num_local_experts", config);
  } else {
    config["attention_bias"] = layers_have(keys, "attn_q.bias");
    config["mlp_bias"] = layers_have(keys, "ffn_gate.bias");
  }
  if (config.contains("partial_rotary_factor")) {
    keys.refuse("rope.dimension_count", "such files rotate whole heads");
  }
  keys.ignore({"tensor_data_layout"});
}

void add_qwen2(GgufKeys& keys, Json& config) {
  config["model_type"] = "qwen2";
  config["hidden_act"] = "silu";
  refuse_window(keys);
}

void add_qwen3(GgufKeys& keys, Json& config) {
  add_qwen2(keys, config);
  config["model_type"] = "qwen3";
  config["attention_bias"] = layers_have(keys, "attn_q.bias");
}

/// Adds the experts of a Qwen. Widths that a file lacks are those that llama.cpp assumes.
void add_qwen_experts(GgufKeys& keys, Json& config) {
  add_experts(keys, "num_experts", config);
  const auto hidden = config["intermediate_size"].get<std::uint64_t>();
  const auto used = std::max<std::uint64_t>(1, config["num_experts_per_tok"].get<std::uint64_t>());
  config["moe_intermediate_size"] = keys.count("expert_feed_forward_length", hidden / used);
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = Json::array();
}

void add_qwen2_moe(GgufKeys& keys, Json& config) {
  add_qwen2(keys, config);
  config["model_type"] = "qwen2_moe";
  config["qkv_bias"] = layers_have(keys, "attn_q.bias");
  add_qwen_experts(keys, config);
  config["norm_topk_prob"] = false;
  config["shared_expert_intermediate_size"] =
      keys.count("expert_shared_feed_forward_length", config["intermediate_size"]);
}

void add_qwen3_moe(GgufKeys& keys, Json& config) {
  add_qwen3(keys, config);
  config["model_type"] = "qwen3_moe";
  add_qwen_experts(keys, config);
  config["norm_topk_prob"] = true;
}

/// Adds the settings common to Gemma 2 and 3. Files of 27B models lack the scale of the scores:
/// llama.cpp recognizes such a model by its number of layers.
void add_gemma(GgufKeys& keys, Json& config, std::uint64_t layers_of_27b) {
  const auto layers = config["num_hidden_layers"].get<std::uint64_t>();
  const auto width = config["hidden_size"].get<std::uint64_t>();
  const auto heads = std::max<std::uint64_t>(1, config["num_attention_heads"].get<std::uint64_t>());
  config["hidden_activation"] = "gelu_pytorch_tanh";
  config["query_pre_attn_scalar"] = config["head_dim"];
  if (layers == layers_of_27b) {
    config["query_pre_attn_scalar"] = width / heads;
  }
  if (keys.has("attention.scale")) {
    const double scale = keys.real("attention.scale");
    const double scalar = std::round(1.0 / (scale * scale));  // An integer in config.json.
    constexpr double kNear = 1e-5;
    if (!(std::abs(scale * std::sqrt(scalar) - 1.0) < kNear)) {
      keys.refuse("attention.scale", "it must be one over the square root of an integer");
    } else {
      config["query_pre_attn_scalar"] = static_cast<std::uint64_t>(scalar);
    }
  }
  if (const auto types = layer_types(keys, layers)) {
    config["layer_types"] = *types;
  }
  // Range of float16 is too small for this family, whose models were published in bfloat16.
  if (config["torch_dtype"] == "float16") {
    config["torch_dtype"] = "bfloat16";
  }
}

void add_gemma2(GgufKeys& keys, Json& config) {
  config["model_type"] = "gemma2";
  add_gemma(keys, config, 46);
  config["sliding_window"] = keys.count("attention.sliding_window", 4096);
  config["attn_logit_softcapping"] = keys.real("attn_logit_softcapping", 50.0);
  config["final_logit_softcapping"] = keys.real("final_logit_softcapping", 30.0);
}

void add_gemma3(GgufKeys& keys, Json& config) {
  config["model_type"] = "gemma3_text";
  add_gemma(keys, config, 62);
  config["sliding_window"] = keys.count("attention.sliding_window");
  config["sliding_window_pattern"] = 6;
  config["rope_local_base_freq"] = keys.real("rope.freq_base_swa", 10000.0);
  if (const double cap = keys.real("final_logit_softcapping", 0.0); cap != 0.0) {
    config["final_logit_softcapping"] = cap;
  }
}

/// OLMo 3 is stored as OLMo 2 with windows.
void add_olmo(GgufKeys& keys, Json& config) {
  const std::uint64_t window = keys.count("attention.sliding_window", 0);
  config["model_type"] = window == 0 ? "olmo2" : "olmo3";
  config["hidden_act"] = "silu";
  if (window != 0) {
    const double base = keys.real("rope.freq_base", 10000.0);
    if (keys.real("rope.freq_base_swa", base) != base) {
      keys.refuse("rope.freq_base_swa", "that of all layers is supported");
    }
    config["sliding_window"] = window;
    if (const auto types = layer_types(keys, config["num_hidden_layers"].get<std::uint64_t>())) {
      config["layer_types"] = *types;
    }
  }
}

void add_olmoe(GgufKeys& keys, Json& config) {
  config["model_type"] = "olmoe";
  config["hidden_act"] = "silu";
  config["norm_topk_prob"] = false;
  add_experts(keys, "num_experts", config);
}

void add_phi3(GgufKeys& keys, Json& config) {
  config["model_type"] = "phi3";
  config["hidden_act"] = "silu";
  const std::uint64_t window = keys.count("attention.sliding_window", 0);
  config["sliding_window"] = window == 0 ? Json() : Json(window);
  if (!config.contains("original_max_position_embeddings")) {
    config["original_max_position_embeddings"] =
        keys.count("rope.scaling.original_context_length",
                   config["max_position_embeddings"].get<std::uint64_t>());
  }
}

/// GPT-2 has learned positions instead of RoPE.
void add_gpt2(GgufKeys& keys, Json& config) {
  Json own = {{"model_type", "gpt2"},
              {"activation_function", "gelu_new"},
              {"n_embd", config["hidden_size"]},
              {"n_head", config["num_attention_heads"]},
              {"n_layer", config["num_hidden_layers"]},
              {"n_inner", config["intermediate_size"]},
              {"n_positions", config["max_position_embeddings"]},
              {"n_ctx", config["max_position_embeddings"]},
              {"layer_norm_epsilon", keys.real("attention.layer_norm_epsilon")}};
  for (const char* const key : {"vocab_size", "tie_word_embeddings", "bos_token_id", "eos_token_id",
                                "pad_token_id", "torch_dtype"}) {
    if (config.contains(key)) {
      own[key] = config[key];
    }
  }
  keys.ignore({"rope.dimension_count", "rope.freq_base"});
  config = std::move(own);
}

void add_gpt_neox(GgufKeys& keys, Json& config) {
  config["model_type"] = "gpt_neox";
  config["hidden_act"] = "gelu";
  config["use_parallel_residual"] = keys.flag("use_parallel_residual", true);
  config["attention_bias"] = layers_have(keys, "attn_qkv.bias");
  config["layer_norm_eps"] = keys.real("attention.layer_norm_epsilon");
  config["rotary_emb_base"] = config["rope_theta"];
  config["rotary_pct"] = config.value("partial_rotary_factor", 1.0);
  for (const char* const key :
       {"rope_theta", "partial_rotary_factor", "rms_norm_eps", "num_key_value_heads", "head_dim"}) {
    config.erase(key);
  }
}

/// Number of layers without those that predict further tokens, which llama.cpp does not run.
void leave_out_further_layers(GgufKeys& keys, Json& config) {
  const std::uint64_t more = keys.count(kGgufFurtherLayers, 0);
  const auto layers = config["num_hidden_layers"].get<std::uint64_t>();
  if (more >= layers) {
    keys.refuse(kGgufFurtherLayers, fmt::format("the file has {} layers", layers));
    return;
  }
  config["num_hidden_layers"] = layers - more;
  config["num_nextn_predict_layers"] = 0;
}

/// Adds experts that are chosen by sigmoids. `gating`: function of files that do not name it.
void add_sigmoid_experts(GgufKeys& keys, Json& config, std::uint64_t gating) {
  constexpr std::uint64_t kSigmoid = 2;
  if (keys.count("expert_gating_func", gating) != kSigmoid) {
    keys.refuse("expert_gating_func", "2, sigmoids, is supported");
  }
  add_experts(keys, "n_routed_experts", config);
  config["n_shared_experts"] = keys.count("expert_shared_count", 0);
  config["moe_intermediate_size"] = keys.count("expert_feed_forward_length");
  config["first_k_dense_replace"] = keys.count("leading_dense_block_count", 0);
  config["routed_scaling_factor"] = keys.real("expert_weights_scale", 1.0);
  config["norm_topk_prob"] = keys.flag("expert_weights_norm", false);
  config["n_group"] = keys.count("expert_group_count", 1);
  config["topk_group"] = keys.count("expert_group_used_count", 1);
  leave_out_further_layers(keys, config);
}

/// DeepSeek-V3 and R1. Files of 2025 and later have the widths of latents as those of keys and
/// values, and the heads' own as "mla"; their queries and keys are in the published order.
void add_deepseek2(GgufKeys& keys, Json& config) {
  config["model_type"] = "deepseek_v3";
  config["hidden_act"] = "silu";
  const auto rotary = config["head_dim"].get<std::uint64_t>();
  config.erase("head_dim");
  const std::uint64_t query_rank = keys.count("attention.q_lora_rank", 0);
  config["q_lora_rank"] = query_rank == 0 ? Json() : Json(query_rank);
  config["kv_lora_rank"] = keys.count("attention.kv_lora_rank");
  const bool of_latents = keys.has("attention.key_length_mla");
  const char* const key = of_latents ? "attention.key_length_mla" : "attention.key_length";
  const char* const value = of_latents ? "attention.value_length_mla" : "attention.value_length";
  if (of_latents) {
    keys.ignore({"attention.key_length", "attention.value_length"});
  }
  const std::uint64_t width = keys.count(key);
  if (width <= rotary) {
    keys.refuse(key, fmt::format("{} elements of it are rotated", rotary));
  } else {
    config["qk_nope_head_dim"] = width - rotary;
  }
  config["qk_rope_head_dim"] = rotary;
  config["v_head_dim"] = keys.count(value);
  config["num_key_value_heads"] = config["num_attention_heads"];
  config["rope_interleave"] = true;
  if (config.contains("rope_scaling") && config["rope_scaling"]["rope_type"] == "yarn" &&
      keys.has("rope.scaling.yarn_log_multiplier")) {
    // A tenth of the factor, in single precision.
    const double gain = std::round(1e7 * keys.real("rope.scaling.yarn_log_multiplier")) / 1e6;
    config["rope_scaling"]["mscale"] = gain;
    config["rope_scaling"]["mscale_all_dim"] = gain;
  }
  for (const char* const groups : {"expert_group_count", "expert_group_used_count"}) {
    if (!keys.has(groups)) {
      keys.refuse(groups,
                  "the file does not say from how many groups experts are chosen; give the model's "
                  "own directory");
    }
  }
  add_sigmoid_experts(keys, config, 0);
}

void add_glm4_moe(GgufKeys& keys, Json& config) {
  config["model_type"] = "glm4_moe";
  config["hidden_act"] = "silu";
  config["attention_bias"] = layers_have(keys, "attn_q.bias");
  config["use_qk_norm"] = layers_have(keys, "attn_q_norm.weight");
  config["partial_rotary_factor"] = config.value("partial_rotary_factor", 1.0);
  add_sigmoid_experts(keys, config, 2);
}

/// GPT-OSS. What files do not say is as published: every second layer has the window, and yarn's
/// bounds are not rounded.
void add_gpt_oss(GgufKeys& keys, Json& config) {
  config["model_type"] = "gpt_oss";
  config["hidden_act"] = "silu";
  config["attention_bias"] = layers_have(keys, "attn_q.bias");
  config["sliding_window"] = keys.count("attention.sliding_window");
  if (const auto types = layer_types(keys, config["num_hidden_layers"].get<std::uint64_t>())) {
    config["layer_types"] = *types;
  }
  if (!config.contains("rope_scaling")) {
    config["rope_scaling"] = {{"rope_type", "default"}};
  } else if (config["rope_scaling"]["rope_type"] == "yarn") {
    config["rope_scaling"]["truncate"] = false;
  }
  add_experts(keys, "num_local_experts", config);
  config["intermediate_size"] =
      keys.count("expert_feed_forward_length", config["intermediate_size"].get<std::uint64_t>());
}

/// The keys that all state spaces have in common with other models.
Json state_space_config(const char* model_type, const Json& config) {
  Json own = {{"model_type", model_type}};
  for (const char* const key :
       {"vocab_size", "hidden_size", "num_hidden_layers", "tie_word_embeddings", "bos_token_id",
        "eos_token_id", "pad_token_id", "torch_dtype"}) {
    own[key] = config[key];
  }
  return own;
}

/// Channels over the width of the model: the mixers' `expand`.
Json expand_of(GgufKeys& keys, const Json& config) {
  const std::uint64_t inner = keys.count("ssm.inner_size");
  const auto width = std::max<std::uint64_t>(1, config["hidden_size"].get<std::uint64_t>());
  return inner % width == 0 ? Json(inner / width)
                            : Json(static_cast<double>(inner) / static_cast<double>(width));
}

/// Adds what mixers of Mamba and Mamba-2 have in common.
void add_state_space(GgufKeys& keys, const Json& common, Json& own) {
  own["expand"] = expand_of(keys, common);
  own["state_size"] = keys.count("ssm.state_size");
  own["conv_kernel"] = keys.count("ssm.conv_kernel");
  own["layer_norm_epsilon"] = common["rms_norm_eps"];
  own["hidden_act"] = "silu";
  own["use_bias"] = layers_have(keys, "ssm_in.bias");
  own["use_conv_bias"] = layers_have(keys, "ssm_conv1d.bias");
}

/// Mamba; with norms of steps, B and C FalconMamba, whose epsilon of these a file lacks: it is as
/// published.
void add_mamba(GgufKeys& keys, Json& config) {
  const bool falcon = keys.flag("ssm.dt_b_c_rms", false);
  Json own = state_space_config(falcon ? "falcon_mamba" : "mamba", config);
  add_state_space(keys, config, own);
  own["time_step_rank"] = keys.count("ssm.time_step_rank");
  if (falcon) {
    own["mixer_rms_eps"] = 1e-6;
  }
  config = std::move(own);
}

/// Mamba-2, whose number of heads is the rank of its steps.
void add_mamba2(GgufKeys& keys, Json& config) {
  Json own = state_space_config("mamba2", config);
  add_state_space(keys, config, own);
  const std::uint64_t heads = keys.count("ssm.time_step_rank");
  own["num_heads"] = heads;
  own["n_groups"] = keys.count("ssm.group_count");
  const std::uint64_t inner = keys.count("ssm.inner_size");
  if (heads == 0 || inner % heads != 0) {
    keys.refuse("ssm.time_step_rank",
                fmt::format("that many heads do not divide {} channels", inner));
  } else {
    own["head_dim"] = inner / heads;
  }
  config = std::move(own);
}

/// The one period of the layers for which `chosen` holds, and the first of them; the other way
/// round if none or all are. Nullopt: they have no period.
std::optional<std::pair<std::uint64_t, std::uint64_t>> period_of(const std::vector<bool>& chosen) {
  const std::size_t layers = chosen.size();
  for (std::size_t period = 1; period <= layers; ++period) {
    for (std::size_t first = 0; first < period; ++first) {
      bool fits = true;
      for (std::size_t layer = 0; fits && layer < layers; ++layer) {
        fits = chosen[layer] == (layer % period == first);
      }
      if (fits) {
        return std::pair<std::uint64_t, std::uint64_t>(period, first);
      }
    }
  }
  // No layer is: a period longer than the model.
  const bool none = std::none_of(chosen.begin(), chosen.end(), [](bool one) { return one; });
  return none ? std::optional(std::pair<std::uint64_t, std::uint64_t>(layers + 1, layers))
              : std::nullopt;
}

/// The layers that have a tensor.
std::vector<bool> layers_with(const GgufKeys& keys, std::uint64_t layers, std::string_view tensor) {
  std::vector<bool> found;
  for (std::uint64_t layer = 0; layer < layers; ++layer) {
    found.push_back(keys.file().find(fmt::format("blk.{}.{}", layer, tensor)) != nullptr);
  }
  return found;
}

/// Jamba, which lists heads of keys by layers: none where there is a scan. Layers with attention
/// and with experts are those that have the tensors.
void add_jamba(GgufKeys& keys, Json& config) {
  config["model_type"] = "jamba";
  config["hidden_act"] = "silu";
  for (const char* const key : {"rope_theta", "partial_rotary_factor", "rope_scaling"}) {
    config.erase(key);
  }
  const auto layers = config["num_hidden_layers"].get<std::uint64_t>();
  constexpr std::string_view kHeads = "attention.head_count_kv";
  for (const auto& [key, tensor] : {std::pair("attn_layer", "attn_q.weight"),
                                    std::pair("expert_layer", "ffn_gate_inp.weight")}) {
    const auto period = period_of(layers_with(keys, layers, tensor));
    if (!period) {
      keys.refuse(kHeads, fmt::format("layers with {} do not come in one period", tensor));
      return;
    }
    config[std::string(key) + "_period"] = period->first;
    config[std::string(key) + "_offset"] = period->second;
  }
  config["num_experts"] = keys.count("expert_count", 0);
  config["num_experts_per_tok"] = keys.count("expert_used_count", 1);
  if (config["num_experts"] == 0) {
    config["num_experts"] = 1;
    config["num_experts_per_tok"] = 1;
  }
  config["mamba_expand"] = expand_of(keys, config);
  config["mamba_d_state"] = keys.count("ssm.state_size");
  config["mamba_d_conv"] = keys.count("ssm.conv_kernel");
  config["mamba_dt_rank"] = keys.count("ssm.time_step_rank");
  config["mamba_proj_bias"] = false;
  config["mamba_conv_bias"] = true;
}

/// Architecture of GGUF files.
struct GgufArchitecture {
  std::string_view name;  ///< general.architecture.
  /// Adds the keys of this family to a config.json with the common keys. Mistakes go to `keys`.
  void (*add_own)(GgufKeys& keys, Json& config);
  bool may_have_experts = false;
  bool latent = false;  ///< Latent attention: widths of heads are its own.
};
constexpr std::array kArchitectures = {
    GgufArchitecture{"llama", add_llama, true},
    GgufArchitecture{"olmoe", add_olmoe, true},
    GgufArchitecture{"qwen2moe", add_qwen2_moe, true},
    GgufArchitecture{"qwen3moe", add_qwen3_moe, true},
    GgufArchitecture{"deepseek2", add_deepseek2, true, true},
    GgufArchitecture{"glm4moe", add_glm4_moe, true},
    GgufArchitecture{"gpt-oss", add_gpt_oss, true},
    GgufArchitecture{"qwen2", add_qwen2},
    GgufArchitecture{"qwen3", add_qwen3},
    GgufArchitecture{"gemma2", add_gemma2},
    GgufArchitecture{"gemma3", add_gemma3},
    GgufArchitecture{"phi3", add_phi3},
    GgufArchitecture{"olmo2", add_olmo},
    GgufArchitecture{"gpt2", add_gpt2},
    GgufArchitecture{"gptneox", add_gpt_neox},
    GgufArchitecture{"mamba", add_mamba},
    GgufArchitecture{"mamba2", add_mamba2},
    GgufArchitecture{"jamba", add_jamba, true},
};

/// Compares a stored head with the embedding; true if the bytes are equal.
Result<bool> is_embedding(const GgufFile& file, const GgufEntry& head, const GgufEntry& embedding) {
  if (head.type.code != embedding.type.code || head.shape != embedding.shape) {
    return false;
  }
  constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;
  std::vector<std::byte> one, other;
  for (std::uint64_t at = 0; at < head.size_bytes; at += one.size()) {
    one.resize(std::min(kPieceBytes, head.size_bytes - at));
    other.resize(one.size());
    TRAIN_RETURN_IF_ERROR(file.file().read(head.begin + at, one));
    TRAIN_RETURN_IF_ERROR(file.file().read(embedding.begin + at, other));
    if (one != other) {
      return false;
    }
  }
  return true;
}

/// Returns the published dtype; for a quantized model bfloat16, the most common one.
const char* torch_dtype_of(const GgufEntry& embedding) {
  return embedding.type.name == "F32"   ? "float32"
         : embedding.type.name == "F16" ? "float16"
                                        : "bfloat16";
}

/// Width of a head; of latent attention that of the rotated part.
std::uint64_t head_dim_of(GgufKeys& keys, bool latent, std::uint64_t otherwise) {
  if (latent) {
    return keys.count("rope.dimension_count");
  }
  const std::uint64_t width = keys.count("attention.key_length", otherwise);
  if (keys.count("attention.value_length", width) != width) {
    keys.refuse("attention.value_length", "values as wide as keys are supported");
  }
  return width;
}

/// Heads of keys: a number, or a list of one for each layer, of which those without attention have
/// 0. Mistakes: two layers with attention have different ones.
std::uint64_t kv_heads_of(GgufKeys& keys, std::uint64_t heads) {
  constexpr std::string_view kKey = "attention.head_count_kv";
  const storage::GgufValue* value = keys.value(kKey);
  std::vector<std::uint64_t> listed;
  if (value != nullptr && std::holds_alternative<std::vector<std::uint64_t>>(*value)) {
    listed = std::get<std::vector<std::uint64_t>>(*value);
  } else if (value != nullptr && std::holds_alternative<std::vector<std::int64_t>>(*value)) {
    for (const std::int64_t one : std::get<std::vector<std::int64_t>>(*value)) {
      listed.push_back(static_cast<std::uint64_t>(one));
    }
  } else {
    return keys.count(kKey, heads);
  }
  std::erase(listed, 0U);
  if (listed.empty()) {
    return heads;
  }
  if (std::any_of(listed.begin(), listed.end(),
                  [&](std::uint64_t one) { return one != listed.front(); })) {
    keys.refuse(kKey, "layers with attention must have as many heads of keys as each other");
  }
  return listed.front();
}

/// Reads or refuses the keys common to all families.
Json common_config(GgufKeys& keys, const GgufEntry& embedding, bool tied, bool latent) {
  const std::uint64_t heads = keys.count("attention.head_count");
  const std::uint64_t width = keys.count("embedding_length");
  Json config = {{"model_type", ""},
                 {"vocab_size", embedding.shape.front()},
                 {"hidden_size", width},
                 {"intermediate_size", keys.count("feed_forward_length")},
                 {"num_hidden_layers", keys.count("block_count")},
                 {"num_attention_heads", heads},
                 {"num_key_value_heads", kv_heads_of(keys, heads)},
                 {"head_dim", head_dim_of(keys, latent, width / std::max<std::uint64_t>(1, heads))},
                 {"max_position_embeddings", keys.count("context_length")},
                 {"rms_norm_eps", keys.real("attention.layer_norm_rms_epsilon", 1e-5)},
                 {"tie_word_embeddings", tied},
                 {"torch_dtype", torch_dtype_of(embedding)}};
  if (!keys.flag("attention.causal", true)) {
    keys.refuse("attention.causal", "attention is causal here");
  }
  keys.ignore({"vocab_size"});  // Redundant with the embedding's shape.
  return config;
}

}  // namespace

Result<Json> gguf_config(const GgufFile& file) {
  const auto* name = file.value_of<std::string>("general.architecture");
  const std::string_view given = name == nullptr ? std::string_view() : *name;
  std::vector<std::string_view> known;
  const GgufArchitecture* architecture = nullptr;
  for (const GgufArchitecture& one : kArchitectures) {
    known.push_back(one.name);
    architecture = one.name == given ? &one : architecture;
  }
  if (architecture == nullptr) {
    return user_error(fmt::format("{}: general.architecture is \"{}\": {} are known",
                                  file.file().path().string(), given, fmt::join(known, ", ")));
  }
  const GgufEntry* embedding = file.find("token_embd.weight");
  const GgufEntry* head = file.find("output.weight");
  if (embedding == nullptr || embedding->shape.empty()) {
    return user_error(fmt::format("{}: token_embd.weight is missing", file.file().path().string()));
  }
  bool tied = head == nullptr;
  if (!tied) {
    tied = TRAIN_TRY(is_embedding(file, *head, *embedding));
  }
  GgufKeys keys(file, std::string(given));
  Json config = common_config(keys, *embedding, tied, architecture->latent);
  for (const auto& [key, of] : {std::pair("bos_token_id", "tokenizer.ggml.bos_token_id"),
                                std::pair("eos_token_id", "tokenizer.ggml.eos_token_id"),
                                std::pair("pad_token_id", "tokenizer.ggml.padding_token_id")}) {
    // A family's default id, which transformers uses without the key, may lie outside the
    // vocabulary.
    const auto id = file.count_of(of);
    config[key] = id ? Json(*id) : Json();
  }
  TRAIN_RETURN_IF_ERROR(add_gguf_rope(keys, config));
  for (const char* const none : {"expert_count", "expert_used_count"}) {
    if (!architecture->may_have_experts && keys.count(none, 0) != 0) {
      keys.refuse(none, "such a model has no experts here");
    }
  }
  architecture->add_own(keys, config);
  TRAIN_RETURN_IF_ERROR(keys.check());
  return config;
}

}  // namespace train::checkpoint
