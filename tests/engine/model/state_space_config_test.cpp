// Configurations of state spaces, in transformers' keys and in those of the original program.

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/architectures/architectures.hpp"
#include "engine/model/blocks/state_space/hybrid_heads_block.hpp"
#include "engine/model/blocks/state_space/mamba2_block.hpp"
#include "engine/model/blocks/state_space/mamba_block.hpp"
#include "engine/model/config_json/dialects.hpp"
#include "engine/model/spec.hpp"

namespace train::engine::state_space_config_test {
namespace {

using Json = nlohmann::json;

Json small(const char* family) {
  Json config = {{"model_type", family},   {"vocab_size", 160},        {"hidden_size", 48},
                 {"num_hidden_layers", 2}, {"time_step_rank", "auto"}, {"state_size", 8}};
  if (config["model_type"] == "mamba2") {
    config.update({{"num_heads", 6}, {"head_dim", 16}, {"n_groups", 2}});
  }
  return config;
}

std::string refusal_of(const std::string& text) {
  const auto spec = spec_from_config(text, "c.json", 0);
  if (spec.ok()) {
    return "accepted";
  }
  CHECK(spec.error().kind == ErrorKind::user);
  CHECK(spec.error().message.find('\n') == std::string::npos);
  CHECK(spec.error().message.starts_with("c.json: "));
  return spec.error().message;
}

/// The keys of Hymba's published files.
Json hymba() {
  return Json::parse(R"({"architectures": ["HymbaForCausalLM"], "attention_dropout": 0.0,
    "attn_hidden_size": -1, "attn_implementation": "flex", "attn_implementation_new": "flex",
    "auto_map": {}, "bos_token_id": 1, "calc_logits_for_entire_prompt": false,
    "conv_dim": {"0": 100, "1": 100, "2": 100, "3": 100}, "eos_token_id": 2,
    "global_attn_idx": [0, 3], "hidden_act": "silu", "hidden_size": 50, "initializer_range": 0.02,
    "intermediate_size": 40, "kq_head_dim": -1, "kq_norm": "none", "kv_reuse_every_i_layer": -1,
    "kv_reuse_group": [[1, 2]], "kv_weight_reuse": false, "layer_type": ["h", "h", "h", "h"],
    "mamba_conv_bias": true, "mamba_d_conv": 4, "mamba_d_state": 8, "mamba_dt_rank": 6,
    "mamba_expand": 2, "mamba_inner_layernorms": true, "mamba_proj_bias": false,
    "max_position_embeddings": 128, "memory_tokens_interspersed_every": 0,
    "mlp_hidden_act": "silu", "model_type": "hymba", "num_attention_heads": 5, "num_experts": 1,
    "num_experts_per_tok": 1, "num_hidden_layers": 4, "num_key_value_heads": 1, "num_mamba": 1,
    "num_memory_tokens": 3, "orig_max_position_embeddings": 32, "output_router_logits": false,
    "pad_token_id": 0, "rms_norm_eps": 1e-6, "rope": true, "rope_theta": 10000.0,
    "rope_type": "ntk", "router_aux_loss_coef": 0.001, "seq_length": 128, "sliding_window": 5,
    "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.44.0",
    "use_cache": false, "use_mamba_kernels": true, "v_head_dim": 20, "vocab_size": 160})");
}

const Mamba2Spec& mixer_of(const ModelSpec& spec) {
  return block_of<Mamba2Spec>(spec.layers.at(0));
}

}  // namespace

TEST_CASE("state space config: what is not supported is named with a way out",
          "[engine][state_space]") {
  struct Row {
    const char* family;
    Json changes;
    const char* part;
  };
  const std::vector<Row> rows = {
      {"mamba",
       {{"conv_kernel", 9}},
       "conv_kernel (mamba_d_conv) is 9: convolutions have 1 to 8 taps"},
      {"mamba",
       {{"state_size", 129}},
       "state_size (mamba_d_state) is 129: a channel has 1 to 128 states"},
      {"mamba", {{"hidden_act", "gelu"}}, "hidden_act"},
      {"mamba", {{"intermediate_size", 90}}, "intermediate_size (d_inner) is not 96"},
      {"mamba", {{"d_model", 64}}, "d_model is 64, but hidden_size is 48"},
      {"mamba", {{"time_step_rank", 0}}, "time_step_rank is 0"},
      {"mamba", {{"time_step_init_scheme", "zero"}}, "time_step_init_scheme is \"zero\""},
      {"mamba", {{"time_step_min", 0.2}}, "time_step_min 0.2, time_step_max 0.1"},
      {"falcon_mamba", {{"mixer_rms_eps", -1.0}}, "mixer_rms_eps is -1.0"},
      {"mamba2", {{"num_heads", 5}}, "num_heads 5 of head_dim 16 are 80 channels"},
      {"mamba2", {{"n_groups", 4}}, "num_heads 6 is not a multiple of n_groups 4"},
      {"mamba2",
       {{"state_size", 257}},
       "head_dim is 16 and state_size 257: a head has up to 256 channels of 256"},
      {"mamba2", {{"time_step_limit", {0.5, 0.1}}}, "time_step_limit is [0.5,0.1]"},
      {"mamba2", {{"time_step_limit", {0.5}}}, "time_step_limit is [0.5]"},
      {"mamba2", {{"rms_norm", false}}, "rms_norm is false"},
      {"mamba2", {{"norm_before_gate", true}}, "norm_before_gate is true"},
      {"mamba", {{"attn_layer_idx", {1}}}, "attn_layer_idx is [1]"},
      {"mamba2",
       {{"model_type", "bamba"}},
       "model_type \"bamba\" is not supported, whose models have attention among layers of "
       "Mamba-2"}};
  for (const char* family : {"mamba", "falcon_mamba", "mamba2"}) {
    CHECK(refusal_of(small(family).dump()) == "accepted");
  }
  for (const Row& row : rows) {
    Json config = small(row.family);
    config.update(row.changes);
    const std::string found = refusal_of(config.dump());
    INFO(found);
    CHECK(found.find(row.part) != std::string::npos);
  }
}

