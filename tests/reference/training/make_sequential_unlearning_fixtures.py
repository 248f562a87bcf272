"""Sequential unlearning of a tiny GPT-NeoX, computed by torch in float64: what six steps of both
passes come to, the joined gradient of the first one, and the weights after the last.

Weights and tokens follow formulas that the engine's test repeats (make_model_fixtures.py has those
of the weights), and so do the targets of what is forgotten, which stand for drawn ones. Writes
fixtures/sequential_unlearning.json; needs torch and transformers.
"""

import copy
import fnmatch
import json
import math
import pathlib
import sys

import torch
import transformers

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "models"))
from make_model_fixtures import ADAMW, CASES, LENGTH, SEQUENCES, make_model, make_optimizer, summary

LAYERS = [2, 1]
STEPS_PER_LAYER = 3
# name: (forget loss, join, frozen layers, maintain, retain from zero, growth of forget).
RUNS = {
    "random_targets sum": ("random_targets", "sum", "skip_update", False, False, 1.0),
    "max_entropy same_sign": ("max_entropy", "same_sign", "skip_update", False, False, 3.0),
    "random_targets same_sign_forget": ("random_targets", "same_sign_forget", "zero", False, True,
                                        1.0),
    "max_entropy maintained": ("max_entropy", "sum", "skip_update", True, False, 1.0),
    "kl npo": ("npo", "sum", "skip_update", True, False, 1.0),
    "kl top_k_entropy": ("top_k_entropy", "sum", "zero", False, False, 1.0),
    "l2sp": ("random_targets", "sum", "skip_update", True, False, 1.0),
    "l2": ("max_entropy", "sum", "skip_update", False, False, 1.0),
    "l2 npo maintained": ("npo", "sum", "skip_update", True, False, 1.0),
    "max_update maintained": ("max_update", "sum", "skip_update", True, False, 1.0),
    "max_update same_sign_forget": ("max_update", "same_sign_forget", "zero", False, False, 3.0),
}
# A bias of keys has a gradient of 0, so that rounding alone would say which way it moves.
KEYS = ["*.query_key_value.bias"]
# What differs from the engine's defaults. Summed: near the copy the divergence is so small that its signs
# are rounding.
MORE = {"kl npo": {"retain_loss": "kl", "beta": 0.7}, "kl top_k_entropy": {"retain_loss": "kl", "top_k": 7},
        "l2sp": {"l2sp_coefficient": 0.004}, "l2": {"retain_loss": "l2"},
        "l2 npo maintained": {"retain_loss": "l2", "beta": 0.7},
        "max_update maintained": {"freeze": KEYS}, "max_update same_sign_forget": {"freeze": KEYS}}
RETAIN, FORGET = 2.0, 0.5


def rows(stream, step, vocab):
    """Tokens [sequence, position] and their targets; -1: none."""
    at = torch.arange(SEQUENCES * (LENGTH + 1)).view(SEQUENCES, LENGTH + 1) + 100 * step + 17 * stream
    ids = (at * at * 7 + at * 3 + 5 + 11 * stream) % vocab
    row = torch.arange(SEQUENCES * LENGTH).view(SEQUENCES, LENGTH)
    targets = ids[:, 1:].clone()
    if stream == 1:
        targets = (row * 37 + step * 5 + 3) % vocab
        targets[row % 3 == 1] = -1
    return ids[:, :-1], targets


def outputs(model, tokens, layers):
    """Logits, and what the layers' blocks leave: transformers' hidden states have the last one's normed."""
    kept = {}
    hooks = [model.gpt_neox.layers[layer].register_forward_hook(
        lambda module, given, out, layer=layer: kept.update({layer: out[0] if isinstance(out, tuple) else out}))
        for layer in layers]
    logits = model(input_ids=tokens).logits
    for hook in hooks:
        hook.remove()
    return logits, [kept[layer] for layer in layers]


def loss_of(model, frozen, stream, step, vocab, forget_loss, more, trained):
    tokens, targets = rows(stream, step, vocab)
    logits, hidden = outputs(model, tokens, trained)
    if stream == 0 and more.get("retain_loss") == "l2":
        with torch.no_grad():
            first = outputs(frozen, tokens, trained)[1]
        return sum(torch.linalg.vector_norm(h - h0, dim=-1).mean() for h, h0 in zip(hidden, first)) / len(trained)
    log_p = torch.log_softmax(logits, -1)
    with torch.no_grad():
        log_p0 = torch.log_softmax(frozen(input_ids=tokens).logits, -1)
    of_targets = log_p.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    if stream == 0 and "retain_loss" in more:
        return (log_p0.exp() * (log_p0 - log_p)).sum(-1).mean()
    if stream == 0:
        return -of_targets.mean()
    if forget_loss == "npo":  # The mean of each sequence, which is a document.
        ratio = of_targets - log_p0.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
        kept = targets >= 0
        ratios = (ratio * kept).sum(-1) / kept.sum(-1)
        return -torch.nn.functional.logsigmoid(-more["beta"] * ratios).mean()
    if forget_loss == "top_k_entropy":
        top = torch.topk(logits, more["top_k"], -1).values
        value = torch.logsumexp(top, -1) - top.mean(-1)
        return value[targets >= 0].mean() / math.log(more["top_k"])
    value = -of_targets if forget_loss == "random_targets" else -log_p.mean(-1)
    return value[targets >= 0].mean() / math.log(vocab)


