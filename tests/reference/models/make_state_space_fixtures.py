"""Tiny models of state spaces, computed by transformers in float64: as make_model_fixtures.py, whose formulas of
weights and tokens these are, for rows of several lengths: below and above the taps of the convolution and the chunks
of the scan. Biases of steps are less, as in published models; of the cases that end in "large_steps" they are not, and the
logarithms of rates are more, so that most states are forgotten at once.

Tokens are shifted, by the least shift for which no choice of an expert is close in any step.

transformers computes in float64 throughout, by its slow path: its own casts to float32 are left out. Hymba, which it
lacks, is hymba_model.py's.
Writes fixtures/state_spaces.json; needs torch and transformers. Given names of cases it makes only those anew.
"""

import copy
import json
import pathlib
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file

from hymba_model import Hymba
from make_expert_fixtures import LEAST_MARGINS, all_in_double
from make_model_fixtures import ADAMW, STEPS, summary, tokens, weight

# Added to the biases of steps, and to the logarithms of rates.
SHIFTS, LARGE_SHIFTS = (-2.0, 0.0), (0.0, 5.0)
# In float32 torch is 1e-4 from float64 after five steps with the others: norms, of Hymba's two kinds of heads and of
# short texts of Jamba, amplify what they get.
SMALL_STEPS = ("hymba", "jamba_")
SMALL_SHIFTS = (-5.0, 0.0)
MAMBA = {"model_type": "mamba", "vocab_size": 160, "hidden_size": 48, "state_size": 8, "num_hidden_layers": 2,
         "time_step_rank": 5}
FALCON = {**MAMBA, "model_type": "falcon_mamba", "tie_word_embeddings": False, "mixer_rms_eps": 1e-4}
MAMBA2 = {"model_type": "mamba2", "vocab_size": 160, "hidden_size": 48, "state_size": 8, "num_hidden_layers": 2,
          "num_heads": 6, "head_dim": 16, "n_groups": 2, "chunk_size": 16}
JAMBA = {"model_type": "jamba", "vocab_size": 160, "hidden_size": 48, "intermediate_size": 40, "num_hidden_layers": 4,
         "num_attention_heads": 4, "num_key_value_heads": 2, "attn_layer_period": 4, "attn_layer_offset": 2,
         "expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 4, "num_experts_per_tok": 2,
         "mamba_d_state": 8, "mamba_dt_rank": 5, "rms_norm_eps": 1e-5, "output_router_logits": False,
         "max_position_embeddings": 128, "pad_token_id": None}
HYMBA = {"model_type": "hymba", "vocab_size": 160, "hidden_size": 50, "intermediate_size": 40, "num_hidden_layers": 4,
         "num_attention_heads": 5, "num_key_value_heads": 1, "mamba_d_state": 8, "mamba_dt_rank": 6,
         "num_memory_tokens": 3, "sliding_window": 5, "global_attn_idx": [0, 3], "kv_reuse_group": [[1, 2]],
         "rope_type": "ntk", "rope_theta": 500.0, "max_position_embeddings": 128, "orig_max_position_embeddings": 32,
         "rms_norm_eps": 1e-5, "tie_word_embeddings": True}