TEST_CASE("state space config: hybrids of other kinds are refused with what their layers need",
          "[engine][state_space]") {
  const std::vector<std::pair<const char*, const char*>> types = {
      {"bamba", "attention among layers of Mamba-2"},
      {"granitemoehybrid", "attention among layers of Mamba-2, and factors"},
      {"nemotron_h", "layers of one branch"},
      {"falcon_h1", "attention and Mamba-2 side by side"},
      {"zamba", "a layer of attention that others share"},
      {"zamba2", "a layer of attention that others share"},
      {"lfm2", "gated short convolutions"},
      {"lfm2_moe", "gated short convolutions"},
      {"recurrent_gemma", "gated linear recurrences"},
      {"qwen3_next", "gated delta rules"},
      {"qwen3_5_text", "gated delta rules"},
      {"kimi_linear", "gated delta rules"},
      {"minimax", "lightning attention"}};
  for (const auto& [type, needs] : types) {
    const std::string found = refusal_of(Json{{"model_type", type}}.dump());
    INFO(found);
    CHECK(found.starts_with(fmt::format(
        "c.json: model_type \"{}\" is not supported, whose models have {}", type, needs)));
    CHECK(found.ends_with("are"));
  }
}

TEST_CASE("state space config: Hymba's published keys are all read", "[engine][state_space]") {
  const auto spec = spec_from_config(hymba().dump(), "c.json", 0);
  INFO((spec.ok() ? "" : spec.error().message));
  REQUIRE(spec.ok());
  CHECK(spec->unread_keys == std::vector<std::string>());
  CHECK(spec->prefix == "model.memory_tokens");
  CHECK(spec->prefix_tokens == 3);
  CHECK(spec->ropes.at(0).theta == Approx(10000.0 * std::pow(7.0, 10.0 / 8.0)));
  const auto heads = [&](std::size_t layer) -> const HybridHeadsSpec& {
    return block_of<HybridHeadsSpec>(spec->layers.at(layer));
  };
  // A query sees `sliding_window` keys before its own.
  CHECK(heads(0).window == 0);
  CHECK(heads(1).window == 6);
  CHECK(heads(1).makes_keys());
  CHECK(heads(1).readers == 1);
  CHECK(heads(2).keys_of == "model.layers.1.");
  CHECK(heads(3).makes_keys());
}

