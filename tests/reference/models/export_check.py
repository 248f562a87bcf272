#!/usr/bin/env python3
"""Compares what `actortrain export` wrote with the run's checkpoint, by other people's programs.

    python3 export_check.py RUN EXPORT [--step N] [--continues PROMPT FILE]

The checkpoint is read here from its manifest and shards by NumPy alone, the export by the
`safetensors` package. Every weight must be there under its name, bit for bit (or rounded to bf16 as
torch rounds), and nothing else. With --continues, the weights and config.json must also be enough
for the reference model (reference_models.py) to continue PROMPT as `actortrain generate
--temperature 0` did, whose output is FILE.

Exit codes: 0 the same, 1 different, 77 skipped: a package is missing (says which).
"""

import argparse
import json
import pathlib
import sys

try:
    import numpy as np
    import torch
    from safetensors import safe_open
except ImportError as error:
    print(f"skipped: {error}; pip install numpy torch safetensors")
    sys.exit(77)


def read_shard(path):
    """Tensors of a safetensors file of float32, by its format's definition."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, stop = entry["data_offsets"]
        flat = np.frombuffer(data[end + begin : end + stop], dtype="<f4")
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def read_checkpoint(directory):
    """The model's weights, put together from the rows of all shards."""
    manifest = json.loads((directory / "manifest.json").read_text())
    shards = {file["name"]: read_shard(directory / file["name"]) for file in manifest["files"]}
    weights = {}
    for record in manifest["tensors"]:
        if not record["name"].startswith("model."):
            continue
        name = record["name"].removeprefix("model.")
        whole = weights.setdefault(name, np.full(record["shape"], np.nan, dtype="<f4"))
        first = record["first_row"]
        whole[first : first + record["rows"]] = shards[record["file"]][record["name"]]
    return {name: torch.from_numpy(whole) for name, whole in weights.items()}


def read_export(directory):
    """All tensors of an export, by the index if there is one."""
    index = directory / "model.safetensors.index.json"
    places = {"model.safetensors": None}
    if index.exists():
        entries = json.loads(index.read_text())
        places = {}
        for name, file in entries["weight_map"].items():
            places.setdefault(file, set()).add(name)
    tensors = {}
    for file, names in places.items():
        with safe_open(directory / file, framework="pt") as opened:
            assert opened.metadata() == {"format": "pt"}, f"{file}: metadata {opened.metadata()}"
            assert names is None or set(opened.keys()) == names, f"{file} and the index differ"
            for name in opened.keys():
                assert name not in tensors, f"{name} is there twice"
                tensors[name] = opened.get_tensor(name)
    if index.exists():
        total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        assert entries["metadata"]["total_size"] == total, "total_size is wrong"
    return tensors


def bits(tensor):
    return tensor.contiguous().view(torch.int32 if tensor.dtype == torch.float32 else torch.int16)


def compare(weights, exported, dtype):
    missing = sorted(weights.keys() - exported.keys())
    extra = sorted(exported.keys() - weights.keys())
    assert not missing and not extra, f"missing {missing}, extra {extra}"
    for name, wanted in weights.items():
        found = exported[name]
        assert found.dtype == dtype, f"{name} is {found.dtype}"
        assert found.shape == wanted.shape, f"{name} is {tuple(found.shape)}"
        assert torch.equal(bits(found), bits(wanted.to(dtype))), f"{name} has other bits"


def continue_text(config, weights, prompt, count):
    """Greedy continuation by the reference model, byte by byte."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    from reference_models import Shape, logits, parameter_shapes

    shape = Shape(
        arch=config["model_type"].removeprefix("actortrain-"),
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        head_dim=config["head_dim"],
        embedding_dim=config["hidden_size"],
        mlp_hidden=config["intermediate_size"],
        vocab_size=config["vocab_size"],
        qk_norm=config["qk_norm"],
        output_gate=config["attention_output_gate"],
        residual_scale=config["residual_scale"],
        norm_eps=config["norm_eps"],
        rope_theta=config["rope_theta"],
        tie_embeddings=config["tie_word_embeddings"],
    )
    wanted = parameter_shapes(shape)
    assert {name: tuple(tensor.shape) for name, tensor in weights.items()} == wanted, "names, shapes"
    known = {name: tensor.double() for name, tensor in weights.items()}
    tokens = list(prompt.encode())
    for _ in range(count):
        window = torch.tensor([tokens[-config["max_position_embeddings"] :]])
        scores = logits(shape, known, window)[0, -1, : config["tokenizer"]["vocab_size"]]
        tokens.append(int(scores.argmax()))
    return prompt.encode() + bytes(shown(token) for token in tokens[len(prompt.encode()) :])


def shown(token):
    """The byte that stands for a token in the output of `generate`."""
    if token >= 256 or token == ord("\n"):
        return ord("\n")
    return ord("?") if (token < 32 and token != ord("\t")) or token == 127 else token


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("export", type=pathlib.Path)
    parser.add_argument("--step", type=int)
    parser.add_argument("--continues", nargs=2, metavar=("PROMPT", "FILE"))
    options = parser.parse_args()
    steps = sorted((options.run / "checkpoints").glob("step-*"))
    if options.step is not None:
        steps = [step for step in steps if int(step.name.removeprefix("step-")) == options.step]
    weights = read_checkpoint(steps[-1])
    exported = read_export(options.export)
    config = json.loads((options.export / "config.json").read_text())
    assert config["actortrain"]["step"] == int(steps[-1].name.removeprefix("step-")), "step"
    dtype = getattr(torch, config["torch_dtype"])
    compare(weights, exported, dtype)
    print(f"same: {len(exported)} tensors of {steps[-1].name}, {config['torch_dtype']}")
    if options.continues:
        prompt = options.continues[0]
        text = pathlib.Path(options.continues[1]).read_bytes().removesuffix(b"\n")
        count = len(text) - len(prompt.encode())
        found = continue_text(config, exported, prompt, count)
        assert found == text, f"the reference model continues {found!r}, the run {text!r}"
        print(f"same: {count} bytes of greedy text by the reference model")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        print(f"different: {error}")
        sys.exit(1)
