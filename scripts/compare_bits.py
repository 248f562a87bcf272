#!/usr/bin/env python3
"""Trains short runs of every kind with two builds of the program and compares all their bits.

    scripts/compare_bits.py BASE PROGRAM [--work DIR] [CASE ...]

BASE and PROGRAM are two builds of actortrain; a CASE is a beginning of names. For each case both train eight steps
from the same data, some of them stopped and resumed, on one to four ranks. Compared are every number of
metrics.jsonl that no clock decides, the checkpoints (weights and optimizer state, `checkpoints diff`) and
the exported weights. What BASE yields is kept in --work for the next comparison. Exit code 1: something differs.
"""

import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import random
import shutil
import subprocess
import sys

from unlearn_demo import NEOX, write_data, write_tokenizer

ROW = 64
RUN = """[run]
name = "run"
steps = 8
sample_tokens = 0
digest_interval_steps = 1
[data]
dir = "{data}"
sequence_length = 64
[batch]
lanes = 4
micro_batch = 2
[optimizer]
lr = 2e-3
[schedule]
warmup_steps = 2
[eval]
interval_steps = 4
lanes = 2
[checkpoint]
interval_steps = 4
"""
SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
         "hidden_act": "silu", "rope_theta": 10000.0, "tie_word_embeddings": False, "initializer_range": 0.02}
FAMILIES = {
    "llama": {"architectures": ["LlamaForCausalLM"]},
    "mistral": {"architectures": ["MistralForCausalLM"], "sliding_window": 16},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": True},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"]},
    "gemma2": {"architectures": ["Gemma2ForCausalLM"], "hidden_activation": "gelu_pytorch_tanh",
               "query_pre_attn_scalar": 16, "sliding_window": 16, "attn_logit_softcapping": 50.0,
               "final_logit_softcapping": 30.0, "tie_word_embeddings": True},
    "olmo2": {"architectures": ["Olmo2ForCausalLM"]},
    "phi3": {"architectures": ["Phi3ForCausalLM"], "pad_token_id": 0},
    "gpt2": {"architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 256,
             "n_ctx": 256, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "initializer_range": 0.02},
    "gpt_neox": NEOX,
}
RANKS = [("none", 2), ("optimizer", 2), ("gradient", 2), ("full", 2), ("full", 3), ("full", 4)]
UNLEARN = {"objective.name": "sequential_unlearning", "objective.first_layer": 5, "objective.last_layer": 2,
           "objective.layer_stride": 1, "objective.steps_per_layer": 2, "data.dir": "data/retain",
           "data.forget_dir": "data/forget", "model.from": "base/gpt_neox", "schedule.name": "linear",
           "schedule.warmup_steps": 0}
# Times and rates, which differ from run to run.
CLOCKS = ("time", "second", "_s", "_ms", "mfu", "memory", "bytes", "gap", "wait", "utc", "hours", "exposed", "overlap",
          "peak", "busy", "pid", "host", "run_id", "idle", "flops", "eta", "rate_of")


