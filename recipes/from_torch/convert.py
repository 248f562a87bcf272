"""Makes a model's directory, as `model.from` reads it, of a folder of torch.distributed.checkpoint.

usage: convert.py CHECKPOINT MODEL OUT [--entry NAME] [--dtype fp32|bf16|fp16]

CHECKPOINT has .metadata and *.distcp files, written by FSDP2, FSDP, DDP or one process; no process group and
no GPU is needed. MODEL is a directory with the config.json and the tokenizer of the model that was trained.
Parameters must have their names of transformers. Needs torch 2.3 or later. Exit code 2: a mistake, in a line.
"""

import argparse
import json
import pathlib
import shutil
import sys
import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
STORED = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64",
          torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL"}
# What wrappers put into names.
WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
# The dictionary of the weights, where several were saved together.
ENTRIES = ("model", "module", "state_dict")
WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf")


def mistake(text):
    print(f"convert.py: {text}", file=sys.stderr)
    sys.exit(2)


def parameter_name(name):
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name[len("module."):] if name.startswith("module.") else name


def weights_of(metadata, folder, entry):
    """By parameter: its key in the checkpoint and what is known of it."""
    paths = metadata.planner_data or {}
    groups = {}
    for key, stored in metadata.state_dict_metadata.items():
        if isinstance(stored, TensorStorageMetadata):
            path = [str(part) for part in paths.get(key, (key,))]
            groups.setdefault(".".join(path[:-1]), {})[parameter_name(path[-1])] = (key, stored)
    if entry is None:  # What lies beside a dictionary of weights is the state of the run.
        wanted = [group for group in groups if group.rsplit(".", 1)[-1] in ENTRIES] or [""] * ("" in groups)
    else:
        wanted = [group for group in groups if group == entry]
    if len(wanted) != 1:
        names = ", ".join(sorted(group for group in groups if "optim" not in group)) or "none"
        mistake(f"{folder}: {'several' if wanted else 'no'} dictionaries of weights"
                f"{'' if entry is None else f' of the name {entry}'}; name one by --entry: there are {names}")
    return groups[wanted[0]]


def read(reader, weights, names):
    """So many tensors, whole."""
    tensors = {weights[name][0]: torch.empty(weights[name][1].size, dtype=weights[name][1].properties.dtype)
               for name in names}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # That there is no process group.
        dcp.load(tensors, storage_reader=reader)
    return {name: tensors[weights[name][0]] for name in names}


def without_tied(reader, weights, config):
    """Leaves out the head where it is the embedding, which `tie_word_embeddings` says."""
    head, embedding = "lm_head.weight", "model.embed_tokens.weight"
    if not config.get("tie_word_embeddings") or not {head, embedding} <= set(weights):
        return
    both = read(reader, weights, [head, embedding])
    if not torch.equal(both[head], both[embedding]):
        mistake(f"{head} differs from {embedding}, but config.json ties them; set tie_word_embeddings to false there")
    del weights[head]


def write(reader, weights, path, dtype):
    """A safetensors file: its length, a table, and the bytes of each tensor, one at a time in memory."""
    table, at = {}, 0
    kinds = {}
    for name, (_, stored) in weights.items():
        kind = stored.properties.dtype
        kinds[name] = dtype if dtype is not None and kind.is_floating_point else kind
        if kinds[name] not in STORED:
            mistake(f"{name} has values of {kind}, which no model's directory has here")
        size = stored.size.numel() * torch.empty(0, dtype=kinds[name]).element_size()
        table[name] = {"dtype": STORED[kinds[name]], "shape": list(stored.size), "data_offsets": [at, at + size]}
        at += size
    head = json.dumps({"__metadata__": {"format": "pt"}, **table}).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for name in weights:
            tensor = read(reader, weights, [name])[name].to(kinds[name]).contiguous()
            file.write(tensor.reshape(-1).view(torch.uint8).numpy())
    return at


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--entry", help="dictionary of the weights in the checkpoint; by default model")
    parser.add_argument("--dtype", choices=DTYPES, help="of the written weights; by default as they are")
    options = parser.parse_args()
    if not (options.checkpoint / ".metadata").is_file():
        mistake(f"{options.checkpoint}: no folder of torch.distributed.checkpoint: it has no .metadata")
    if not (options.model / "config.json").is_file():
        mistake(f"{options.model}: no config.json; name the directory of the model that was trained")
    if options.out.exists() and any(options.out.iterdir()):
        mistake(f"{options.out}: it has files already; name a new directory")
    config = json.loads((options.model / "config.json").read_text(encoding="utf-8"))
    reader = dcp.FileSystemReader(options.checkpoint)
    weights = weights_of(reader.read_metadata(), options.checkpoint, options.entry)
    without_tied(reader, weights, config)
    options.out.mkdir(parents=True, exist_ok=True)
    for file in options.model.iterdir():
        if file.is_file() and not file.name.endswith(WEIGHTS):
            shutil.copyfile(file, options.out / file.name)
    partial = options.out / "model.safetensors.partial"
    size = write(reader, weights, partial, DTYPES.get(options.dtype))
    partial.rename(options.out / "model.safetensors")
    print(f"{options.out}: {len(weights)} tensors, {size / 1e6:.1f} MB; `actortrain describe {options.out}` reads it")


if __name__ == "__main__":
    main()
