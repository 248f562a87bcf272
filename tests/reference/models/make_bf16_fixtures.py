"""How far transformers in bf16 is from transformers in float64, for the models, weights and tokens of
make_model_fixtures.py: of the loss, and of every parameter's gradient the norm of the difference.
Writes fixtures/models_bf16.json; needs torch and transformers.
"""

import json
import pathlib

import torch
import transformers

from make_model_fixtures import CASES, LENGTH, LENGTHS, digits, make_model, tokens


def make_bf16_model(config):
    model, stored = make_model(config)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
    for module in model.modules():
        # Frequencies and the like stay in float32, as where weights are loaded.
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.is_floating_point():
                setattr(module, name, buffer.float())
    return model, stored


def gradients(model, stored, ids):
    logits = model(input_ids=ids[:, :-1]).logits
    wide = logits if logits.dtype == torch.float64 else logits.float()
    loss = torch.nn.functional.cross_entropy(wide.flatten(0, 1), ids[:, 1:].reshape(-1))
    loss.backward()
    return loss.item(), {stored[n]: p.grad.double() for n, p in model.named_parameters()}


def main():
    lines = []
    for name, config in CASES.items():
        ids = tokens(LENGTHS.get(name, LENGTH), config["vocab_size"])
        exact_loss, exact = gradients(*make_model(config), ids)
        loss, found = gradients(*make_bf16_model(config), ids)
        case = {"loss": digits(abs(loss - exact_loss)),
                "gradients": {n: digits((found[n] - exact[n]).norm().item()) for n in exact}}
        print(name, case["loss"])
        lines.append(f'  "{name}": {json.dumps(case, separators=(",", ":"))}')
    head = {"transformers": transformers.__version__}
    text = json.dumps(head)[:-1] + ', "cases": {\n' + ",\n".join(lines) + "\n}}\n"
    path = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "models_bf16.json"
    path.write_text(text)


if __name__ == "__main__":
    main()