def cases():
    """By name: settings, and the number of ranks of a second part; None: the run is not resumed."""
    tiny = {"model.arch": "enoki", "model.layers": 2, "model.heads": 2, "model.head_dim": 16, "data.dir": "data/plain"}
    found = {}
    for strategy, ranks in [("none", 1), *RANKS]:
        parallel = {"parallel.strategy": strategy, "parallel.ranks": ranks}
        found[f"pretrain_{strategy}_{ranks}"] = ({**tiny, **parallel}, None)
    for arch in ("qwen3", "dstar_qwen3"):
        found[f"pretrain_{arch}"] = ({**tiny, "model.arch": arch}, 2)
    for blocks in ("all", 2):
        found[f"recompute_{blocks}"] = ({**tiny, "memory.activation_checkpointing": blocks}, None)
    for optimizer in ("muon", "d-muon", "dana-star-mk4", "adana", "ademamix"):
        found[f"optimizer_{optimizer}"] = ({**tiny, "optimizer.name": optimizer, "parallel.ranks": 2,
                                            "parallel.strategy": "full"}, 1)
    found["optimizer_ademamix"][0]["optimizer.beta3"] = 0.9
    found["bf16"] = ({**tiny, "precision.compute": "bf16"}, 2)
    found["ema"] = ({**tiny, "train.ema": 0.9, "parallel.ranks": 2, "parallel.strategy": "full"}, None)
    for family in FAMILIES:
        found[f"family_{family}"] = ({"model.from": f"base/{family}", "objective.name": "sft",
                                      "data.dir": "data/rows"}, 2)
    rows = {"model.from": "base/llama", "objective.name": "sft", "data.dir": "data/rows"}
    full = {"parallel.strategy": "full", "parallel.ranks": 2}
    found["sft_smoothed"] = ({**rows, **full, "objective.label_smoothing": 0.1}, 3)
    found["sft_lora"] = ({**rows, **full, "lora.rank": 4, "lora.alpha": 8, "lora.targets": '["all-linear"]'}, 1)
    found["sft_frozen"] = ({**rows, "train.freeze": '["model.embed_tokens*"]'}, 2)
    preferences = {"dpo": {}, "dpo_live": {"objective.name": "dpo", "objective.reference": "live"}, "dpo_norm": {},
                   "simpo": {}, "wpo": {}, "orpo": {}, "kto": {"data.dir": "data/judged", "batch.micro_batch": 6}}
    for name, more in preferences.items():
        found[f"preference_{name}"] = ({**rows, "objective.name": name, "data.dir": "data/pairs", **full, **more}, 1)
    for retain, forget in [("nll", "random_targets"), ("kl", "max_entropy"), ("l2", "top_k_entropy"), ("nll", "npo"),
                           ("kl", "max_update")]:
        losses = {"objective.retain_loss": retain, "objective.forget_loss": forget,
                  **({"data.forget_dir": ""} if forget == "max_update" else {})}
        found[f"unlearn_{retain}_{forget}"] = ({**UNLEARN, **losses}, 2)
    found["unlearn_same_sign"] = ({**UNLEARN, **full, "objective.gradient_join": "same_sign",
                                   "objective.l2sp_coefficient": 0.01, "objective.maintain_unlearned": "true"}, 1)
    return found


def write_site(program, site):
    """Texts, rows, pairs and a directory of random weights of each family, all made with `program`."""
    rng = random.Random(7)
    vocab = write_tokenizer(site / "tokenizer", write_data(site, rng))
    lines = [json.loads(line)["text"] for line in (site / "both.jsonl").open()]
    (site / "plain.txt").write_text("\n".join(lines))
    def write(name, items):
        (site / name).write_text("".join(json.dumps(item) + "\n" for item in items))
    parts = [(line.rsplit(" ", 1), f"{rng.choice(lines).rsplit(' ', 1)[1]} {i}") for i, line in enumerate(lines[:400])]
    write("pairs.jsonl", [{"prompt": a, "chosen": " " + b, "rejected": " " + other} for (a, b), other in parts])
    write("judged.jsonl", [{"prompt": a, "completion": " " + b, "label": i % 2 == 0}
                           for i, ((a, b), _) in enumerate(parts)])
    rows = ["--tokenizer", "tokenizer", "--row-length", str(ROW), "--val-fraction", "0.1"]
    call(program, site, "data", "prepare", "--input", "plain.txt", "--tokenizer", "bytes", "--out", "data/plain")
    for name, source, more in [("rows", "both", []), ("retain", "retain", []), ("pairs", "pairs", []),
                               ("judged", "judged", []), ("forget", "forget", ["--keywords", "keywords.txt"])]:
        call(program, site, "data", "prepare", "--input", f"{source}.jsonl", *rows, "--out", f"data/{name}", *more)
    for family, keys in FAMILIES.items():
        config = {"model_type": family, "vocab_size": vocab, "bos_token_id": 0, "eos_token_id": 0,
                  **(SMALL if family not in ("gpt2", "gpt_neox") else {}), **keys}
        (site / f"{family}.json").write_text(json.dumps(config))
        train(program, site, f"site_{family}",
              {"model.config": f"{family}.json", "run.steps": 1, "objective.name": "sft", "eval.interval_steps": 0,
               "data.dir": "data/rows"})
        call(program, site, "export", f"runs/site_{family}", "--format", "hf", "--out", f"base/{family}")
        for file in (site / "tokenizer").iterdir():
            shutil.copy(file, site / "base" / family)


