"""Writes fixtures/unlearning.json: losses of sequential unlearning and their gradients, by torch in float64.

Needs torch.
"""

import json
import math
import pathlib

import torch
import torch.nn.functional as F

VOCAB = 17
TOP = 5


def with_gradient(of, values):
    values = values.clone().requires_grad_(True)
    loss = of(values)
    loss.backward()
    return {"loss": float(loss), "gradient": values.grad.tolist()}


def row_case(logits, reference, target):
    uniform = torch.full((VOCAB,), 1.0 / VOCAB)
    top = lambda z: z[torch.topk(z, TOP).indices]
    return {
        "logits": logits.tolist(), "reference": reference.tolist(), "target": target,
        "nll": with_gradient(lambda z: F.cross_entropy(z[None], torch.tensor([target])), logits),
        "kl": with_gradient(lambda z: F.kl_div(z.log_softmax(-1), reference.log_softmax(-1), log_target=True,
                                               reduction="sum"), logits),
        "random_target": with_gradient(lambda z: F.cross_entropy(z[None], torch.tensor([target])) / math.log(VOCAB), logits),
        "max_entropy": with_gradient(lambda z: F.cross_entropy(z[None], uniform[None]) / math.log(VOCAB), logits),
        "top_k_entropy": with_gradient(lambda z: F.cross_entropy(top(z)[None], torch.full((1, TOP), 1.0 / TOP)) / math.log(TOP), logits),
        "distance": with_gradient(lambda z: torch.linalg.vector_norm(z - reference), logits),
    }


def npo_case(ratio, beta):
    case = with_gradient(lambda r: -F.logsigmoid(-beta * r), torch.tensor(ratio))
    return {"ratio": ratio, "beta": beta, **case}


def join_case(r, f):
    agree = (r * f) > 0
    return {"retain": r.tolist(), "forget": f.tolist(), "agree": int(agree.sum()), "sum": (r + f).tolist(),
            "symmetric": ((r + f) * agree).tolist(), "asymmetric": (r + f * agree).tolist()}


def schedule_case(layer, seen, zero, scale):
    """As the launch file of the reference has it: 31 down to 8, 3200 examples."""
    s = min(1.0, seen / 3200)
    factor = 1 + (scale - 1) * (31 - layer) / 31 if scale > 1 else 1.0
    return {"layer": layer, "seen": seen, "zero": zero, "scale": scale,
            "retain": 20.0 * (s if zero else 0.25 + 0.75 * s), "forget": 5.0 * (1 - 0.25 * s) * factor}


def main():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(11)
    rows = [row_case(torch.randn(VOCAB) * scale, torch.randn(VOCAB) * scale, int(torch.randint(VOCAB, ())))
            for scale in (0.1, 1.0, 4.0, 30.0)]
    r = torch.randint(-3, 4, (64,)).double() / 4
    f = torch.randint(-3, 4, (64,)).double() / 4
    fixture = {"top": TOP, "rows": rows,
               "npo": [npo_case(ratio, beta) for ratio in (-900.0, -3.0, -0.2, 0.0, 1.7, 40.0, 900.0) for beta in (0.1, 2.0)],
               "join": join_case(r, f),
               "schedule": [schedule_case(layer, seen, zero, scale) for layer in (31, 19, 11) for seen in (0, 800, 3200, 4000)
                            for zero in (False, True) for scale in (1.0, 2.5)]}
    path = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "unlearning.json"
    path.write_text(json.dumps(fixture) + "\n")
    print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
