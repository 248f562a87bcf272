"""Configurations of every published family, each as a config.json in the wild may have it: the cases of
make_config_fixtures.py and config_check.py.

A case is a family's small configuration as transformers saves it, with some keys changed and some left out.
"""

import json

import transformers

VOCAB = 320
SMALL = {"vocab_size": VOCAB, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 4,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512, "pad_token_id": 0,
         "bos_token_id": 1, "eos_token_id": 2}
NEOX = {key: value for key, value in SMALL.items() if key != "num_key_value_heads"}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
SCANS = {**{key: value for key, value in SMALL.items() if "_size" in key and key != "intermediate_size" or "token_id" in key},
         "num_hidden_layers": 2, "state_size": 8}
SIGMOIDS = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "first_k_dense_replace": 1}
FAMILIES = {
    "llama": SMALL, "mistral": {**SMALL, "sliding_window": None}, "ministral": {**SMALL, "head_dim": 12, "sliding_window": 16},
    "qwen2": SMALL, "qwen3": {**SMALL, "head_dim": 12}, "gemma2": {**SMALL, "head_dim": 12, "sliding_window": 32},
    "gemma3_text": {**SMALL, "head_dim": 12, "sliding_window": 32}, "phi3": SMALL, "olmo2": SMALL,
    "olmo3": {**SMALL, "sliding_window": 32},
    "mixtral": {**SMALL, "head_dim": 12, "num_local_experts": 4, "num_experts_per_tok": 2},
    "olmoe": {**SMALL, "num_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": {**SMALL, **EXPERTS, "shared_expert_intermediate_size": 20},
    "qwen3_moe": {**SMALL, **EXPERTS, "head_dim": 12},
    "deepseek_v3": {**SMALL, **SIGMOIDS, "num_key_value_heads": 4, "n_group": 2, "topk_group": 1, "q_lora_rank": 12,
                    "kv_lora_rank": 16, "qk_rope_head_dim": 12, "qk_nope_head_dim": 8, "v_head_dim": 6},
    "glm4_moe": {**SMALL, **SIGMOIDS, "head_dim": 24},
    "gpt_oss": {**SMALL, "head_dim": 12, "sliding_window": 32, "num_local_experts": 4, "num_experts_per_tok": 2},
    "mamba": SCANS, "falcon_mamba": SCANS, "mamba2": {**SCANS, "num_heads": 6, "head_dim": 16, "n_groups": 2},
    "jamba": {**SMALL, "mamba_d_state": 8, "attn_layer_period": 4, "attn_layer_offset": 2, "num_experts": 4},
    "gpt_neox": {**NEOX, "num_attention_heads": 2},
    "gpt2": {"vocab_size": VOCAB, "n_positions": 512, "n_embd": 48, "n_layer": 4, "n_head": 4, "bos_token_id": 0,
             "eos_token_id": 0},
}
LINEAR = {"rope_type": "linear", "factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
SHORT, LONG = [1.0 + 0.1 * i for i in range(6)], [2.0 + i for i in range(6)]
LONGROPE = {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG,
            "original_max_position_embeddings": 128}
THETA = {"rope_theta": 10000.0}
FULL = {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0}}
LOCAL = {"sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}
MIXED = ["sliding_attention", "full_attention"] * 2
OLD = ("rope_parameters",)


def parameters(**keys):
    return {"rope_parameters": {**THETA, **keys}}


# Name: the keys that change, those that go. The same for every family.
EVERYWHERE = {
    "as it is": ({}, ()),
    "old linear": ({"rope_scaling": LINEAR, **THETA}, OLD),
    "old linear, type": ({"rope_scaling": {"type": "linear", "factor": 4.0}, **THETA}, OLD),
    "old yarn": ({"rope_scaling": YARN, "rope_theta": 5000.0}, OLD),
    "old theta": ({"rope_theta": 37.0}, OLD),
    "no rope": ({}, OLD),
    "theta beside parameters": ({"rope_theta": 37.0}, ()),
    "scaling beside parameters": ({"rope_scaling": YARN}, ()),
    "scaling beside scaled parameters": ({**parameters(**LINEAR), "rope_scaling": {**LINEAR, "factor": 2.0}}, ()),
    "empty scaling beside parameters": ({**parameters(**LINEAR), "rope_scaling": {}}, ()),
    "parameters without theta": ({"rope_parameters": LINEAR, "rope_theta": 77.0}, ()),
    "linear": (parameters(**LINEAR), ()),
    "yarn": (parameters(**YARN), ()),
    "yarn without context": (parameters(rope_type="yarn", factor=4.0), ()),
    "yarn, factor null": (parameters(**{**YARN, "factor": None}), ()),
    "yarn, mscale": (parameters(**YARN, mscale=0.7, mscale_all_dim=1.2), ()),
    "yarn, mscale 0": (parameters(**YARN, mscale=1.0, mscale_all_dim=0.0), ()),
    "yarn, attention factor": (parameters(**YARN, attention_factor=1.7), ()),
    "yarn, betas": (parameters(**YARN, beta_fast=8, beta_slow=2), ()),
    "yarn, betas 0": (parameters(**YARN, beta_fast=0, beta_slow=None), ()),
    "yarn, not truncated": (parameters(**YARN, truncate=False), ()),
    "yarn, context outside": ({**parameters(**YARN), "original_max_position_embeddings": 64}, ()),
    "llama3": (parameters(**LLAMA3), ()),
    "llama3 without context": (parameters(**{k: v for k, v in LLAMA3.items() if not k.startswith("orig")}), ()),
    "longrope": (parameters(**LONGROPE), ()),
    "longrope, factor": (parameters(**LONGROPE, factor=2.0), ()),
    "longrope, mscales": (parameters(**LONGROPE, short_mscale=1.3, long_mscale=1.5), ()),
    "dynamic": (parameters(rope_type="dynamic", factor=2.0), ()),
    "proportional": (parameters(rope_type="proportional", partial_rotary_factor=0.5), ()),
    "share": (parameters(partial_rotary_factor=0.5), ()),
    "share outside": ({"partial_rotary_factor": 0.5}, ()),
    "old share": ({"partial_rotary_factor": 0.5, **THETA}, OLD),
    "rotary_pct": ({"rotary_pct": 0.5, "rotary_emb_base": 500.0}, OLD),
    "nested": ({"rope_parameters": {**FULL, **LOCAL}}, ()),
    "nested, scaling": ({"rope_parameters": {**FULL, **LOCAL}, "rope_scaling": {"factor": 2.0}}, ()),
    "nested, full alone": ({"rope_parameters": FULL}, ()),
    "nested, full alone, theta": ({"rope_parameters": FULL, "rope_theta": 70.0, "rope_local_base_freq": 77.0}, ()),
    "nested, windowed alone": ({"rope_parameters": LOCAL}, ()),
    "nested, windowed scaled": ({"rope_parameters": {**FULL, "sliding_attention": {**YARN, **THETA}}}, ()),
    "old, both thetas": ({"rope_scaling": LINEAR, "rope_theta": 1e6, "rope_local_base_freq": 99.0}, OLD),
    "window": ({"sliding_window": 16}, ()),
    "window null": ({"sliding_window": None}, ()),
    "window missing": ({}, ("sliding_window",)),
    "layer types": ({"layer_types": MIXED, "sliding_window": 16}, ()),
    "layer types without a window": ({"layer_types": MIXED, "sliding_window": None}, ()),
    "layer types, used": ({"layer_types": MIXED, "sliding_window": 16, "use_sliding_window": True}, ()),
    "window from layer 2 on": ({"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2},
                               ("layer_types",)),
    "pattern": ({"sliding_window_pattern": 2, "sliding_window": 16}, ("layer_types",)),
    "hidden pattern": ({"_sliding_window_pattern": 2, "sliding_window": 16}, ("layer_types",)),
    "hidden_activation": ({"hidden_activation": "relu"}, ()),
    "hidden_act": ({"hidden_act": "relu"}, ()),
    "heads of keys missing": ({}, ("num_key_value_heads",)),
    "heads of keys null": ({"num_key_value_heads": None}, ()),
    "width of a head missing": ({}, ("head_dim",)),
    "not causal": ({"is_causal": False}, ()),
    "dropout": ({"attention_dropout": 0.1, "classifier_dropout": 0.1, "resid_pdrop": 0.1}, ()),
    "foreign keys": ({"logit_scale": 0.5, "clip_qkv": 0.1, "embedding_multiplier": 3.0}, ()),
    "scores by depth": ({"scale_attn_by_inverse_layer_idx": True}, ()),
    "scores not scaled": ({"scale_attn_weights": False}, ()),
    "caps": ({"final_logit_softcapping": 0.5}, ()),
    "query_pre_attn_scalar": ({"query_pre_attn_scalar": 7}, ()),
    "rms_norm_eps": ({"rms_norm_eps": 0.3}, ()),
    "layer_norm_eps": ({"layer_norm_eps": 0.3}, ()),
    "serial": ({"use_parallel_residual": False}, ()),
    "other names": ({"num_attention_heads": 2}, ()),
}
# The same for every family with experts.
OF_EXPERTS = {
    "experts, a name": ({"num_experts": 3}, ("num_local_experts",)),
    "experts, the other name": ({"num_local_experts": 3}, ("num_experts",)),
    "experts a token": ({"num_experts_per_tok": 3}, ()),
    "more experts a token than there are": ({"num_experts_per_tok": 5}, ()),
    "weights divided by their sum": ({"norm_topk_prob": True}, ()),
    "every other layer": ({"decoder_sparse_step": 2}, ()),
    "layers without": ({"mlp_only_layers": [0, 2]}, ()),
    "layers without, every other": ({"mlp_only_layers": [1], "decoder_sparse_step": 2}, ()),
    "balanced": ({"output_router_logits": True, "router_aux_loss_coef": 0.5}, ()),
    "biases": ({"attention_bias": True}, ()),
    "noise of the router": ({"router_jitter_noise": 0.1}, ()),
    "clipped": ({"clip_qkv": 1.5}, ()),
    "a window on every other layer": (
        {"use_sliding_window": True, "sliding_window": 16, "layer_types": ["full_attention", "sliding_attention"] * 2}, ()),
    "a window by its number": ({"use_sliding_window": True, "sliding_window": 16}, ("layer_types",)),
    "experts, a third name": ({"n_routed_experts": 2}, ("num_experts", "num_local_experts")),
    "more shared experts": ({"n_shared_experts": 3}, ()),
    "one dense layer more": ({"first_k_dense_replace": 2}, ()),
    "every layer with experts": ({"first_k_dense_replace": 0}, ()),
    "no latent of queries": ({"q_lora_rank": None}, ()),
    "norms of heads": ({"use_qk_norm": True}, ()),
    "one group": ({"n_group": 1, "topk_group": 1}, ()),
    "limits": ({"swiglu_limit": 0.5, "swiglu_alpha": 1.2}, ()),
    "further layers": ({"num_nextn_predict_layers": 2}, ()),
    "yarn of scores": (parameters(**YARN, mscale_all_dim=0.8), ()),
    "halves": ({"rope_interleave": False}, ()),
}
# The same for every family with scans.
OF_SCANS = {
    "steps of rank 7": ({"time_step_rank": 7, "mamba_dt_rank": 7}, ()),
    "steps of rank auto": ({"time_step_rank": "auto", "mamba_dt_rank": "auto"}, ()),
    "rank missing": ({}, ("time_step_rank", "mamba_dt_rank")),
    "taps": ({"conv_kernel": 2, "mamba_d_conv": 2}, ()),
    "states": ({"state_size": 5, "mamba_d_state": 5}, ()),
    "as wide as the model": ({"expand": 1, "mamba_expand": 1, "num_heads": 3}, ("intermediate_size",)),
    "biases of maps": ({"use_bias": True, "mamba_proj_bias": True}, ()),
    "no bias of the convolution": ({"use_conv_bias": False, "mamba_conv_bias": False}, ()),
    "untied": ({"tie_word_embeddings": False}, ()),
    "tied": ({"tie_word_embeddings": True}, ()),
    "norms": ({"layer_norm_epsilon": 0.1, "mixer_rms_eps": 0.2}, ()),
    "limits": ({"time_step_limit": [0.1, 0.3]}, ()),
    "groups": ({"n_groups": 3}, ()),
    "one group": ({"n_groups": 1}, ()),
    "chunks": ({"chunk_size": 16}, ()),
    "residual": ({"residual_in_fp32": False}, ()),
    "other layers with attention": ({"attn_layer_period": 2, "attn_layer_offset": 1}, ()),
    "other layers with experts": ({"expert_layer_period": 3, "expert_layer_offset": 0}, ()),
    "one expert": ({"num_experts": 1, "num_experts_per_tok": 1}, ()),
    "three experts a token": ({"num_experts_per_tok": 3}, ()),
}
WITH_SCANS = ("mamba", "falcon_mamba", "mamba2", "jamba")
WITH_EXPERTS = ("mixtral", "olmoe", "qwen2_moe", "qwen3_moe", "deepseek_v3", "glm4_moe", "gpt_oss")
# By family what this program refuses, of layers that versions of transformers disagree on, too.
THIRD_NAME = "experts, a third name"
TWO_NAMES = {"experts, a name", "experts, the other name"}
REFUSED_EXPERTS = {
    "mixtral": {"noise of the router", THIRD_NAME}, "olmoe": {THIRD_NAME},
    "qwen2_moe": {"experts, the other name", "window from layer 2 on", "a window by its number", THIRD_NAME},
    "qwen3_moe": {THIRD_NAME}, "gpt_oss": {THIRD_NAME}, "glm4_moe": TWO_NAMES,
    # More experts than the kept groups have, and heads that share keys.
    "deepseek_v3": {*TWO_NAMES, "experts a token", "other names"},
}
# What this program refuses, by name, though transformers reads it.
REFUSED = {"not causal"}
# Kinds of rope that are not computed here; where ropes go by layers these are said in a place that nobody reads.
REFUSED_KINDS = {"proportional", "dynamic"}
# By layers, where a family has one rope for all: transformers computes nothing with it, or fails.
REFUSED_NESTED = {"nested", "nested, full alone", "nested, full alone, theta", "nested, windowed alone",
                  "nested, windowed scaled"}
# rope_scaling with `type` alone: two versions of transformers read two functions.
REFUSED_BY_LAYER = {"old linear, type"}
BY_LAYER = ("gemma3_text", "olmo3")


def saved(family):
    """The config.json that transformers saves of a family's small model."""
    config = transformers.AutoConfig.for_model(family, **FAMILIES[family])
    return json.loads(config.to_json_string(use_diff=False))


def cases(family):
    """Name, config.json; what transformers saves and this program has no part in is left out."""
    whole = saved(family)
    known = {**transformers.AutoConfig.for_model(family).to_dict(), **FAMILIES[family]}
    base = {key: value for key, value in whole.items() if key in known and key not in ("id2label", "label2id")}
    base["model_type"] = family
    of_family = {**EVERYWHERE, **(OF_EXPERTS if family in WITH_EXPERTS else {}),
                 **(OF_SCANS if family in WITH_SCANS else {})}
    for name, (change, gone) in of_family.items():
        config = json.loads(json.dumps({**base, **change}))
        for key in gone:
            config.pop(key, None)
        yield name, config


def is_refused(family, name):
    if name in REFUSED_EXPERTS.get(family, ()):
        return True
    if family in WITH_SCANS:
        return name in REFUSED | {"hidden_act"} or (family != "jamba" and name == "one expert")
    if family == "gpt2":
        return name in REFUSED
    return name in REFUSED or name in (REFUSED_BY_LAYER if family in BY_LAYER else REFUSED_KINDS | REFUSED_NESTED)