def call(program, directory, *words, good=(0,)):
    done = subprocess.run([program, *words], cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=600)
    if done.returncode not in good:
        raise RuntimeError(f"actortrain {' '.join(words)}: exit code {done.returncode}\n{done.stdout[-2000:]}")
    return done.stdout


def train(program, site, name, settings, good=(0,)):
    (site / "run.toml").write_text(RUN.format(data="data/plain")) if not (site / "run.toml").exists() else None
    words = [f"--set={key}={value}" for key, value in {**settings, "run.name": name}.items()]
    call(program, site, "run", "run.toml", *words, good=good)


def numbers(value, path=""):
    """All that metrics.jsonl says, but what a clock decides."""
    if isinstance(value, dict):
        return {key: inner for name, part in value.items() if not any(c in name for c in CLOCKS)
                for key, inner in numbers(part, f"{path}/{name}").items()}
    return {path: repr(value)}


def play(program, site, prefix, name, settings, then):
    """Trains a case; a second part goes on with that many ranks, `full`."""
    run = f"{prefix}_{name}"
    shutil.rmtree(site / "runs" / run, ignore_errors=True)
    shutil.rmtree(site / f"{run}_exported", ignore_errors=True)
    if then is not None:
        train(program, site, run, {**settings, "run.steps_per_job": 4}, good=(75,))
        settings = {**settings, "parallel.ranks": then, "parallel.strategy": "full"}
    train(program, site, run, settings)
    lines = [numbers(json.loads(line)) for line in (site / "runs" / run / "metrics.jsonl").open()]
    call(program, site, "export", f"runs/{run}", "--format", "hf", "--out", f"{run}_exported")
    digest = hashlib.sha256()
    for file in sorted((site / f"{run}_exported").rglob("*.safetensors")):
        digest.update(file.read_bytes())
    return {"lines": lines, "weights": digest.hexdigest()}


def compare(options, site, base_key, name):
    settings, then = cases()[name]
    kept = site / "kept" / f"{base_key}_{name}.json"
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(json.dumps(play(options.base, site, f"base{base_key}", name, settings, then)))
    base = json.loads(kept.read_text())
    run = play(options.program, site, options.name, name, settings, then)
    found = []
    if len(base["lines"]) != len(run["lines"]):
        found.append(f"{len(base['lines'])} lines of metrics, {len(run['lines'])}")
    for number, (old, new) in enumerate(zip(base["lines"], run["lines"]), 1):
        found += [f"line {number}, {key}: {old.get(key)} {new.get(key)}"
                  for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    if base["weights"] != run["weights"]:
        found.append("exported weights")
    for step in (4, 8):
        places = [f"runs/{prefix}_{name}:{step}" for prefix in (f"base{base_key}", options.name)]
        try:
            call(options.program, site, "checkpoints", "diff", *places)
        except RuntimeError as error:
            found.append(str(error))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=lambda p: str(pathlib.Path(p).resolve()))
    parser.add_argument("program", type=lambda p: str(pathlib.Path(p).resolve()))
    parser.add_argument("--work", default="build/compare_bits")
    parser.add_argument("--name", default="new", help="of this comparison's runs, where several share --work")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("cases", nargs="*")
    options = parser.parse_intermixed_args()
    base_key = hashlib.sha256(pathlib.Path(options.base).read_bytes()).hexdigest()[:12]
    site = pathlib.Path(options.work).resolve() / base_key
    if not (site / "ready").exists():
        shutil.rmtree(site, ignore_errors=True)
        site.mkdir(parents=True)
        write_site(options.base, site)
        (site / "ready").touch()
    chosen = [n for n in cases() if not options.cases or any(n.startswith(c) for c in options.cases)]
    different = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        waiting = [(name, pool.submit(compare, options, site, base_key, name)) for name in chosen]
        for name, future in waiting:
            try:
                found = future.result()
            except (RuntimeError, OSError) as error:
                found = [str(error)]
            different += bool(found)
            print(f"{name}: {'same bits' if not found else 'DIFFERENT'}", *found[:6], sep="\n  ", flush=True)
    print(f"{len(chosen)} runs, {different} different")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