def distance(parameter, first):
    return torch.linalg.vector_norm((parameter - first).detach())


def joined(how, r, f):
    agree = (r * f) > 0
    if how == "sum":
        return r + f, agree
    if how == "same_sign":
        return (r + f) * agree, agree
    return r + f * agree, agree


def gradients(model, loss):
    model.zero_grad(set_to_none=False)
    loss.backward()  # What the loss does not read has a gradient of 0.
    return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}


def norm(values):
    return math.sqrt(sum(v.pow(2).sum().item() for v in values))


def run(name):
    forget_loss, how, frozen, maintain, from_zero, growth = RUNS[name]
    config = CASES["gpt_neox"]
    model, stored = make_model(config)
    start, more = copy.deepcopy(model), MORE.get(name, {})
    first = dict(start.named_parameters())
    vocab = config["vocab_size"]
    optimizer = make_optimizer(model)
    options = {"forget_loss": forget_loss, "gradient_join": how, "frozen_layers": frozen,
               "maintain_unlearned": maintain, "ramp_retain_from_zero": from_zero,
               "forget_layer_scale": growth, **more}
    out = {"options": options, "losses": [], "norms": [], "retain_losses": [], "forget_losses": [],
           "retain_norms": [], "forget_norms": [], "same_sign": []}
    parameters = dict(model.named_parameters())
    of_layer = {layer: [n for n in parameters if f".layers.{layer}." in n
                        and not any(fnmatch.fnmatch(n, pattern) for pattern in more.get("freeze", []))]
                for layer in LAYERS}
    for step in range(STEPS_PER_LAYER * len(LAYERS)):
        phase = step // STEPS_PER_LAYER
        s = step % STEPS_PER_LAYER / STEPS_PER_LAYER
        c_r = RETAIN * (s if from_zero else 0.25 + 0.75 * s)
        c_f = FORGET * (1 - 0.25 * s)
        c_f *= 1 + (growth - 1) * (LAYERS[0] - LAYERS[phase]) / LAYERS[0]
        layers = LAYERS[:phase + 1] if maintain else [LAYERS[phase]]
        retain = loss_of(model, start, 0, step, vocab, forget_loss, more, layers)
        r = gradients(model, c_r * retain)
        if step == 0 and more.get("retain_loss") == "kl":  # Rounding alone: the copy is the model.
            r = {n: torch.zeros_like(g) for n, g in r.items()}
        trained = {n for layer in layers for n in of_layer[layer]}
        if forget_loss == "max_update":
            away = {n: distance(parameters[n], first[n]) for n in trained}
            forget = -sum(away.values())
            f = {n: torch.zeros_like(p) if n not in trained or away[n] == 0
                 else -c_f * (p - first[n]).detach() / away[n] for n, p in parameters.items()}
        else:
            forget = loss_of(model, start, 1, step, vocab, forget_loss, more, layers)
            f = gradients(model, c_f * forget)
        every = [n for layer in LAYERS for n in of_layer[layer]]
        for n in trained:  # Not times the coefficient, and part of r.
            r[n] = r[n] + 2 * more.get("l2sp_coefficient", 0.0) * (parameters[n] - first[n]).detach()
        agreeing = elements = 0
        for n, p in parameters.items():
            p.grad = torch.zeros_like(p) if n in every and frozen == "zero" else None
            if n in trained:
                p.grad, agree = joined(how, r[n], f[n])
                agreeing += agree.sum().item()
                elements += agree.numel()
        total = norm(parameters[n].grad for n in trained)
        out["losses"].append((c_r * retain + c_f * forget).item())
        out["norms"].append(total)
        out["retain_losses"].append(retain.item())
        out["forget_losses"].append(forget.item())
        out["retain_norms"].append(norm(r[n] for n in every))
        out["forget_norms"].append(norm(f[n] for n in every))
        out["same_sign"].append(100 * agreeing / elements)
        if step == (1 if forget_loss == "max_update" else 0):
            out["gradients"] = {stored[n]: summary(stored[n], parameters[n].grad)
                                for n in of_layer[LAYERS[0]]}
        torch.nn.utils.clip_grad_norm_(model.parameters(), ADAMW["grad_clip"])
        optimizer.step()
    out["weights"] = {stored[n]: summary(stored[n], p) for n, p in parameters.items()}
    return out


def main():
    lines = []
    for name in RUNS:
        case = run(name)
        print(name, case["losses"], case["norms"], case["same_sign"])
        lines.append(f'  "{name}": {json.dumps(case, separators=(",", ":"))}')
    head = {"first_layer": LAYERS[0], "last_layer": LAYERS[-1], "steps_per_layer": STEPS_PER_LAYER,
            "retain_coefficient": RETAIN, "forget_coefficient": FORGET,
            "transformers": transformers.__version__}
    text = json.dumps(head)[:-1] + ', "cases": {\n' + ",\n".join(lines) + "\n}}\n"
    path = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "sequential_unlearning.json"
    path.write_text(text)


if __name__ == "__main__":
    main()
