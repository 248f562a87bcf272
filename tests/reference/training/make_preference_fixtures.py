"""Losses of pairs, and of their answers alone, on tiny published models, computed by torch in float64: the loss and the metrics of
five AdamW steps, every gradient of the first one, and the weights after the last.

Weights and tokens follow formulas that the engine's test repeats (make_model_fixtures.py has those
of the weights). The reference's log-probabilities are the model's own at the beginning, moved by a
known amount, so that no loss starts from a margin of zero. Writes fixtures/preferences.json; needs
torch and transformers.
"""

import json
import pathlib
import sys

import torch
import transformers
from torch.nn.functional import logsigmoid

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "models"))
from make_model_fixtures import ADAMW, CASES, STEPS, make_model, make_optimizer, summary

# A pair's loss moves far within a step of what other models are trained with.
LR = 0.0002
# By lane: (tokens of the prompt, of the chosen answer, of the rejected one).
LANES = [[(3, 6, 5), (2, 4, 9)], [(5, 12, 7)]]
# What the reference's log-probabilities are above the model's first ones, by document.
OFFSETS = [-0.8, 0.5, 0.3, -0.6, 1.2, 0.9]

# name: (objective, loss, options).
OBJECTIVES = {
    "sigmoid": ("dpo", "sigmoid", {"beta": 0.3}),
    "sigmoid_smoothed": ("dpo", "sigmoid", {"beta": 0.3, "label_smoothing": 0.2}),
    "hinge": ("dpo", "hinge", {"beta": 0.3}),
    "ipo": ("dpo", "ipo", {"beta": 0.3}),
    "robust": ("dpo", "robust", {"beta": 0.3, "label_smoothing": 0.1}),
    "exo_pair": ("dpo", "exo_pair", {"beta": 0.3, "label_smoothing": 0.01}),
    "nca_pair": ("dpo", "nca_pair", {"beta": 0.3}),
    "bco_pair": ("dpo", "bco_pair", {"beta": 0.3}),
    "sppo_hard": ("dpo", "sppo_hard", {"beta": 0.3}),
    "apo_zero": ("dpo", "apo_zero", {"beta": 0.3}),
    "apo_down": ("dpo", "apo_down", {"beta": 0.3}),
    "discopop": ("dpo", "discopop", {"beta": 0.3, "discopop_tau": 0.4}),
    "dpo_norm": ("dpo_norm", "", {"beta": 5.0, "label_smoothing": 0.1}),
    "simpo": ("simpo", "", {"beta": 2.0, "gamma_beta_ratio": 0.4}),
    "wpo": ("wpo", "", {"beta": 0.3}),
    "orpo": ("orpo", "", {"beta": 0.25}),
    # Both answers are learnt, the rejected ones with this weight.
    "sft": ("sft", "", {"label_smoothing": 0.1, "rejected_weight": 0.5}),
}
NEOX = ("sigmoid", "ipo", "simpo", "wpo", "orpo", "sft")


def ids_of(pair, side, lengths, vocab):
    prompt = lengths[0]
    at = torch.arange(prompt + lengths[1 + side])
    seed = pair * 31 + torch.where(at < prompt, 0, 11 * (1 + side))
    return (seed + at * at * 7 + at * 3 + 5) % vocab


class Side:
    """What one answer comes to: sums and means over its tokens."""

    def __init__(self, model, ids, prompt):
        log_p = torch.log_softmax(model(input_ids=ids[None]).logits[0, :-1], -1)
        of_targets = log_p.gather(1, ids[1:, None])[:, 0]
        answer = slice(prompt - 1, None)
        self.sum = of_targets[answer].sum()
        self.tokens = of_targets[answer].numel()
        self.mean = self.sum / self.tokens
        self.mean_with_prompt = of_targets.mean()
        likely = of_targets[answer] - torch.logsumexp(2 * log_p[answer], -1)
        self.weight = likely.mean().detach().exp()
        self.smooth_sum = log_p[answer].mean(-1).sum()  # Against the uniform distribution.


def smoothed(u, e):
    return -(1 - e) * logsigmoid(u) - e * logsigmoid(-u)


