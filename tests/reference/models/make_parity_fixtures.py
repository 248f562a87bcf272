"""Writes fixtures/*.json: python3 tests/reference/models/make_parity_fixtures.py

Needs torch. Numbers are float64 results printed with 8 digits; inputs (weights) are whole numbers
of 1/1024. The engine agrees to 1e-5 of a tensor's largest element (tests/engine/parity/parity_test.cpp,
tied_parity_test.cpp).
"""

import json
import math
from pathlib import Path

import torch
from reference_models import Shape, logits, loss, parameter_shapes

HERE = Path(__file__).resolve().parents[1] / "fixtures"
SEQ_LEN, SEQUENCES, LANES = 9, 2, 2
UNIT = 1024  # Weights are whole numbers of 1/UNIT.

ENOKI = dict(arch="enoki", layers=2, heads=2, head_dim=8, embedding_dim=16, mlp_hidden=24)
QWEN3 = dict(arch="qwen3", layers=2, heads=2, head_dim=8, embedding_dim=16, mlp_hidden=24)
CASES = {
    "enoki": Shape(**ENOKI, vocab_size=37),
    "enoki_no_qk_norm": Shape(**ENOKI, vocab_size=37, qk_norm=False),
    "enoki_residual_scale": Shape(**ENOKI, vocab_size=37, residual_scale=0.5, z_loss_coeff=0.01),
    "qwen3": Shape(**QWEN3, vocab_size=37, output_gate=True),
    "qwen3_no_gate": Shape(**QWEN3, vocab_size=37, output_gate=False),
    "qwen3_wide_heads": Shape(
        "qwen3", 1, 3, 6, 12, 20, 37, qk_norm=False, output_gate=True, residual_scale=0.5
    ),
    "enoki_tied": Shape(
        "enoki", 1, 2, 6, 12, 20, 37, residual_scale=0.5, z_loss_coeff=0.01, tie_embeddings=True
    ),
}


def numbers(tensor):
    return [float(f"{v:.8g}") for v in tensor.detach().flatten().tolist()]


def random_weights(shape, generator):
    weights = {}
    for name, dims in parameter_shapes(shape).items():
        if len(dims) == 1:
            w = 1 + 0.2 * torch.randn(dims, generator=generator, dtype=torch.float64)
        else:
            w = torch.randn(dims, generator=generator, dtype=torch.float64) / math.sqrt(dims[1])
        # Exact in float32, and short in the file.
        weights[name] = (w * UNIT).round() / UNIT
    return weights


def random_batch(shape, generator):
    size = (LANES * SEQUENCES, SEQ_LEN)
    tokens = torch.randint(0, shape.vocab_size, size, generator=generator)
    targets = torch.randint(0, shape.vocab_size, size, generator=generator)
    targets[0, 3] = -1
    targets[3, 0] = -1
    return tokens, targets


def is_decayed(name):
    return name == "lm_head.weight" or any(
        part in name for part in ("c_attn", "c_proj", "c_fc", "_proj.")
    )


def train(shape, start, tokens, targets):
    """Three AdamW steps with clipping; returns losses, norms and the last weights."""
    options = dict(lr=0.01, betas=(0.9, 0.95), eps=1e-8)
    clip, weight_decay = 0.5, 0.1
    weights = {k: v.clone().requires_grad_() for k, v in start.items()}
    groups = [
        {
            "params": [v for k, v in weights.items() if is_decayed(k) == decay],
            "weight_decay": weight_decay if decay else 0.0,
        }
        for decay in (True, False)
    ]
    optimizer = torch.optim.AdamW(groups, **options)
    losses, norms = [], []
    for _ in range(3):
        optimizer.zero_grad()
        total, _ = loss(shape, weights, tokens, targets)
        total.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(list(weights.values()), clip)))
        losses.append(total.item())
        optimizer.step()
    return {
        "lr": options["lr"],
        "beta1": options["betas"][0],
        "beta2": options["betas"][1],
        "eps": options["eps"],
        "weight_decay": weight_decay,
        "grad_clip": clip,
        "losses": losses,
        "grad_norms": norms,
        "weights": {k: numbers(v) for k, v in weights.items()},
    }


def parity_case(shape, seed, with_optimizer):
    generator = torch.Generator().manual_seed(seed)
    start = random_weights(shape, generator)
    tokens, targets = random_batch(shape, generator)
    weights = {k: v.clone().requires_grad_() for k, v in start.items()}
    total, ce = loss(shape, weights, tokens, targets)
    total.backward()
    case = {
        "shape": vars(shape),
        "lanes": LANES,
        "sequences": SEQUENCES,
        "seq_len": SEQ_LEN,
        "tokens": tokens.flatten().tolist(),
        "targets": targets.flatten().tolist(),
        "loss": total.item(),
        "cross_entropy": ce.item(),
        "last_logits": numbers(logits(shape, weights, tokens[:1])[0, -1]),
        "order": list(start),
        "weights_1024ths": {
            k: [round(w * UNIT) for w in v.flatten().tolist()] for k, v in start.items()
        },
        "gradients": {k: numbers(v.grad) for k, v in weights.items()},
    }
    if with_optimizer:
        case["adamw"] = train(shape, start, tokens, targets)
    return case


def main():
    HERE.mkdir(exist_ok=True)
    for seed, (name, shape) in enumerate(CASES.items(), start=1):
        case = parity_case(shape, seed, with_optimizer=name in ("enoki", "qwen3"))
        text = json.dumps(case, separators=(",", ":"))
        (HERE / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
