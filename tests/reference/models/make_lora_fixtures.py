"""Writes fixtures/lora.json: losses, gradients and five AdamW steps of peft's adapters on tiny models.

The models, their weights by formula and their tokens are those of make_model_fixtures.py; adapters
get weights by the same formula (a B of zeros would leave A without a gradient), in float64:
transformers and peft of PyPI. tests/engine/rank/lora_test.cpp compares the engine with it.
"""

import json
import pathlib

import peft
import torch

import make_model_fixtures as models

CASES = {
    "llama": {"rank": 4, "alpha": 8.0, "rslora": False, "targets": "all-linear"},
    "gpt_neox": {"rank": 3, "alpha": 5.0, "rslora": True, "targets": "all-linear"},
    "gpt2": {"rank": 4, "alpha": 4.0, "rslora": False, "targets": ["c_attn", "c_fc"]},
    "phi3": {"rank": 5, "alpha": 10.0, "rslora": False, "targets": "all-linear"},
}


def adapted(name, case):
    model, _ = models.make_model(models.CASES[name])
    config = peft.LoraConfig(r=case["rank"], lora_alpha=case["alpha"], use_rslora=case["rslora"],
                             target_modules=case["targets"], lora_dropout=0.0, bias="none",
                             task_type="CAUSAL_LM",
                             fan_in_fan_out=models.CASES[name]["model_type"] == "gpt2")
    model = peft.get_peft_model(model, config).double()
    model.eval()
    named = {}
    for long_name, parameter in model.named_parameters():
        if parameter.requires_grad:
            stored = long_name.removeprefix("base_model.model.").replace(".default", "")
            # An eighth of a B, so that adapters change the model a little, as trained ones do.
            factor = 0.125 if ".lora_B." in stored else 1.0
            parameter.data = factor * models.weight(stored, tuple(parameter.shape), 1.0).double()
            named[stored] = parameter
    return model, named


def run(name, case):
    model, named = adapted(name, case)
    ids = models.tokens(models.LENGTH, models.CASES[name]["vocab_size"])
    adamw = models.ADAMW
    optimizer = torch.optim.AdamW(named.values(), lr=adamw["lr"],
                                  betas=(adamw["beta1"], adamw["beta2"]), eps=adamw["eps"],
                                  weight_decay=adamw["weight_decay"])
    out = {**case, "losses": [], "norms": []}
    for step in range(models.STEPS):
        optimizer.zero_grad()
        logits = model(input_ids=ids[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].reshape(-1))
        loss.backward()
        if step == 0:
            out["gradients"] = {n: models.summary(n, p.grad) for n, p in named.items()}
        out["losses"].append(loss.item())
        norm = torch.nn.utils.clip_grad_norm_(named.values(), adamw["grad_clip"])
        out["norms"].append(norm.item())
        optimizer.step()
    out["weights"] = {n: models.summary(n, p) for n, p in named.items()}
    return out


def main():
    lines = []
    for name, case in CASES.items():
        result = run(name, case)
        print(name, result["losses"], result["norms"], len(result["weights"]))
        lines.append(f'  "{name}": {json.dumps(result, separators=(",", ":"))}')
    text = json.dumps({"peft": peft.__version__})[:-1] + ', "cases": {\n' + ",\n".join(lines)
    path = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "lora.json"
    path.write_text(text + "\n}}\n")


if __name__ == "__main__":
    main()