def pair_loss(name, c, r, ref_c, ref_r, o):
    beta, e = o["beta"], o.get("label_smoothing", 0.0)
    d_c, d_r = c.sum - ref_c, r.sum - ref_r
    u, b_c, b_r = beta * (d_c - d_r), beta * d_c, beta * d_r
    if name.startswith("sigmoid"):
        return smoothed(u, e)
    if name == "hinge":
        return torch.clamp(1 - u, min=0)
    if name == "ipo":
        return (d_c / c.tokens - d_r / r.tokens - 1 / (2 * beta)) ** 2
    if name == "robust":
        return (-(1 - e) * logsigmoid(u) + e * logsigmoid(-u)) / (1 - 2 * e)
    if name == "exo_pair":
        q = torch.sigmoid(u)
        return q * torch.log(q / (1 - e)) + (1 - q) * torch.log((1 - q) / e)
    if name == "nca_pair":
        return -logsigmoid(b_c) - (logsigmoid(-b_c) + logsigmoid(-b_r)) / 2
    if name == "bco_pair":
        return -logsigmoid(b_c) - logsigmoid(-b_r)
    if name == "sppo_hard":
        return (d_c - 1 / (2 * beta)) ** 2 + (d_r + 1 / (2 * beta)) ** 2
    if name == "apo_zero":
        return 1 - torch.sigmoid(b_c) + torch.sigmoid(b_r)
    if name == "apo_down":
        return torch.sigmoid(b_c) + 1 - torch.sigmoid(u)
    if name == "discopop":
        share = torch.sigmoid(u / o["discopop_tau"])
        return -(1 - share) * logsigmoid(u) + share * torch.exp(-u)
    if name == "dpo_norm":
        return smoothed(beta * (d_c / c.tokens - d_r / r.tokens), e)
    if name == "simpo":
        return -logsigmoid(beta * (c.mean - r.mean - o["gamma_beta_ratio"]))
    if name == "wpo":
        return c.weight * r.weight * smoothed(u, e)
    odds = c.mean - r.mean - torch.log(1 - c.mean.exp()) + torch.log(1 - r.mean.exp())
    return -c.mean_with_prompt - beta * logsigmoid(odds)


def sft_loss(pairs, o):
    """transformers' mean with num_items_in_batch, by weight: over the trained tokens of the whole step."""
    e, weights = o["label_smoothing"], (1.0, o["rejected_weight"])
    loss = sum(w * -((1 - e) * a.sum + e * a.smooth_sum) for pair in pairs for w, a in zip(weights, pair))
    return loss / sum(w * a.tokens for pair in pairs for w, a in zip(weights, pair))


def metrics_of(name, c, r, ref_c, ref_r, beta):
    if name in ("simpo", "orpo"):
        logps = [c.mean.item(), r.mean.item()]
        rewards = [beta * x for x in logps]
    else:
        logps = [c.sum.item(), r.sum.item()]
        rewards = [beta * (logps[0] - ref_c), beta * (logps[1] - ref_r)]
    return [*rewards, float(rewards[0] > rewards[1]), rewards[0] - rewards[1], *logps]


def sides_of(model, vocab):
    pairs = [pair for lane in LANES for pair in lane]
    return [[Side(model, ids_of(number, side, lengths, vocab), lengths[0]) for side in (0, 1)]
            for number, lengths in enumerate(pairs)]


def run(name, family):
    model, stored = make_model(CASES[family])
    vocab = CASES[family]["vocab_size"]
    objective, loss_name, options = OBJECTIVES[name]
    optimizer = make_optimizer(model)
    for group in optimizer.param_groups:
        group["lr"] = LR
    with torch.no_grad():
        first = [side.sum.item() for pair in sides_of(model, vocab) for side in pair]
    sft = objective == "sft"
    reference = [] if sft else [value + offset for value, offset in zip(first, OFFSETS)]
    out = {"model": family, "objective": objective, "loss": loss_name, "options": options,
           "reference": reference, "losses": [], "metrics": []}
    for step in range(STEPS):
        optimizer.zero_grad()
        losses, metrics = [], []
        pairs = sides_of(model, vocab)
        for number, (c, r) in enumerate([] if sft else pairs):
            refs = reference[2 * number:2 * number + 2]
            losses.append(pair_loss(name, c, r, *refs, options))
            metrics.append(metrics_of(name, c, r, *refs, options["beta"]))
        loss = sft_loss(pairs, options) if sft else torch.stack(losses).mean()
        loss.backward()
        if step == 0:
            out["gradients"] = {stored[n]: summary(stored[n], p.grad)
                                for n, p in model.named_parameters()}
        out["losses"].append(loss.item())
        out["metrics"].append([] if sft else torch.tensor(metrics, dtype=torch.float64).mean(0).tolist())
        torch.nn.utils.clip_grad_norm_(model.parameters(), ADAMW["grad_clip"])
        optimizer.step()
    out["weights"] = {stored[n]: summary(stored[n], p) for n, p in model.named_parameters()}
    return out


def main():
    cases = [(name, "llama") for name in OBJECTIVES] + [(name, "gpt_neox") for name in NEOX]
    lines = []
    for name, family in cases:
        case = run(name, family)
        print(name, family, case["losses"])
        lines.append(f'  "{family} {name}": {json.dumps(case, separators=(",", ":"))}')
    head = {"lanes": LANES, "lr": LR, "transformers": transformers.__version__}
    text = json.dumps(head)[:-1] + ', "cases": {\n' + ",\n".join(lines) + "\n}}\n"
    (pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "preferences.json").write_text(text)


if __name__ == "__main__":
    main()
