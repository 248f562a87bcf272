"""Checkpoints that FSDP2 has written, as recipes/from_torch makes directories of them.

usage: torch_checkpoint_check.py PROGRAM

Two processes train a small Llama under fully_shard for a few steps and save model and optimizer by
torch.distributed.checkpoint, in several ways. What convert.py makes of each must be the weights, bit by
bit, that transformers reads from the directory, and the program must read it (`convert` compares its copy).
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as processes
import transformers
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict
from torch.distributed.fsdp import fully_shard

ROOT = pathlib.Path(__file__).resolve().parents[3]
RANKS = 2
KINDS = {"tied": {"tie_word_embeddings": True}, "untied": {"tie_word_embeddings": False}}


def config_of(kind):
    return transformers.LlamaConfig(vocab_size=331, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
                                    num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                                    max_position_embeddings=128, **KINDS[kind])


def train(rank, folder, kind):
    os.environ.update(MASTER_ADDR="127.0.0.1", RANK=str(rank), WORLD_SIZE=str(RANKS))
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    torch.manual_seed(3)
    model = transformers.LlamaForCausalLM(config_of(kind))
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (RANKS,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(rank)
    for _ in range(3):
        tokens = torch.randint(0, 331, (2, 32))
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    weights = get_model_state_dict(model)
    states = get_optimizer_state_dict(model, optimizer)
    dcp.save({"model": weights, "optim": states}, checkpoint_id=f"{folder}/together")
    dcp.save(weights, checkpoint_id=f"{folder}/alone")
    dcp.save({"app": {"model": weights, "optim": states}, "step": torch.tensor(3)}, checkpoint_id=f"{folder}/nested")
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        torch.save(whole, f"{folder}/whole.pt")
        config_of(kind).save_pretrained(f"{folder}/model")
    dist.destroy_process_group()


def differences(folder, way, program):
    out = folder / f"{way}-hf"
    made = subprocess.run([sys.executable, ROOT / "recipes/from_torch/convert.py", folder / way, folder / "model", out],
                          capture_output=True, text=True)
    if made.returncode != 0:
        return [made.stderr.strip()]
    found = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).state_dict()
    whole = torch.load(folder / "whole.pt")
    wrong = [name for name in found if not torch.equal(found[name], whole[name])] + sorted(set(whole) - set(found))
    read = subprocess.run([program, "convert", out, "--out", folder / f"{way}-copy"], capture_output=True, text=True)
    return wrong + ([] if read.returncode == 0 else [read.stderr.strip()])


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    compared = wrong = 0
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as place:
            processes.spawn(train, args=(place, kind), nprocs=RANKS)
            for way in ("together", "alone", "nested"):
                found = differences(pathlib.Path(place), way, program)
                compared += 1
                wrong += bool(found)
                for line in found:
                    print(f"{kind}, {way}: {line}")
    print(f"{compared} checkpoints of FSDP2 on {RANKS} processes, {wrong} of them different")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