TEST_CASE("state space config: what Hymba's layers have no form for is named",
          "[engine][state_space]") {
  const std::vector<std::pair<Json, const char*>> rows = {
      {{{"num_attention_heads", 4}}, "num_attention_heads is 4: it must divide hidden_size 50"},
      {{{"num_attention_heads", 10}}, "heads of an even width"},
      {{{"num_key_value_heads", 2}}, "5 is not a multiple of num_key_value_heads 2"},
      {{{"kv_reuse_group", {{0, 1}}}}, "of layers 0 and 1 one alone is in global_attn_idx"},
      {{{"kv_reuse_group", {{1, 3}}}}, "kv_reuse_group has [1,3]"},
      {{{"kv_reuse_group", {{1}}}}, "kv_reuse_group has [1]"},
      {{{"kv_reuse_group", {{1, 2}, {2, 3}}}}, "kv_reuse_group has [2,3]"},
      {{{"kv_reuse_group", 2}}, "kv_reuse_group has null"},
      {{{"global_attn_idx", {4}}}, "global_attn_idx has layer 4 of 4 layers"},
      {{{"layer_type", {"h", "m", "h", "h"}}}, "layer_type is not a list of \"h\", one per layer"},
      {{{"layer_type", {"h"}}}, "layer_type is not a list of \"h\", one per layer"},
      {{{"mamba_inner_layernorms", false}}, "mamba_inner_layernorms is false"},
      {{{"num_mamba", 2}}, "num_mamba is 2: a layer has one scan here; set it to 1"},
      {{{"num_experts", 8}}, "num_experts is 8"},
      {{{"kq_norm", "rms"}}, "kq_norm is \"rms\""},
      {{{"kv_weight_reuse", true}}, "kv_weight_reuse is true"},
      {{{"kv_reuse_every_i_layer", 2}}, "kv_reuse_every_i_layer is 2"},
      {{{"memory_tokens_interspersed_every", 64}}, "memory_tokens_interspersed_every is 64"},
      {{{"v_head_dim", 10}}, "v_head_dim is 10, but"},
      {{{"conv_dim", {{"0", 90}}}}, "conv_dim has 90"},
      {{{"rope_type", "yarn"}}, "rope_type is \"yarn\""},
      {{{"rope", false}}, "rope is false"},
      {{{"max_position_embeddings", 16}}, "less than orig_max_position_embeddings"},
      {{{"hidden_act", "gelu"}}, "hidden_act"},
      {{{"mamba_d_conv", 9}}, "conv_kernel (mamba_d_conv) is 9: convolutions have 1 to 8 taps"},
      {{{"sliding_window", -1}}, "sliding_window"}};
  for (const auto& [changes, part] : rows) {
    Json config = hymba();
    config.update(changes);
    const std::string found = refusal_of(config.dump());
    INFO(found);
    CHECK(found.find(part) != std::string::npos);
  }
}

TEST_CASE("state space config: limits of steps are read in both ways to write infinity",
          "[engine][state_space]") {
  const auto limits_of = [](const std::string& limit) {
    std::string text = small("mamba2").dump();
    text.insert(1, "\"time_step_limit\": " + limit + ", \"note\": \"Infinity \\\" NaN\", ");
    const auto spec = spec_from_config(text, "c.json", 0);
    INFO((spec.ok() ? "" : spec.error().message));
    REQUIRE(spec.ok());
    return std::pair(mixer_of(*spec).least_step, mixer_of(*spec).most_step);
  };
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(limits_of("null") == std::pair(0.0F, infinity));
  CHECK(limits_of("[0.0, Infinity]") == std::pair(0.0F, infinity));
  CHECK(limits_of("[0.25, {\"__float__\": \"Infinity\"}]") == std::pair(0.25F, infinity));
  CHECK(limits_of("[0.25, 1.5]") == std::pair(0.25F, 1.5F));
  CHECK(refusal_of("{\"model_type\": Infinite}") ==
        "c.json: not a JSON object; give a model's config.json, or its directory");
}

TEST_CASE("state space config: the original program's keys are transformers'",
          "[engine][state_space]") {
  const Json first = {{"d_model", 768},         {"n_layer", 24},
                      {"vocab_size", 50277},    {"ssm_cfg", Json::object()},
                      {"rms_norm", true},       {"residual_in_fp32", true},
                      {"fused_add_norm", true}, {"pad_vocab_size_multiple", 8}};
  const auto mamba = spec_from_config(first.dump(), "c.json", 0);
  REQUIRE(mamba.ok());
  CHECK(mamba->architecture == "mamba");
  CHECK(count_parameters(*mamba).total == 129'135'360);
  Json second = first;
  second["ssm_cfg"] = {{"layer", "Mamba2"}};
  second["pad_vocab_size_multiple"] = 16;
  second["d_intermediate"] = 0;
  second["attn_layer_idx"] = Json::array();
  second["attn_cfg"] = Json::object();
  second["tie_embeddings"] = true;
  const auto mamba2 = spec_from_config(second.dump(), "c.json", 0);
  INFO((mamba2.ok() ? "" : mamba2.error().message));
  REQUIRE(mamba2.ok());
  CHECK(mamba2->architecture == "mamba2");
  CHECK(count_parameters(*mamba2).total == 128'989'632);
  CHECK(mixer_of(*mamba2).groups == 1);
  CHECK(mamba2->unread_keys.empty());
  second["ssm_cfg"] = {{"layer", "Mamba2"}, {"D_has_hdim", true}};
  CHECK(refusal_of(second.dump()).find("ssm_cfg.D_has_hdim is true") != std::string::npos);
  second["ssm_cfg"] = {{"layer", "Mamba3"}};
  CHECK(refusal_of(second.dump()).find("ssm_cfg.layer is \"Mamba3\"") != std::string::npos);
  // Its defaults are the original program's.
  const auto least = spec_from_config(R"({"ssm_cfg": {}})", "c.json", 0);
  REQUIRE(least.ok());
  CHECK(count_parameters(*least).total == 2'768'345'600);
  // Any other text stays.
  CHECK(in_known_dialect("{\"a\": [1,  2]}") == "{\"a\": [1,  2]}");
  CHECK(in_known_dialect("no JSON, Infinity") == "no JSON, Infinity");
}

}  // namespace train::engine::state_space_config_test