# The least shift of tokens, where torch in float32 is further than a third of 1e-5 from float64 with those before it.
FIRST_SHIFTS = {"falcon_mamba_1": 1, "hymba_30": 2, "jamba_1": 1, "jamba_31": 34, "jamba_33": 30}
# Name: configuration, rows of a sequence.
CASES = {
    **{f"mamba_{length}": (MAMBA, length) for length in (1, 2, 3, 4, 5, 31, 32, 33, 70)},
    "mamba_biases": ({**MAMBA, "use_bias": True, "conv_kernel": 3, "tie_word_embeddings": False}, 37),
    "mamba_plain": ({**MAMBA, "use_conv_bias": False, "expand": 1, "conv_kernel": 2, "time_step_rank": "auto"}, 37),
    "mamba_large_steps": (MAMBA, 37),
    **{f"mamba2_{length}": (MAMBA2, length) for length in (1, 2, 3, 4, 5, 127, 128, 129, 257)},
    "mamba2_limits": ({**MAMBA2, "time_step_limit": [0.1, 1.5], "use_bias": True}, 37),
    "mamba2_plain": ({**MAMBA2, "n_groups": 1, "use_conv_bias": False, "conv_kernel": 2, "tie_word_embeddings": True}, 37),
    "mamba2_large_steps": (MAMBA2, 37),
    "jamba": (JAMBA, 19),
    "jamba_dense": ({**JAMBA, "num_experts": 1, "num_hidden_layers": 2, "mamba_proj_bias": True,
                     "attn_layer_period": 2, "attn_layer_offset": 1}, 37),
    **{f"jamba_{length}": (JAMBA, length) for length in (1, 2, 4, 31, 32, 33)},
    **{f"falcon_mamba_{length}": (FALCON, length) for length in (1, 2, 4, 31, 32, 70)},
    # The window ends, and with the learned tokens before the text the chunk.
    **{f"hymba_{length}": (HYMBA, length) for length in (1, 2, 4, 6, 7, 28, 29, 30, 70)},
    "hymba_groups": ({**HYMBA, "hidden_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "mamba_expand": 3,
                      "num_hidden_layers": 6, "kv_reuse_group": [[0, 1, 2], [4, 5]], "global_attn_idx": [3, 4, 5],
                      "rope_type": None, "mamba_proj_bias": True, "tie_word_embeddings": False, "mamba_d_conv": 3}, 37),
    "hymba_packed": ({**HYMBA, "num_memory_tokens": 0}, 37),
    "hymba_plain": ({**HYMBA, "num_memory_tokens": 0, "sliding_window": None, "global_attn_idx": None,
                     "kv_reuse_group": None, "mamba_dt_rank": "auto", "num_hidden_layers": 2}, 19),
    "falcon_mamba_biases": ({**FALCON, "use_bias": True, "tie_word_embeddings": True}, 33),
}


def stored(name, tensor):
    """Of a parameter's name and tensor in memory, those of files: Jamba's experts one by one."""
    if name.endswith("experts.gate_up_proj"):
        prefix, half = name.removesuffix("gate_up_proj"), tensor.shape[1] // 2
        return [pair for i, both in enumerate(tensor) for pair in (
            (f"{prefix}{i}.gate_proj.weight", both[:half]), (f"{prefix}{i}.up_proj.weight", both[half:]))]
    if name.endswith("experts.down_proj"):
        prefix = name.removesuffix("down_proj")
        return [(f"{prefix}{i}.down_proj.weight", one) for i, one in enumerate(tensor)]
    return [(name, tensor)]


def parts_of(model, pick=lambda parameter: parameter):
    """Name in files and tensor of each parameter, or of what `pick` gives of it."""
    return [part for name, parameter in model.named_parameters() for part in stored(name, pick(parameter).detach())]


def make_model(config, shifts=SHIFTS):
    if config["model_type"] == "hymba":
        model = Hymba(config).requires_grad_(False)
    else:
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(**copy.deepcopy(config)), attn_implementation="eager")
    if config["model_type"] == "jamba":
        model.set_experts_implementation("eager")
    model.eval()
    for name, part in parts_of(model):
        part.copy_(weight(name, tuple(part.shape), 1.0))
        if name.endswith(("dt_proj.bias", "dt_proj.0.bias", "dt_bias")):
            part += shifts[0]
        if name.endswith(("A_log", "A_log.0")):
            part += shifts[1]
    return model.double().requires_grad_()


