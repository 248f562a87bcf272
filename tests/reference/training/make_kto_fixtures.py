"""KTO on tiny published models, computed by torch in float64: the loss and the metrics of five AdamW
steps, every gradient of the first one, and the weights after the last.

Weights, tokens and the reference are as in make_preference_fixtures.py; the baseline of a lane is the
mean over its mismatched answers, 0 at least. Of the lanes here one begins above 0, one at 0. Writes
fixtures/kto.json; needs torch and transformers.
"""

import json
import pathlib
import sys

import torch
import transformers

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "models"))
from make_model_fixtures import ADAMW, CASES, STEPS, make_model, make_optimizer, summary
from make_preference_fixtures import LR, Side

# By lane: (tokens of the prompt, of its answer, of another one's answer, whether it is wanted).
LANES = [[(3, 5, 4, True), (2, 4, 6, False)], [(2, 6, 3, False), (3, 4, 5, True)]]
# What the reference's log-probabilities are above the model's first ones: of the answer, of the
# mismatched one.
OFFSETS = [(-0.8, -0.9), (0.5, -0.3), (0.7, 0.6), (-0.4, 0.2)]
OPTIONS = {"beta": 0.3, "desirable_weight": 1.25, "undesirable_weight": 0.75}


def ids_of(number, side, prompt, answer, vocab):
    at = torch.arange(prompt + answer)
    seed = number * 31 + torch.where(at < prompt, 0, 11 * (1 + side))
    return (seed + at * at * 7 + at * 3 + 5) % vocab


def log_probs(model, vocab):
    """By example: of its own answer, of the mismatched one."""
    found = []
    for number, (prompt, own, other, wanted) in enumerate(e for lane in LANES for e in lane):
        sides = ((0 if wanted else 1, own), (2, other))
        found.append([Side(model, ids_of(number, side, prompt, length, vocab), prompt).sum
                      for side, length in sides])
    return found


def losses_of(sums, reference):
    beta, losses = OPTIONS["beta"], []
    values = {"chosen": [], "rejected": [], "kl": [], "chosen logp": [], "rejected logp": []}
    number = 0
    for lane in LANES:
        here = range(number, number + len(lane))
        z0 = torch.stack([sums[i][1] - reference[i][1] for i in here]).mean().detach().clamp(min=0)
        for i, (_, _, _, wanted) in zip(here, lane):
            ratio = sums[i][0] - reference[i][0]
            u = beta * (ratio - z0 if wanted else z0 - ratio)
            weight = OPTIONS["desirable_weight" if wanted else "undesirable_weight"]
            losses.append(weight * (1 - torch.sigmoid(u)))
            name = "chosen" if wanted else "rejected"
            values[name].append(beta * ratio.item())
            values[name + " logp"].append(sums[i][0].item())
            values["kl"].append(z0.item())
        number += len(lane)
    mean = {name: sum(of) / len(of) for name, of in values.items()}
    metrics = [mean["chosen"], mean["rejected"], mean["kl"], mean["chosen"] - mean["rejected"],
               mean["chosen logp"], mean["rejected logp"]]
    return torch.stack(losses).mean(), metrics


def run(family):
    model, stored = make_model(CASES[family])
    vocab = CASES[family]["vocab_size"]
    optimizer = make_optimizer(model)
    for group in optimizer.param_groups:
        group["lr"] = LR
    with torch.no_grad():
        first = log_probs(model, vocab)
    reference = [[value.item() + offset for value, offset in zip(*pair)]
                 for pair in zip(first, OFFSETS)]
    out = {"model": family, "reference": [value for pair in reference for value in pair],
           "losses": [], "metrics": []}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss, metrics = losses_of(log_probs(model, vocab), reference)
        loss.backward()
        if step == 0:
            out["gradients"] = {stored[n]: summary(stored[n], p.grad)
                                for n, p in model.named_parameters()}
        out["losses"].append(loss.item())
        out["metrics"].append(metrics)
        torch.nn.utils.clip_grad_norm_(model.parameters(), ADAMW["grad_clip"])
        optimizer.step()
    out["weights"] = {stored[n]: summary(stored[n], p) for n, p in model.named_parameters()}
    return out


def main():
    lines = []
    for family in ("llama", "gpt_neox"):
        case = run(family)
        print(family, case["losses"], case["metrics"][0])
        lines.append(f'  "{family}": {json.dumps(case, separators=(",", ":"))}')
    head = {"lanes": LANES, "lr": LR, "options": OPTIONS, "transformers": transformers.__version__}
    text = json.dumps(head)[:-1] + ', "cases": {\n' + ",\n".join(lines) + "\n}}\n"
    (pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "kto.json").write_text(text)


if __name__ == "__main__":
    main()
