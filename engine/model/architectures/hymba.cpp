#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/math/fixed_math.hpp"
#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/architectures/scan_parts.hpp"
#include "engine/model/blocks/state_space/hybrid_heads_block.hpp"

namespace train::engine {
namespace {

using Json = nlohmann::json;

/// Refuses values of keys for which the layers here have no form; null is none of them.
void check_forms(ModelConfig& config) {
  const auto require = [&](const char* key, const Json& wanted, const char* why) {
    const Json* value = config.find(key);
    if (value != nullptr && *value != wanted) {
      config.refuse(
          fmt::format("{} is {}: {}; set it to {}", key, value->dump(), why, wanted.dump()));
    }
  };
  require("mamba_inner_layernorms", true, "the scan's inputs are normed here");
  require("num_mamba", 1, "a layer has one scan here");
  require("num_experts", 1, "a layer has one MLP here");
  require("num_experts_per_tok", 1, "a layer has one MLP here");
  require("kq_norm", "none", "queries and keys have no norm here");
  require("rope", true, "queries and keys are rotated here");
  require("kv_weight_reuse", false, "layers share keys and values, not their weights");
  require("kv_reuse_every_i_layer", -1, "layers share keys as kv_reuse_group says");
  require("memory_tokens_interspersed_every", 0, "learned tokens come before a text alone");
  (void)config.real("router_aux_loss_coef");  // There is no router.
  const Json* kinds = config.find("layer_type");
  const bool hybrid = kinds == nullptr ||
                      (kinds->is_array() &&
                       std::ranges::all_of(*kinds, [](const Json& kind) { return kind == "h"; }));
  if (!hybrid || (kinds != nullptr && std::ssize(*kinds) != config.size("num_hidden_layers"))) {
    config.refuse(
        "layer_type is not a list of \"h\", one per layer: every layer has attention "
        "beside a scan here");
  }
  if (config.activation("hidden_act") != kernels::ActivationKind::silu) {
    config.refuse("hidden_act: Hymba's convolution and gate have silu here; set it to \"silu\"");
  }
}

/// Refuses a width that others make, but for -1, which stands for it.
void check_width(ModelConfig& config, const char* key, std::int64_t made, const char* by) {
  const Json* value = config.find(key);
  if (value != nullptr && *value != -1 && *value != made) {
    config.refuse(
        fmt::format("{} is {}, but {} make {}: leave it out", key, value->dump(), by, made));
  }
}

MambaSpec hymba_scan(ModelConfig& config, std::int64_t dim, float eps) {
  MambaSpec scan = hybrid_scan(config, dim, eps);
  scan.select += ".0";
  scan.step += ".0";
  scan.rates += ".0";
  scan.skip += ".0";
  scan.b_norm = "mamba.B_layernorm";
  scan.c_norm = "mamba.C_layernorm";
  return scan;
}

/// Heads of all layers alike, without windows.
HybridHeadsSpec hymba_heads(ModelConfig& config, const DecoderSizes& sizes, std::int64_t dim) {
  HybridHeadsSpec heads;
  heads.scan = hymba_scan(config, dim, sizes.eps);
  heads.heads = sizes.heads;
  heads.kv_heads = sizes.kv_heads;
  heads.head_dim = sizes.head_dim;
  heads.value_dim = std::max<std::int64_t>(1, heads.scan.inner / sizes.heads);
  heads.prefix = config.count("num_memory_tokens");
  heads.rope = 0;
  heads.attention_norm = rms_norm("mamba.pre_avg_layernorm1", sizes.eps);
  heads.scan_norm = rms_norm("mamba.pre_avg_layernorm2", sizes.eps);
  if (heads.head_dim * heads.heads != dim || heads.head_dim % 2 != 0 ||
      heads.value_dim * heads.heads != heads.scan.inner) {
    config.refuse(fmt::format(
        "num_attention_heads is {}: it must divide hidden_size {} into heads of an even width, and "
        "mamba_expand times that, {}, into heads of values",
        heads.heads, dim, heads.scan.inner));
    // Harmless: the refusal is the result.
    heads.heads = heads.kv_heads = 1;
    heads.head_dim = 2;
    heads.value_dim = heads.scan.inner;
    return heads;
  }
  check_width(config, "attn_hidden_size", dim, "heads");
  check_width(config, "kq_head_dim", heads.head_dim, "hidden_size and num_attention_heads");
  check_width(config, "v_head_dim", heads.value_dim,
              "mamba_expand, hidden_size and num_attention_heads");
  const Json* widths = config.find("conv_dim");
  for (const Json& width : widths == nullptr ? Json::array() : *widths) {
    if (width != heads.scan.inner) {
      config.refuse(fmt::format("conv_dim has {}, but mamba_expand and hidden_size make {}",
                                width.dump(), heads.scan.inner));
    }
  }
  return heads;
}

/// The one rope: by halves, its base raised for longer texts than a model was first trained on.
RopeSpec hymba_rope(ModelConfig& config, std::int64_t head_dim, std::int64_t positions) {
  RopeSpec rope{.theta = config.real("rope_theta"),
                .rotary_dim = head_dim,
                .pairing = kernels::RopePairing::half};
  const Json* kind = config.find("rope_type");
  if (kind == nullptr || *kind == "default") {
    return rope;
  }
  if (*kind != "ntk" || head_dim <= 2) {
    config.refuse(fmt::format("rope_type is {}: \"ntk\", of heads wider than 2, and null are known",
                              kind->dump()));
    return rope;
  }
  const auto before = static_cast<double>(config.size("orig_max_position_embeddings"));
  const double longer = 2.0 * static_cast<double>(positions) / before - 1.0;
  if (longer < 1.0) {
    config.refuse(fmt::format(
        "max_position_embeddings is {}, less than orig_max_position_embeddings: rope_type \"ntk\" "
        "is for longer texts",
        positions));
    return rope;
  }
  const auto dim = static_cast<double>(head_dim);
  rope.theta *= fixed::pow(longer, dim / (dim - 2.0));
  rope.scaling = "ntk";
  return rope;
}

/// The layer whose keys and values each layer reads, where it is not itself.
std::map<std::int64_t, std::int64_t> read_groups(ModelConfig& config,
                                                 const std::vector<std::int64_t>& windows) {
  std::map<std::int64_t, std::int64_t> sources;
  const Json* groups = config.find("kv_reuse_group");
  if (groups == nullptr) {
    return sources;
  }
  const auto layers = static_cast<std::int64_t>(windows.size());
  std::int64_t free = 0;  // Layers below are in no later group.
  for (const Json& group : groups->is_array() ? *groups : Json::array({nullptr})) {
    bool fits = group.is_array() && group.size() > 1;
    for (std::size_t i = 0; fits && i < group.size(); ++i) {
      const std::int64_t layer = group[i].is_number_integer() ? group[i].get<std::int64_t>() : -1;
      fits = layer < layers && (i == 0 ? layer >= free : layer == free);
      free = layer + 1;
    }
    if (!fits) {
      config.refuse(fmt::format(
          "kv_reuse_group has {}: give lists of two or more layers that follow one another, of {} "
          "layers, rising",
          group.dump(), layers));
      return {};
    }
    const auto first = group[0].get<std::int64_t>();
    for (std::int64_t layer = first + 1; layer < free; ++layer) {
      if (windows[static_cast<std::size_t>(layer)] != windows[static_cast<std::size_t>(first)]) {
        config.refuse(fmt::format(
            "kv_reuse_group has {}, but of layers {} and {} one alone is in global_attn_idx: "
            "layers that share keys see the same ones",
            group.dump(), first, layer));
        return {};
      }
      sources[layer] = first;
    }
  }
  return sources;
}

/// Keys that each layer's queries see; 0: all. A query sees `sliding_window` ones before its own.
std::vector<std::int64_t> read_windows(ModelConfig& config, std::int64_t layers) {
  const std::int64_t window = config.size_if_any("sliding_window").value_or(-1) + 1;
  std::vector<std::int64_t> windows(static_cast<std::size_t>(layers), window);
  for (const std::int64_t layer : config.layer_numbers("global_attn_idx")) {
    if (layer >= layers) {
      config.refuse(fmt::format("global_attn_idx has layer {} of {} layers", layer, layers));
      return windows;
    }
    windows[static_cast<std::size_t>(layer)] = 0;
  }
  return windows;
}

}  // namespace

std::string_view hymba_keys() {
  return R"({"vocab_size": null, "hidden_size": null, "intermediate_size": null,
    "num_hidden_layers": null, "num_attention_heads": null, "num_key_value_heads": null,
    "head_dim": null, "hidden_act": "silu", "mlp_hidden_act": "silu", "rms_norm_eps": 1e-6,
    "max_position_embeddings": null, "tie_word_embeddings": null, "mamba_d_state": 16,
    "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": "auto", "mamba_conv_bias": true,
    "mamba_proj_bias": false, "mamba_inner_layernorms": true, "num_mamba": 1, "num_experts": 1,
    "num_experts_per_tok": 1, "num_memory_tokens": null, "memory_tokens_interspersed_every": 0,
    "sliding_window": null, "global_attn_idx": null, "kv_reuse_group": null,
    "kv_reuse_every_i_layer": -1, "kv_weight_reuse": false, "layer_type": null, "kq_norm": "none",
    "router_aux_loss_coef": 0.0,
    "attn_hidden_size": -1, "kq_head_dim": -1, "v_head_dim": null, "conv_dim": null, "rope": true,
    "rope_theta": 10000.0, "rope_type": null, "orig_max_position_embeddings": null})";
}

