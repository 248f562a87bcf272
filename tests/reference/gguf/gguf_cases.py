"""Small models of every family that GGUF files know, with each kind of rope, windows and scales, and
their files as llama.cpp's converter writes them. Used by gguf_models.py and make_gguf_model_fixtures.py.

Needs: pip install torch transformers gguf
"""

import pathlib
import sys
import math

import gguf
import numpy
import torch
import transformers

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "models"))
import expert_names

MXFP4 = gguf.GGMLQuantizationType.MXFP4
BYTES = [chr(b) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174 else None for b in range(256)]
ORIGINAL = 64  # positions of the first training, where a rope is scaled

YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": ORIGINAL}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": ORIGINAL}
LINEAR = {"rope_type": "linear", "factor": 4.0}
PLAIN = {"rope_type": "default"}


def rope(kind, theta=5000.0, **more):
    return {"rope_parameters": {**kind, "rope_theta": theta, **more}}


def layered(full, theta=5000.0, local=10000.0):
    return {"rope_parameters": {"full_attention": {**full, "rope_theta": theta},
                                "sliding_attention": {**PLAIN, "rope_theta": local}}}


def longrope():
    """Its lists have as many factors as the model has frequencies: make_model() says how many."""
    return {"rope_type": "longrope", "short_factor": lambda i: 1.0 + 0.1 * i, "long_factor": lambda i: 2.0 + i}


EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
SIGMOIDS = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 12,
            "first_k_dense_replace": 1, "routed_scaling_factor": 2.5, "norm_topk_prob": True}
LATENT = {**SIGMOIDS, "kv_lora_rank": 12, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 10}
OSS = {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16, "head_dim": 16}

SCANS = {"state_size": 4, "time_step_rank": 3, "expand": 2}
HEADS = {"state_size": 4, "num_heads": 4, "n_groups": 2, "expand": 2, "chunk_size": 4}
JAMBA = {"mamba_d_state": 4, "mamba_dt_rank": 3, "num_hidden_layers": 4, "attn_layer_period": 4, "attn_layer_offset": 2,
         "expert_layer_period": 2, "expert_layer_offset": 1}

