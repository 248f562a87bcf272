"""Losses and gradients of tiny models of every published family, computed by transformers in float64.

Weights and tokens follow a formula that the engine's test repeats, so that the fixture holds what
comes out alone: the loss, and of every parameter's gradient its norm and its products with two
waves. Writes fixtures/models.json; needs torch and transformers.
"""

import copy
import json
import math
import pathlib
import zlib

import torch
import transformers

SEQUENCES = 2
LENGTH = 80
VOCAB = 60

LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32,
        "beta_fast": 8.0, "beta_slow": 1.0}
DECODER = {"vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
           "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
           "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 24, "sliding_window": 20,
         "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True}


def decoder(model_type, **changes):
    return {"model_type": model_type, **DECODER, **changes}


CASES = {
    "llama": decoder("llama", rope_theta=500.0, rope_scaling=LLAMA3),
    "llama_biases_tied": decoder("llama", attention_bias=True, mlp_bias=True, head_dim=12,
                                 tie_word_embeddings=True),
    "llama_linear": decoder("llama", rope_scaling={"rope_type": "linear", "factor": 3.0}),
    "llama_yarn": decoder("llama", rope_scaling=YARN, num_key_value_heads=1),
    "mistral": decoder("mistral", sliding_window=20),
    "qwen2": decoder("qwen2", tie_word_embeddings=True),
    "qwen2_windows": decoder("qwen2", use_sliding_window=True, sliding_window=20,
                             max_window_layers=1),
    "qwen3": decoder("qwen3", head_dim=16),
    "gemma2": decoder("gemma2", **GEMMA, attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
                      num_hidden_layers=3),
    "gemma3_text": decoder("gemma3_text", **GEMMA, num_hidden_layers=3, rope_theta=1000.0,
                           rope_local_base_freq=100.0, num_key_value_heads=1,
                           layer_types=["sliding_attention", "sliding_attention",
                                        "full_attention"]),
    "phi3": decoder("phi3", pad_token_id=0),
    "phi3_longrope": decoder("phi3", pad_token_id=0, partial_rotary_factor=0.5, sliding_window=20,
                             original_max_position_embeddings=32, max_position_embeddings=128,
                             rope_scaling={"rope_type": "longrope",
                                           "short_factor": [1.0, 1.1],
                                           "long_factor": [1.5, 3.0]}),
    "olmo2": decoder("olmo2"),
    "olmo3": decoder("olmo3", num_hidden_layers=4, sliding_window=20, rope_scaling=YARN),
    "olmo3_nested": decoder("olmo3", num_hidden_layers=4, sliding_window=20, rope_parameters={
        "full_attention": {**YARN, "rope_theta": 700.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 90.0}}),
    "gemma3_text_nested": decoder("gemma3_text", **GEMMA, num_hidden_layers=6, rope_parameters={
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}),
    "llama_parameters": decoder("llama", rope_parameters={**LLAMA3, "rope_theta": 900.0}),
    "gpt_neox": {"model_type": "gpt_neox", "vocab_size": VOCAB, "hidden_size": 32,
                 "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
                 "rotary_pct": 0.25, "max_position_embeddings": 128, "hidden_act": "gelu",
                 "attention_dropout": 0.0, "hidden_dropout": 0.0},
    "gpt_neox_serial": {"model_type": "gpt_neox", "vocab_size": VOCAB, "hidden_size": 32,
                        "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
                        "rotary_pct": 0.5, "max_position_embeddings": 128,
                        "use_parallel_residual": False, "attention_dropout": 0.0,
                        "hidden_dropout": 0.0},
    "gpt2": {"model_type": "gpt2", "vocab_size": VOCAB, "n_positions": 96, "n_embd": 32,
             "n_layer": 2, "n_head": 2, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
             "attn_pdrop": 0.0},
}


def wave(count, step):
    return torch.sin(step * torch.arange(1, count + 1, dtype=torch.float64))


def weight(name, shape):
    """Of every tensor: a chirp of its own, which looks random. Gains lie around their start."""
    at = torch.arange(1, math.prod(shape) + 1, dtype=torch.float64)
    step = 0.1 + zlib.crc32(name.encode()) % 1000 / 1000.0
    values = 0.25 * torch.sin(step * at * at)
    return values.to(torch.float32).reshape(shape)


def tokens():
    at = torch.arange(SEQUENCES * (LENGTH + 1)).reshape(SEQUENCES, LENGTH + 1)
    return (at * at * 7 + at * 3 + 5) % VOCAB


def run(config):
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**copy.deepcopy(config)), attn_implementation="eager")
    model.eval()
    stored_names = {}
    for name, parameter in model.named_parameters():
        stored = name.replace("lm_head.", "embed_out.") if "gpt_neox" in config["model_type"] else name
        value = weight(stored, tuple(parameter.shape))
        norm = parameter.dim() == 1 and name.endswith("weight")
        if norm and not config["model_type"].startswith("gemma"):
            value = value + 1.0
        parameter.data = value
        stored_names[name] = stored
    model = model.double()
    ids = tokens()
    logits = model(input_ids=ids[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
    loss.backward()
    gradients = {}
    for name, parameter in model.named_parameters():
        flat = parameter.grad.reshape(-1)
        gradients[stored_names[name]] = [flat.norm().item(), (flat * wave(flat.numel(), 0.37)).sum().item(),
                                  (flat * wave(flat.numel(), 1.1)).sum().item()]
    return {"config": config, "loss": loss.item(), "gradients": gradients,
            "parameters": sum(p.numel() for p in model.parameters())}


def main():
    out = {"sequences": SEQUENCES, "length": LENGTH, "vocab": VOCAB,
           "transformers": transformers.__version__, "cases": {}}
    for name, config in CASES.items():
        out["cases"][name] = run(config)
        print(name, out["cases"][name]["loss"])
    path = pathlib.Path(__file__).parent / "fixtures" / "models.json"
    path.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