/// Hymba (Dong et al. 2024, https://arxiv.org/abs/2411.13676): heads of attention and a scan side
/// by side in each layer, learned tokens before each text, and keys that layers share. transformers
/// has no such model; names, shapes and keys are those of its authors' program.
ModelSpec hymba_model(ModelConfig& config) {
  const DecoderSizes sizes = decoder_sizes(config);
  check_forms(config);
  ModelSpec spec = decoder_model(config, sizes);
  spec.final_norm.name = "model.final_layernorm";
  const HybridHeadsSpec heads = hymba_heads(config, sizes, spec.embedding_dim);
  spec.prefix_tokens = heads.prefix;
  spec.prefix = heads.prefix > 0 ? "model.memory_tokens" : "";
  spec.ropes = {hymba_rope(config, heads.head_dim, spec.max_positions)};
  const std::vector<std::int64_t> windows = read_windows(config, sizes.layers);
  const std::map<std::int64_t, std::int64_t> sources = read_groups(config, windows);
  const auto activation = config.activation("mlp_hidden_act");
  add_decoder_layers(sizes, spec, [&](DecoderLayer& layer, std::int64_t /*index*/) {
    layer.mlp_norms.pre = rms_norm("pre_moe_layernorm", sizes.eps);
    layer.mlp.activation = activation;
    layer.mlp.in = "moe.experts.0.gate_proj";
    layer.mlp.up = "moe.experts.0.up_proj";
    layer.mlp.out = "moe.experts.0.down_proj";
  });
  for (std::int64_t index = 0; index < sizes.layers; ++index) {
    HybridHeadsSpec own = heads;
    own.window = windows[static_cast<std::size_t>(index)];
    const auto source = sources.find(index);
    if (source != sources.end()) {
      own.keys_of = spec.layers[static_cast<std::size_t>(source->second)].prefix;
    }
    own.readers =
        std::ranges::count_if(sources, [&](const auto& reader) { return reader.second == index; });
    spec.layers[static_cast<std::size_t>(index)].branches.at(0).block =
        std::make_shared<const HybridHeadsSpec>(own);
  }
  return spec;
}

}  // namespace train::engine