# name: (architecture of the file, model_type, what its config has besides the sizes)
CASES = {
    "llama": ("llama", "llama", {}),
    "llama_linear": ("llama", "llama", rope(LINEAR)),
    "llama_llama3": ("llama", "llama", rope(LLAMA3, 500.0)),
    "llama_yarn": ("llama", "llama", rope(YARN)),
    "llama_yarn_own": ("llama", "llama", rope({**YARN, "attention_factor": 1.3, "beta_fast": 20.0, "beta_slow": 2.0})),
    "llama_biases": ("llama", "llama", {"attention_bias": True, "mlp_bias": True}),
    "llama_tied": ("llama", "llama", {"tie_word_embeddings": True}),
    "mistral_window": ("llama", "mistral", {"sliding_window": 16, "head_dim": 16}),
    "qwen2": ("qwen2", "qwen2", rope(PLAIN, 1e6)),
    "qwen2_yarn": ("qwen2", "qwen2", rope(YARN, 1e6)),
    "qwen2_linear": ("qwen2", "qwen2", rope(LINEAR)),
    "qwen3": ("qwen3", "qwen3", {"head_dim": 16, **rope(PLAIN, 1e6)}),
    "qwen3_yarn": ("qwen3", "qwen3", {"head_dim": 16, "tie_word_embeddings": True, **rope(YARN, 1e6)}),
    "gemma2": ("gemma2", "gemma2", {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 16}),
    "gemma2_linear": ("gemma2", "gemma2", {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 16,
                                           "final_logit_softcapping": 7.0, "attn_logit_softcapping": 3.0,
                                           **rope(LINEAR)}),
    "gemma2_27b": ("gemma2", "gemma2", {"head_dim": 16, "query_pre_attn_scalar": 12, "sliding_window": 16,
                                        "num_hidden_layers": 46}),
    "gemma3": ("gemma3", "gemma3_text", {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 16,
                                         "num_hidden_layers": 7, **layered(PLAIN, 1e6)}),
    "gemma3_linear": ("gemma3", "gemma3_text", {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 16,
                                                "num_hidden_layers": 7, **layered({**LINEAR, "factor": 8.0}, 1e6)}),
    "gemma3_27b": ("gemma3", "gemma3_text", {"head_dim": 16, "query_pre_attn_scalar": 12, "sliding_window": 16,
                                             "num_hidden_layers": 62, **layered({**LINEAR, "factor": 8.0}, 1e6)}),
    "phi3": ("phi3", "phi3", {"sliding_window": 16}),
    "phi3_partial": ("phi3", "phi3", rope(PLAIN, partial_rotary_factor=0.5)),
    "phi3_longrope": ("phi3", "phi3", {"original_max_position_embeddings": ORIGINAL, **rope(longrope())}),
    "olmo2": ("olmo2", "olmo2", rope(PLAIN, 500000.0)),
    "olmo2_linear": ("olmo2", "olmo2", rope(LINEAR, 500000.0)),
    "olmo3_yarn": ("olmo2", "olmo3", {"sliding_window": 16, **layered(YARN, 500000.0, 500000.0)}),
    "mixtral": ("llama", "mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2, **rope(PLAIN, 1e6)}),
    "mixtral_apart": ("llama", "mixtral", {"num_local_experts": 4, "num_experts_per_tok": 3, "sliding_window": 16}),
    "olmoe": ("olmoe", "olmoe", {**EXPERTS, **rope(PLAIN, 10000.0)}),
    "qwen2_moe": ("qwen2moe", "qwen2_moe", {**EXPERTS, "moe_intermediate_size": 12,
                                            "shared_expert_intermediate_size": 20, **rope(PLAIN, 1e6)}),
    "qwen3_moe": ("qwen3moe", "qwen3_moe", {**EXPERTS, "moe_intermediate_size": 12, "head_dim": 16,
                                            "norm_topk_prob": True, **rope(YARN, 1e6)}),
    "deepseek3": ("deepseek2", "deepseek_v3", {**LATENT, "q_lora_rank": 20, "n_group": 2, "topk_group": 1,
                                               **rope({**YARN, "mscale": 0.8, "mscale_all_dim": 0.8})}),
    "deepseek3_joined": ("deepseek2", "deepseek_v3", {**LATENT, "q_lora_rank": None, "n_group": 1, "topk_group": 1,
                                                      "norm_topk_prob": False, **rope(PLAIN)}),
    "glm4_moe": ("glm4moe", "glm4_moe", {**SIGMOIDS, "n_group": 1, "topk_group": 1, "head_dim": 16,
                                         "attention_bias": True, "use_qk_norm": True,
                                         **rope(PLAIN, 1e6, partial_rotary_factor=0.5)}),
    "glm4_moe_whole": ("glm4moe", "glm4_moe", {**SIGMOIDS, "n_group": 1, "topk_group": 1, "head_dim": 16,
                                               "n_shared_experts": 2, **rope(PLAIN, 1e6, partial_rotary_factor=1.0)}),
    "gpt_oss": ("gpt-oss", "gpt_oss", {**OSS, **rope({**YARN, "beta_fast": 32.0, "beta_slow": 1.0,
                                                      "truncate": False}, 150000.0)}),
    "gpt_oss_mxfp4": ("gpt-oss", "gpt_oss", {**OSS, "hidden_size": 32, "intermediate_size": 64, **rope(PLAIN)}),
    "gpt2": ("gpt2", "gpt2", {}),
    "gpt2_untied": ("gpt2", "gpt2", {"tie_word_embeddings": False}),
    "neox": ("gptneox", "gpt_neox", rope(PLAIN, 10000.0, partial_rotary_factor=0.5)),
    "mamba": ("mamba", "mamba", {**SCANS, "tie_word_embeddings": True}),
    "falcon_mamba": ("mamba", "falcon_mamba", {**SCANS, "tie_word_embeddings": False}),
    "mamba2": ("mamba2", "mamba2", {**HEADS, "tie_word_embeddings": False}),
    "jamba": ("jamba", "jamba", {**JAMBA, **EXPERTS}),
    "jamba_dense": ("jamba", "jamba", {**JAMBA, "num_experts": 1, "num_experts_per_tok": 1, "tie_word_embeddings": True}),
    "neox_linear": ("gptneox", "gpt_neox", {"use_parallel_residual": False,
                                            **rope(LINEAR, 10000.0, partial_rotary_factor=1.0)}),
}

LLAMA_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
GEMMA_NAMES = {**LLAMA_NAMES, "post_attention_layernorm": "post_attention_norm",
               "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}
EXPERT_NAMES = {**LLAMA_NAMES, "mlp.gate": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
                "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
                "mlp.shared_expert.down_proj": "ffn_down_shexp"}
LAYERS = {
    "olmoe": EXPERT_NAMES, "qwen2moe": EXPERT_NAMES, "qwen3moe": EXPERT_NAMES,
    "llama": EXPERT_NAMES, "qwen2": LLAMA_NAMES, "qwen3": LLAMA_NAMES, "gemma2": GEMMA_NAMES,
    "gemma3": GEMMA_NAMES, "olmo2": GEMMA_NAMES,
    "phi3": {**LLAMA_NAMES, "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"},
    "gpt2": {"ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm",
             "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
    "gptneox": {"input_layernorm": "attn_norm", "attention.query_key_value": "attn_qkv",
                "attention.dense": "attn_output", "post_attention_layernorm": "ffn_norm",
                "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"}}
MODEL = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm",
    "gpt_neox.embed_in": "token_embd", "gpt_neox.final_layer_norm": "output_norm", "embed_out": "output"}
PREFIXES = ("model.layers.", "transformer.h.", "gpt_neox.layers.")
# Architectures whose names the gguf package's own map gives.
MAPPED = {"mamba": gguf.MODEL_ARCH.MAMBA, "mamba2": gguf.MODEL_ARCH.MAMBA2, "jamba": gguf.MODEL_ARCH.JAMBA,
          "deepseek2": gguf.MODEL_ARCH.DEEPSEEK2, "glm4moe": gguf.MODEL_ARCH.GLM4_MOE,
          "gpt-oss": gguf.MODEL_ARCH.GPT_OSS}
STATE_SPACES = ("mamba", "falcon_mamba", "mamba2")  # model types without attention
FURTHER = ("glm4_moe",)  # their files have a layer more, which predicts a further token


def make_model(name, sizes):
    """The model, its weights large enough that every setting shows."""
    _, kind, own = CASES[name]
    sizes = dict(sizes)
    if kind == "gpt2":
        sizes = dict(vocab_size=sizes["vocab_size"], n_embd=sizes["hidden_size"], n_inner=sizes["intermediate_size"],
                     n_layer=sizes["num_hidden_layers"], n_head=sizes["num_attention_heads"],
                     n_positions=sizes["max_position_embeddings"], resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    elif kind == "gpt_neox":
        sizes.pop("num_key_value_heads")
        sizes["classifier_dropout"] = 0.0
    elif kind in STATE_SPACES:
        sizes = {key: sizes[key] for key in ("vocab_size", "hidden_size", "num_hidden_layers")}
    if kind == "mamba2":
        own = {**own, "head_dim": own["expand"] * sizes["hidden_size"] // own["num_heads"]}
    if kind in ("deepseek_v3", "olmoe"):  # llama.cpp has as many heads of keys there as of queries
        sizes["num_key_value_heads"] = sizes["num_attention_heads"]
    if kind == "phi3":
        pairs = sizes["hidden_size"] // sizes["num_attention_heads"] // 2
        parameters = own.get("rope_parameters", rope(PLAIN)["rope_parameters"])
        own = {**own, "rope_parameters": {
            key: [value(i) for i in range(pairs)] if callable(value) else value for key, value in parameters.items()}}
    config = transformers.AutoConfig.for_model(kind, **{**sizes, "pad_token_id": 0, "bos_token_id": 1,
                                                        "eos_token_id": 2, **own})
    torch.manual_seed(len(name))
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    for key, weights in model.named_parameters():
        if weights.dim() > 1:
            weights.data.normal_(0, 0.5 if "embed" in key or "wte" in key else 0.2)
        else:
            weights.data.normal_(0.0 if "bias" in key or "gemma" in kind else 1.0, 0.2)
    for key, values in model.named_buffers():
        if key.endswith("e_score_correction_bias"):
            values.normal_(0.0, 0.2)
    if name.endswith("mxfp4"):
        for key, weights in model.named_parameters():
            if ".experts." in key and not key.endswith("bias"):
                blocks = numpy.ascontiguousarray(weights.data.numpy().swapaxes(1, 2))
                near = gguf.quants.dequantize(gguf.quants.quantize(blocks, MXFP4), MXFP4)
                weights.data.copy_(torch.from_numpy(near.swapaxes(1, 2).copy()))
    return model


def paired(x, heads):
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def by_parts(x, heads):
    return x.reshape(heads, 3, x.shape[0] // heads // 3, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)


def as_in_file(architecture, config, name, x):
    """What the converter does to a tensor's values."""
    if name.endswith(("A_log", ".D")) and architecture == "mamba2":
        x = x[:, None]
    if name.endswith("A_log"):
        return -numpy.exp(x)
    if name.endswith("conv1d.weight"):
        return x[:, 0]
    if name.endswith("mixer.norm.weight"):
        return x.reshape(config.n_groups, -1)
    if architecture in ("mamba", "mamba2"):
        return x
    heads = config.num_attention_heads
    if architecture == "llama" and "q_proj" in name:
        return paired(x, heads)
    if architecture == "llama" and "k_proj" in name:
        return paired(x, config.num_key_value_heads)
    if architecture.startswith("gemma") and name.endswith("norm.weight"):
        return x + 1
    if architecture == "gptneox" and "query_key_value" in name:
        return by_parts(x, heads)
    if architecture == "gpt2" and x.ndim == 2 and ".h." in name:
        return x.T
    if name.endswith("shared_expert_gate.weight"):
        return x[0]
    return x


def state_space_name(architecture, name):
    """The name of a tensor that is not its module's weight or bias; else None."""
    names = gguf.get_tensor_name_map(MAPPED[architecture], 99)
    if name.endswith(("A_log", ".D")):
        return names.get_name(name)
    if name.endswith(".dt_bias"):
        return names.get_name(name.removesuffix("_bias")) + ".bias"
    return None


def name_in_file(architecture, name):
    if architecture in ("mamba", "mamba2", "jamba") and (found := state_space_name(architecture, name)):
        return found
    if architecture in MAPPED:
        name = name.replace("e_score_correction_bias", "e_score_correction.bias")
        name += ".weight" if name.endswith("sinks") else ""
    stem, end = name.rsplit(".", 1)
    if architecture in MAPPED:
        return f"{gguf.get_tensor_name_map(MAPPED[architecture], 99).get_name(stem)}.{end}"
    for prefix in PREFIXES:
        if stem.startswith(prefix):
            layer, rest = stem[len(prefix):].split(".", 1)
            return f"blk.{layer}.{LAYERS[architecture][rest]}.{end}"
    return f"{MODEL[stem]}.{end}"


def experts_in_file(name, x, apart):
    """The tensors of a file that have those of a layer's experts: stacks, or as older files one tensor each."""
    layer, what = name[len("model.layers."):].replace(".feed_forward.", ".mlp.").split(".mlp.experts.")
    half = x.shape[1] // 2
    stacks = {"ffn_gate": x[:, :half], "ffn_up": x[:, half:]} if what == "gate_up_proj" else {"ffn_down": x}
    for stem, stack in stacks.items():
        if apart:
            yield from ((f"blk.{layer}.{stem}.{i}.weight", one) for i, one in enumerate(stack))
        else:
            yield f"blk.{layer}.{stem}_exps.weight", stack


def fused_experts_in_file(name, x):
    """Likewise of GPT-OSS, whose matrices are inputs by outputs, and the columns of two of them in turns."""
    layer, what = name[len("model.layers."):].split(".mlp.experts.")
    end = "bias" if what.endswith("_bias") else "weight"
    x = x if end == "bias" else x.swapaxes(1, 2)
    if what.startswith("gate_up"):
        yield f"blk.{layer}.ffn_gate_exps.{end}", x[:, ::2]
        yield f"blk.{layer}.ffn_up_exps.{end}", x[:, 1::2]
    else:
        yield f"blk.{layer}.ffn_down_exps.{end}", x


def up_projection_in_file(config, name, x):
    """Newer files have that of latent attention by heads, in two tensors, one of them transposed."""
    layer = name[len("model.layers."):].split(".")[0]
    heads = x.reshape(config.num_attention_heads, -1, x.shape[-1])
    keys = config.qk_nope_head_dim
    yield f"blk.{layer}.attn_k_b.weight", heads[:, :keys].swapaxes(1, 2)
    yield f"blk.{layer}.attn_v_b.weight", heads[:, keys:]


def tensors_in_file(case, config, name, x):
    """The tensors of a file that have one of the model."""
    architecture = CASES[case][0]
    if ".mlp.experts." in name and architecture == "gpt-oss":
        yield from fused_experts_in_file(name, x)
    elif ".mlp.experts." in name or ".feed_forward.experts." in name:
        yield from experts_in_file(name, x, case.endswith("apart"))
    elif name.endswith("kv_b_proj.weight") and not case.endswith("joined"):
        yield from up_projection_in_file(config, name, x)
    else:
        yield name_in_file(architecture, name), as_in_file(architecture, config, name, x)


def add_rope(writer, architecture, config):
    """Keys, and tensors of factors."""
    parameters = config.rope_parameters
    local = parameters.get("sliding_attention")
    parameters = parameters.get("full_attention", parameters)
    theta, kind = parameters["rope_theta"], parameters["rope_type"]
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    turned = int(head_dim * parameters.get("partial_rotary_factor", 1.0))
    writer.add_rope_dimension_count(turned)
    writer.add_rope_freq_base(theta)
    if kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(parameters["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(parameters["factor"])
        writer.add_rope_scaling_orig_ctx_len(parameters["original_max_position_embeddings"])
        if (factor := parameters.get("attention_factor")) is not None:
            writer.add_rope_scaling_yarn_attn_factor(factor)
        if (fast := parameters.get("beta_fast")) is not None:
            writer.add_rope_scaling_yarn_beta_fast(fast)
        if (slow := parameters.get("beta_slow")) is not None:
            writer.add_rope_scaling_yarn_beta_slow(slow)
        if (gain := parameters.get("mscale_all_dim")) is not None:
            writer.add_rope_scaling_yarn_log_mul(0.1 * gain)
    if kind == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(parameters, turned))
    if kind == "longrope":
        original = config.original_max_position_embeddings
        scale = config.max_position_embeddings / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(original)))
        for key, name in (("long_factor", "rope_factors_long"), ("short_factor", "rope_factors_short")):
            writer.add_tensor(f"{name}.weight", numpy.array(parameters[key], dtype=numpy.float32))
    return local


def llama3_factors(parameters, dim):
    frequencies = 1.0 / (parameters["rope_theta"] ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim))
    original, low, high = (parameters[key] for key in
                           ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"))
    factors = []
    for length in (2 * math.pi / frequencies).tolist():
        if length < original / high:
            factors.append(1.0)
        elif length > original / low:
            factors.append(parameters["factor"])
        else:
            smooth = (original / length - low) / (high - low)
            factors.append(1 / ((1 - smooth) / parameters["factor"] + smooth))
    return numpy.array(factors, dtype=numpy.float32)


def add_sigmoids(writer, config):
    writer.add_expert_count(config.n_routed_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_group_count(config.n_group)
    writer.add_expert_group_used_count(config.topk_group)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    writer.add_leading_dense_block_count(config.first_k_dense_replace)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    if config.norm_topk_prob or config.model_type == "glm4_moe":
        writer.add_expert_weights_norm(config.norm_topk_prob)


def add_latents(writer, config, joined):
    """Newer files have the widths of latents as those of one head of keys, and the heads' own besides."""
    width = config.qk_nope_head_dim + config.qk_rope_head_dim
    writer.add_head_count_kv(config.num_attention_heads if joined else 1)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    if config.q_lora_rank is not None:
        writer.add_q_lora_rank(config.q_lora_rank)
    if joined:
        writer.add_key_length(width)
        writer.add_value_length(config.v_head_dim)
        return
    writer.add_key_length(config.kv_lora_rank + config.qk_rope_head_dim)
    writer.add_value_length(config.kv_lora_rank)
    writer.add_key_length_mla(width)
    writer.add_value_length_mla(config.v_head_dim)


def add_scans(writer, config):
    """As llama.cpp's converters of Mamba, Mamba-2 and Jamba."""
    kind = config.model_type
    of = "mamba_{}".format if kind == "jamba" else {
        "expand": "expand", "d_conv": "conv_kernel", "d_state": "state_size", "dt_rank": "time_step_rank"}.get
    inner = int(getattr(config, of("expand")) * config.hidden_size)
    writer.add_ssm_conv_kernel(getattr(config, of("d_conv")))
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(getattr(config, of("d_state")))
    writer.add_ssm_time_step_rank(config.num_heads if kind == "mamba2" else getattr(config, of("dt_rank")))
    if kind == "mamba2":
        writer.add_ssm_group_count(config.n_groups)
    if kind in ("mamba", "falcon_mamba"):
        writer.add_ssm_dt_b_c_rms(kind == "falcon_mamba")


def add_state_space_keys(writer, config):
    writer.add_context_length(2**20)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_block_count(config.num_hidden_layers)
    add_scans(writer, config)
    writer.add_layer_norm_rms_eps(config.layer_norm_epsilon)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def add_jamba_keys(writer, config):
    with_attention = [i % config.attn_layer_period == config.attn_layer_offset for i in range(config.num_hidden_layers)]
    writer.add_head_count_kv([config.num_key_value_heads if has else 0 for has in with_attention])
    add_scans(writer, config)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_expert_count(config.num_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)


def add_keys(writer, name, config):
    architecture = CASES[name][0]
    if config.model_type in STATE_SPACES:
        add_state_space_keys(writer, config)
        return
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers + (name in FURTHER))
    if name in FURTHER:
        writer.add_nextn_predict_layers(1)
    writer.add_feed_forward_length(config.n_inner if architecture == "gpt2" else config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    if architecture == "jamba":
        add_jamba_keys(writer, config)
    elif architecture in ("gpt2", "gptneox"):
        writer.add_layer_norm_eps(config.layer_norm_epsilon if architecture == "gpt2" else config.layer_norm_eps)
    else:
        if architecture != "deepseek2":
            writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if architecture == "gptneox":
        writer.add_parallel_residual(config.use_parallel_residual)
    if architecture == "deepseek2":
        add_latents(writer, config, name.endswith("joined"))
    elif (head_dim := getattr(config, "head_dim", None)) and config.model_type != "llama":
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if config.model_type in ("deepseek_v3", "glm4_moe"):
        add_sigmoids(writer, config)
    if config.model_type == "gpt_oss":
        writer.add_expert_count(config.num_local_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.intermediate_size)
    if config.model_type in ("mixtral", "olmoe", "qwen2_moe", "qwen3_moe"):
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if config.model_type in ("qwen2_moe", "qwen3_moe"):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if config.model_type == "qwen2_moe":
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    if (window := getattr(config, "sliding_window", None)) and not architecture.startswith("qwen"):
        writer.add_sliding_window(window)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)


def tokens_of(vocab_size):
    """The letters of bytes, three that are special, and fillers; three merges."""
    extra, letters = 0, []
    for letter in BYTES:
        if letter is None:
            letter = chr(256 + extra)
            extra += 1
        letters.append(letter)
    specials = ["<pad>", "<s>", "</s>"]
    merges = ["t h", "th e", "a n"]
    tokens = specials + letters + [merge.replace(" ", "") for merge in merges]
    types = [3] * len(specials) + [1] * (len(tokens) - len(specials))
    tokens = tokens[:vocab_size]
    fill = [f"[unused{i}]" for i in range(vocab_size - len(tokens))]
    return tokens + fill, (types + [5] * len(fill))[:vocab_size], merges


def write_file(path, name, model, with_layers=True):
    """`with_layers`: else of the tensors the embedding and the head alone, and the factors of ropes."""
    architecture = CASES[name][0]
    config = model.config
    writer = gguf.GGUFWriter(str(path), architecture)
    add_keys(writer, name, config)
    if architecture not in ("gpt2", "mamba", "mamba2", "jamba"):
        add_rope(writer, architecture, config)
    tokens, types, merges = tokens_of(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    tied = {"lm_head.weight", "embed_out.weight"} if config.tie_word_embeddings else set()
    for key, value in model.state_dict().items():
        if key in tied or not (with_layers or any(part in key for part in ("embed", "wte", "lm_head"))):
            continue
        for in_file, x in tensors_in_file(name, config, key, value.numpy().astype(numpy.float32)):
            x = numpy.ascontiguousarray(x)
            if name.endswith("mxfp4") and in_file.endswith("exps.weight"):
                writer.add_tensor(in_file, gguf.quants.quantize(x, MXFP4), raw_dtype=MXFP4)
            else:
                writer.add_tensor(in_file, x)
    if with_layers and name in FURTHER:
        for in_file in ("attn_norm.weight", "nextn.enorm.weight", "nextn.eh_proj.weight"):
            writer.add_tensor(f"blk.{config.num_hidden_layers}.{in_file}",
                              numpy.ones(config.hidden_size, dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
