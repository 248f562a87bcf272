"""Tiny models of every published family, computed by transformers in float64: the loss, logits, every
gradient, and the weights after five AdamW steps.

Weights and tokens follow a formula that the engine's test repeats, so that the fixture holds what
comes out alone. Of every tensor it has the largest magnitude, the products with two waves, in which
any element that is wrong shows, and some elements as they are. Writes fixtures/models.json; needs
torch and transformers.
"""

import copy
import json
import math
import pathlib
import zlib

import torch
import transformers

SEQUENCES = 2
LENGTH = 48  # No multiple of a tile.
SAMPLES = 6  # Elements of a tensor that the fixture holds.
STEPS = 5
# Adam divides by the root of the second moment: where a gradient is all but zero, rounding would
# decide the update. With this eps it does not, and everything else of AdamW takes part.
ADAMW = {"lr": 0.002, "beta1": 0.9, "beta2": 0.95, "eps": 1e-5, "weight_decay": 0.1,
         "grad_clip": 1.0}

# Of wavelengths from 2 pi on: kept below 16 / 2, scaled above 16 / 1, blended between.
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 2.0,
          "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
        "beta_fast": 4.0, "beta_slow": 0.5}
DECODER = {"vocab_size": 160, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
           "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
           "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
GEMMA = {"head_dim": 32, "query_pre_attn_scalar": 20, "sliding_window": 7, "vocab_size": 200,
         "num_attention_heads": 2, "num_key_value_heads": 1,
         "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True}
# Of 32 dimensions of a head 24 turn: 12 pairs.
LONGROPE = {"pad_token_id": 0, "hidden_size": 128, "partial_rotary_factor": 0.75,
            "sliding_window": 20,
            "original_max_position_embeddings": 16, "max_position_embeddings": 128,
            "rope_scaling": {"rope_type": "longrope",
                             "short_factor": [1.0 + 0.05 * i for i in range(12)],
                             "long_factor": [1.5 + 0.25 * i for i in range(12)]}}
NEOX = {"model_type": "gpt_neox", "vocab_size": 160, "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 3, "num_attention_heads": 4, "rotary_pct": 0.25,
        "max_position_embeddings": 128, "hidden_act": "gelu", "attention_dropout": 0.0,
        "hidden_dropout": 0.0}


def decoder(model_type, **changes):
    return {"model_type": model_type, **DECODER, **changes}


def every_sixth(count):
    return ["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(count)]


LLAMA = {"head_dim": 32, "rope_theta": 500.0, "rope_scaling": LLAMA3}
CASES = {
    "llama": decoder("llama", **LLAMA),
    "llama_tied": decoder("llama", **LLAMA, tie_word_embeddings=True),
    "llama_biases": decoder("llama", **LLAMA, attention_bias=True, mlp_bias=True),
    "llama_linear": decoder("llama", rope_scaling={"rope_type": "linear", "factor": 3.0}),
    "llama_yarn": decoder("llama", rope_scaling=YARN, num_key_value_heads=1),
    "llama_parameters": decoder("llama", rope_parameters={**LLAMA3, "rope_theta": 900.0}),
    "mistral": decoder("mistral", head_dim=32, sliding_window=20),
    "qwen2": decoder("qwen2", tie_word_embeddings=True),
    "qwen2_windows": decoder("qwen2", use_sliding_window=True, sliding_window=20,
                             max_window_layers=1),
    "qwen3": decoder("qwen3", head_dim=24, num_key_value_heads=1),
    "gemma2": decoder("gemma2", **GEMMA, attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
                      num_hidden_layers=4),
    "gemma3_text": decoder("gemma3_text", **GEMMA, num_hidden_layers=7, rope_theta=1000.0,
                           rope_local_base_freq=100.0, layer_types=every_sixth(7),
                           rope_scaling={"rope_type": "linear", "factor": 8.0}),
    # A width whose root is no whole number.
    "gemma3_text_nested": decoder("gemma3_text", **{**GEMMA, "hidden_size": 48},
                                  num_hidden_layers=6, rope_parameters={
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}),
    "phi3": decoder("phi3", pad_token_id=0, head_dim=32, partial_rotary_factor=0.75),
    "phi3_longrope": decoder("phi3", **LONGROPE),
    "phi3_longrope_short": decoder("phi3", **LONGROPE),
    "olmo2": decoder("olmo2"),
    "olmo3": decoder("olmo3", num_hidden_layers=4, sliding_window=9, rope_scaling=YARN),
    "olmo3_nested": decoder("olmo3", num_hidden_layers=4, sliding_window=9, rope_parameters={
        "full_attention": {**YARN, "rope_theta": 700.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 90.0}}),
    "gpt_neox": NEOX,
    "gpt_neox_serial": {**NEOX, "rotary_pct": 0.5, "use_parallel_residual": False},
    "gpt2": {"model_type": "gpt2", "vocab_size": 160, "n_positions": 96, "n_embd": 64,
             "n_layer": 3, "n_head": 4, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
             "attn_pdrop": 0.0},
}
# Shorter than what the longrope was trained on: its other factors.
LENGTHS = {"phi3_longrope_short": 15}


def wave(count, step):
    return torch.sin(step * torch.arange(1, count + 1, dtype=torch.float64))


def weight(name, shape, gain):
    """A chirp of its own, which looks random: gains around `gain`, matrices of variance 1 / inputs."""
    at = torch.arange(1, math.prod(shape) + 1, dtype=torch.float64)
    values = torch.sin((0.1 + zlib.crc32(name.encode()) % 1000 / 1000.0) * at * at)
    if len(shape) > 1:
        values = values * (1.4 / math.sqrt(shape[-1]))
    else:
        values = 0.4 * values if name.endswith("bias") else 0.5 * values + gain
    return values.to(torch.float32).reshape(shape)


def tokens(length, vocab):
    at = torch.arange(SEQUENCES * (length + 1)).reshape(SEQUENCES, length + 1)
    return (at * at * 7 + at * 3 + 5) % vocab


def digits(value):
    return float(f"{value:.8g}")


def summary(name, tensor):
    """[largest magnitude, product with one wave, with another, some elements...]"""
    flat = tensor.detach().reshape(-1)
    count = flat.numel()
    first = zlib.crc32(name.encode())
    sampled = [flat[(first + 7919 * i) % count].item() for i in range(SAMPLES)]
    return [digits(v) for v in [flat.abs().max().item(), (flat * wave(count, 0.37)).sum().item(),
                                (flat * wave(count, 1.1)).sum().item(), *sampled]]


def make_model(config):
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**copy.deepcopy(config)), attn_implementation="eager")
    model.eval()
    neox = config["model_type"] == "gpt_neox"
    gain = 0.0 if config["model_type"].startswith("gemma") else 1.0
    stored = {}
    for name, parameter in model.named_parameters():
        # In memory the head of GPT-NeoX has another name than in files.
        stored[name] = name.replace("lm_head.", "embed_out.") if neox else name
        parameter.data = weight(stored[name], tuple(parameter.shape), gain)
    return model.double(), stored


def is_decayed(name, parameter):
    """Matrices of layers and the head; an embedding is none, tied or not, nor are biases of all experts."""
    others = ("embed_tokens.weight", "embed_in.weight", "wte.weight", "wpe.weight", "bias")
    return parameter.dim() > 1 and not name.endswith(others)


def make_optimizer(model):
    named = list(model.named_parameters())
    groups = [{"params": [p for n, p in named if is_decayed(n, p) == decay],
               "weight_decay": ADAMW["weight_decay"] if decay else 0.0} for decay in (True, False)]
    return torch.optim.AdamW(groups, lr=ADAMW["lr"], betas=(ADAMW["beta1"], ADAMW["beta2"]),
                             eps=ADAMW["eps"])


def run(name, config):
    model, stored = make_model(config)
    length = LENGTHS.get(name, LENGTH)
    ids = tokens(length, config["vocab_size"])
    optimizer = make_optimizer(model)
    out = {"config": config, "length": length,
           "parameters": sum(p.numel() for p in model.parameters()), "losses": [], "norms": []}
    for step in range(STEPS):
        optimizer.zero_grad()
        logits = model(input_ids=ids[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].reshape(-1))
        loss.backward()
        if step == 0:
            out["logits"] = summary("logits", logits)
            out["gradients"] = {stored[n]: summary(stored[n], p.grad)
                                for n, p in model.named_parameters()}
        out["losses"].append(loss.item())
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), ADAMW["grad_clip"])
        out["norms"].append(norm.item())
        optimizer.step()
    out["weights"] = {stored[n]: summary(stored[n], p) for n, p in model.named_parameters()}
    return out


def main():
    head = {"sequences": SEQUENCES, "adamw": ADAMW, "steps": STEPS,
            "transformers": transformers.__version__}
    lines = []
    for name, config in CASES.items():
        case = run(name, config)
        print(name, case["losses"], case["norms"])
        lines.append(f'  "{name}": {json.dumps(case, separators=(",", ":"))}')
    text = json.dumps(head)[:-1] + ', "cases": {\n' + ",\n".join(lines) + "\n}}\n"
    path = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "models.json"
    path.write_text(text)


if __name__ == "__main__":
    main()
