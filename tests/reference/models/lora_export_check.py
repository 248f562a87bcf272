"""Checks `actortrain export` of a run with [lora]: usage BASE ADAPTER MERGED.

BASE is the published model that the run began with, ADAPTER and MERGED what --format peft and
--format hf wrote. PEFT must load the adapter, every tensor of it, and its logits must be those of
the merged model, in float64 to 1e-5 of the largest.
"""

import json
import pathlib
import sys

import peft
import safetensors.torch
import torch
import transformers


def logits_of(model, ids):
    model.double().eval()
    with torch.no_grad():
        return model(input_ids=ids).logits


def main():
    base, adapter, merged = sys.argv[1:4]
    load = transformers.AutoModelForCausalLM.from_pretrained
    model = load(base, dtype=torch.float32)
    vocab = model.config.vocab_size
    ids = torch.arange(2 * 48).reshape(2, 48) ** 2 % vocab
    plain = logits_of(model, ids)
    model = peft.PeftModel.from_pretrained(load(base, dtype=torch.float32), adapter)
    stored = safetensors.torch.load_file(pathlib.Path(adapter) / "adapter_model.safetensors")
    loaded = {name.replace(".default", ""): value for name, value in model.named_parameters()
              if "lora_" in name}
    assert set(stored) == set(loaded), set(stored) ^ set(loaded)
    assert all(torch.equal(stored[name], loaded[name].float()) for name in stored)
    adapted = logits_of(model, ids)
    whole = logits_of(load(merged, dtype=torch.float32), ids)
    scale = adapted.abs().max().item()
    result = {"adapters": len(stored), "largest": scale,
              "merged": (adapted - whole).abs().max().item() / scale,
              "base": (adapted - plain).abs().max().item() / scale}
    print(json.dumps(result))
    assert result["merged"] <= 1e-5 < result["base"]


if __name__ == "__main__":
    main()
