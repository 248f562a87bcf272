"""Writes fixtures/optimizers.json: python3 tests/reference/training/make_optimizer_fixtures.py

Needs torch with torch.optim.Muon. Fifty updates with known gradients by PyTorch's own AdamW and
Muon; D-Muon, which PyTorch lacks, is written out below from its description. The gradients are not
stored: both sides compute them (`drawn`), so the file holds the last weights and momenta alone.
tests/engine/optimizer/optimizer_reference_test.cpp agrees to 1e-5.
"""

import json
from pathlib import Path

import torch

STEPS = 50
LR = 1e-3
SHAPES = {"wide": (12, 20), "tall": (24, 10), "square": (16, 16)}


def drawn(count, salt):
    """Numbers in [-1, 1) that float32 holds exactly: the upper 24 bits of a 32-bit product."""
    hashed = [((i + 1) * 2654435761 + salt * 40503 + 12345) % 2**32 for i in range(count)]
    hashed = [(h ^ (h >> 15)) * 2246822519 % 2**32 for h in hashed]
    hashed = [(h ^ (h >> 13)) * 3266489917 % 2**32 for h in hashed]
    return torch.tensor([(h >> 8) / 2**23 - 1.0 for h in hashed], dtype=torch.float64)


def gradient(shape, step):
    return drawn(shape[0] * shape[1], step).reshape(shape)


def start(shape):
    return drawn(shape[0] * shape[1], 1000).reshape(shape)


def lr_of(step):
    return LR * (1.0 - step / 100.0)


def run(make, shape, dtype):
    weight = torch.nn.Parameter(start(shape).to(dtype))
    optimizer = make([weight])
    for step in range(1, STEPS + 1):
        for group in optimizer.param_groups:
            group["lr"] = lr_of(step)
        weight.grad = gradient(shape, step).to(dtype)
        optimizer.step()
    return weight.detach(), optimizer.state[weight]


def d_muon(shape, momentum, weight_decay):
    """B = mu B + g, bf16 Newton-Schulz of g + mu B, decay, a step of RMS 0.2 lr; in float32.

    Products are rounded to bf16 where torch.optim.Muon does it.
    """
    weight = start(shape).float()
    buffer = torch.zeros(shape)
    for step in range(1, STEPS + 1):
        g = gradient(shape, step).float()
        buffer = momentum * buffer + g
        x = (g + momentum * buffer).bfloat16()
        flipped = shape[0] > shape[1]
        x = x.T if flipped else x
        x = x / (x.norm() + 1e-7)
        for _ in range(5):
            gram = x @ x.T
            inner = torch.addmm(gram, gram, gram, beta=-4.7750, alpha=2.0315)
            x = torch.addmm(x, inner, x, beta=3.4445)
        x = (x.T if flipped else x).float()
        weight *= 1.0 - lr_of(step) * weight_decay
        weight -= lr_of(step) * 0.2 * max(shape) ** 0.5 * x
    return weight, buffer


def numbers(tensor):
    return [float(f"{v:.8g}") for v in tensor.flatten().tolist()]


def main():
    cases = []
    for name, shape in SHAPES.items():
        case = {"shape": name, "rows": shape[0], "cols": shape[1]}
        weight, state = run(
            lambda p: torch.optim.AdamW(
                p, lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1
            ),
            shape,
            torch.float64,
        )
        case["adamw"] = {
            "weights": numbers(weight),
            "states": [numbers(state["exp_avg"]), numbers(state["exp_avg_sq"])],
        }
        weight, state = run(
            lambda p: torch.optim.Muon(
                p, lr=LR, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"
            ),
            shape,
            torch.float32,
        )
        case["muon"] = {
            "weights": numbers(weight),
            "states": [numbers(state["momentum_buffer"])],
        }
        weight, buffer = d_muon(shape, 0.95, 0.1)
        case["d-muon"] = {"weights": numbers(weight), "states": [numbers(buffer)]}
        cases.append(case)
    out = Path(__file__).resolve().parents[1] / "fixtures" / "optimizers.json"
    out.write_text(json.dumps({"steps": STEPS, "lr": LR, "cases": cases}) + "\n")


if __name__ == "__main__":
    main()