def check_names(model):
    """The names and shapes are those that transformers saves."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        saved = load_file(pathlib.Path(folder) / "model.safetensors")
    parameters = dict(parts_of(model))
    assert saved.keys() == parameters.keys(), saved.keys() ^ parameters.keys()
    assert all(torch.equal(saved[name], parameter) for name, parameter in parameters.items())


def is_decayed(name, parameter):
    """Matrices, and weights of convolutions: not the embedding, nor the rates."""
    return parameter.dim() > 1 and not name.endswith(
        ("embeddings.weight", "embed_tokens.weight", "memory_tokens", "A_log", "A_log.0"))


def make_optimizer(model):
    named = list(model.named_parameters())
    groups = [{"params": [p for n, p in named if is_decayed(n, p) == decay],
               "weight_decay": ADAMW["weight_decay"] if decay else 0.0} for decay in (True, False)]
    return torch.optim.AdamW(groups, lr=ADAMW["lr"], betas=(ADAMW["beta1"], ADAMW["beta2"]), eps=ADAMW["eps"])


def closest_choice(model, ids):
    """What the logits of the last expert that is chosen and of the first that is not are apart, where they are
    closest; and what comes out."""
    margins, slots = [], getattr(model.config, "num_experts_per_tok", 0)
    routers = [m for n, m in model.named_modules() if n.endswith("feed_forward.router")]

    def keep(router, inputs, _):
        logits = torch.nn.functional.linear(inputs[0].reshape(-1, inputs[0].shape[-1]), router.weight).detach()
        ordered = logits.sort(dim=-1, descending=True).values
        margins.append((ordered[:, slots - 1] - ordered[:, slots]).min().item())

    hooks = [router.register_forward_hook(keep) for router in routers]
    logits = model(input_ids=ids[:, :-1], use_cache=False).logits
    for hook in hooks:
        hook.remove()
    return min(margins, default=float("inf")), logits


def train(model, ids, out):
    """What comes out of the steps; None: a choice of an expert is close."""
    optimizer = make_optimizer(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        closest, logits = closest_choice(model, ids)
        if closest < LEAST_MARGINS[min(step, 1)]:
            return None
        assert logits.dtype == torch.float64
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].reshape(-1))
        loss.backward()
        if step == 0:
            out["logits"] = summary("logits", logits)
            out["gradients"] = {n: summary(n, p) for n, p in parts_of(model, lambda p: p.grad)}
        out["losses"].append(loss.item())
        out["norms"].append(torch.nn.utils.clip_grad_norm_(model.parameters(), ADAMW["grad_clip"]).item())
        optimizer.step()
    out["weights"] = {n: summary(n, p) for n, p in parts_of(model)}
    return out


def run(config, length, shifts, first_shift=0):
    if config["model_type"] != "hymba":
        check_names(make_model(config))
    model = make_model(config, shifts)
    ids = tokens(length, config["vocab_size"])
    for shift in range(first_shift, config["vocab_size"]):
        out = train(copy.deepcopy(model), (ids + shift) % config["vocab_size"], {
            "config": config, "length": length, "shift": shift, "step_shift": shifts[0], "rate_shift": shifts[1],
            "parameters": sum(p.numel() for p in model.parameters()), "losses": [], "norms": []})
        if out is not None:
            return out
    raise RuntimeError("every shift has a close choice")


def shifts_of(name):
    small = name.startswith(SMALL_STEPS) and name != "jamba_dense"
    return LARGE_SHIFTS if name.endswith("large_steps") else SMALL_SHIFTS if small else SHIFTS


def main():
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    head = {"sequences": 2, "adamw": ADAMW, "steps": STEPS, "transformers": transformers.__version__}
    lines = []
    path = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "state_spaces.json"
    before = json.loads(path.read_text())["cases"] if sys.argv[1:] else {}
    for name, (config, length) in CASES.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            lines.append(f'  "{name}": {json.dumps(before[name], separators=(",", ":"))}')
            continue
        with all_in_double():
            case = run(config, length, shifts_of(name), FIRST_SHIFTS.get(name, 0))
        print(name, case["losses"], case["norms"], flush=True)
        lines.append(f'  "{name}": {json.dumps(case, separators=(",", ":"))}')
    text = json.dumps(head)[:-1] + ', "cases": {\n' + ",\n".join(lines) + "\n}}\n"
    path.write_text(text)


if __name__ == "__main__":
    main()
