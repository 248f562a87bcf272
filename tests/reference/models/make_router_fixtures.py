"""Writes fixtures/routers.json: choices, weights and gradients of transformers' DeepseekV3TopkRouter in float64, for
logits, a bias and gradients of weights that the file holds; and fixtures/clamped_swiglu.json: values and gradients of
GptOssExperts, at the limits and beyond, too. The router's matrix is the identity, so that its input is the logits.
Rows where a choice is close are left out: single precision chooses the same. Needs torch and transformers.
"""

import json
import pathlib

import torch
from transformers import DeepseekV3Config, GptOssConfig
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts

from make_expert_fixtures import all_in_double

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
LEAST_MARGIN = 1e-4  # Of neighbours in the order of choice scores, and of groups.
# Experts, slots, groups, kept groups, range of the bias, normalised, scale, spread of the logits, their mean.
CASES = [
    (8, 3, 4, 2, (-0.3, 0.3), True, 2.5, 3.0, 0.0),
    (8, 3, 4, 2, (-1.5, 0.0), True, 1.0, 3.0, 0.0),
    (8, 3, 4, 2, (-1.5, 0.0), False, 2.5, 3.0, 0.0),
    (256, 8, 8, 4, (-0.3, 0.3), True, 2.5, 6.0, 0.0),
    (160, 6, 1, 1, (-0.3, 0.3), True, 1.0, 6.0, 0.0),
    (12, 4, 3, 2, (-0.3, 0.3), True, 1.8, 2.0, -46.0),
    (12, 4, 3, 2, (-0.3, 0.3), True, 1.8, 2.0, -80.0),
]
ROWS = 6


def numbers(count, generator, low, high):
    """Multiples of 2^-16: exact in single precision, and short to print."""
    return torch.randint(round(low * 65536), round(high * 65536), (count,), generator=generator).double() / 65536


def margin(router, scores):
    """The least distance of neighbours, among those down to the first that is not chosen."""
    size = router.num_experts // router.num_group
    groups = scores.view(router.num_group, size).topk(2).values.sum(-1)
    order = groups.sort(descending=True).values[: router.topk_group + 1]
    kept = groups.topk(router.topk_group).indices
    inside = scores.view(router.num_group, size)[kept].flatten().sort(descending=True).values[: router.top_k + 1]
    return min((values[:-1] - values[1:]).min().item() for values in (order, inside) if len(values) > 1)


def router_case(number, experts, slots, groups, kept, bias, normalised, scale, spread, mean):
    config = DeepseekV3Config(hidden_size=experts, n_routed_experts=experts, num_experts_per_tok=slots,
                              n_group=groups, topk_group=kept, norm_topk_prob=normalised,
                              routed_scaling_factor=scale)
    generator = torch.Generator().manual_seed(1000 + number)
    router = DeepseekV3TopkRouter(config).double()
    with torch.no_grad():
        router.weight.copy_(torch.eye(experts))
        router.e_score_correction_bias.copy_(numbers(experts, generator, *bias))
    rows = []
    while len(rows) < ROWS:
        logits = (numbers(experts, generator, -spread, spread) + mean).requires_grad_()
        gradient = numbers(slots, generator, -1.0, 1.0)
        if margin(router, logits.detach().sigmoid() + router.e_score_correction_bias) < LEAST_MARGIN:
            continue
        _, weights, chosen = router(logits[None])
        choice = (logits.detach().sigmoid() + router.e_score_correction_bias)[chosen[0]]
        order = choice.argsort(descending=True)
        weights, chosen = weights[0][order], chosen[0][order]
        (weights * gradient).sum().backward()
        rows.append({"logits": logits.tolist(), "chosen": chosen.tolist(), "weights": weights.tolist(),
                     "dweights": gradient.tolist(), "dlogits": logits.grad.tolist()})
    return {"experts": experts, "slots": slots, "groups": groups, "kept_groups": kept, "normalised": normalised,
            "scale": scale, "bias": router.e_score_correction_bias.tolist(), "rows": rows}


def clamped_case(alpha, limit):
    config = GptOssConfig(hidden_size=4, intermediate_size=4, num_local_experts=1)
    experts = GptOssExperts(config).double()
    experts.alpha, experts.limit = alpha, limit
    generator = torch.Generator().manual_seed(7)
    edges = torch.tensor([limit, -limit, limit + 2**-10, limit - 2**-10, -limit - 2**-10, 0.0], dtype=torch.float64)
    gate = torch.cat([edges.repeat_interleave(len(edges)), numbers(30, generator, -3 * limit, 3 * limit)])
    up = torch.cat([edges.repeat(len(edges)), numbers(30, generator, -3 * limit, 3 * limit)])
    pairs = torch.stack([gate, up], -1).flatten().requires_grad_()
    dy = numbers(len(gate), generator, -1.0, 1.0)
    y = experts._apply_gate(pairs)
    (y * dy).sum().backward()
    return {"alpha": alpha, "limit": limit, "gate": gate.tolist(), "up": up.tolist(), "dy": dy.tolist(),
            "y": y.tolist(), "dgate": pairs.grad[::2].tolist(), "dup": pairs.grad[1::2].tolist()}


def write(name, cases):
    (FIXTURES / name).write_text(json.dumps(cases, separators=(",", ":")) + "\n", encoding="utf-8")


def main():
    with all_in_double():
        write("routers.json", [router_case(number, *case) for number, case in enumerate(CASES)])
        write("clamped_swiglu.json", [clamped_case(1.702, 7.0), clamped_case(1.0, 0.5)])


if __name__ == "__main__":
    main()
