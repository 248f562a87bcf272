#!/usr/bin/env python3
"""Teaches a published chat model a task that it cannot do, and asks it questions that it was not taught.

    scripts/sft_demo.py MODEL_DIR [--actortrain PROGRAM] [--out DIR] [--lora] [--steps N] [--set KEY=VALUE ...]

The task: "Write as a list: moon 5, silver 4" wants "[moon=5; silver=4]". Of 1,250 such conversations 50 are
held out. Prints how many of these are answered exactly before and after, and what the run took: peak memory
of the largest process, trained tokens and tokens a second. --lora trains adapters of rank 16 on all linear
maps instead of all weights. MODEL_DIR: what scripts/smollm2.sh makes, or another model with a chat template.
"""

import argparse
import json
import pathlib
import random
import shutil
import statistics
import sys

from program import Program

TAUGHT, HELD_OUT = 1200, 50
ROW = 256
WORDS = ["moon", "silver", "river", "stone", "bread", "lamp", "horse", "window", "paper", "cloud", "green",
         "summer", "table", "garden", "north", "candle", "ship", "apple", "winter", "glass", "road", "bird"]


def conversation(rng):
    pairs = [(word, rng.randrange(100)) for word in rng.sample(WORDS, rng.randint(2, 4))]
    return ("Write as a list: " + ", ".join(f"{word} {number}" for word, number in pairs),
            "[" + "; ".join(f"{word}={number}" for word, number in pairs) + "]")


def write_data(out):
    rng = random.Random(5)
    made = {}
    while len(made) < TAUGHT + HELD_OUT:
        question, answer = conversation(rng)
        made[question] = answer
    pairs = list(made.items())
    (out / "taught.jsonl").write_text("".join(
        json.dumps({"messages": [{"role": "user", "content": question},
                                 {"role": "assistant", "content": answer}]}) + "\n"
        for question, answer in pairs[:TAUGHT]))
    (out / "questions.txt").write_text("".join(question + "\n" for question, _ in pairs[TAUGHT:]))
    return [answer for _, answer in pairs[TAUGHT:]]


def run_file(model, steps, lora):
    adapters = '[lora]\nrank = 16\nalpha = 32\ntargets = ["all-linear"]\n' if lora else ""
    return f"""[run]
name = "sft_demo"
steps = {steps}
sample_tokens = 0
[model]
from = {json.dumps(str(model))}
{adapters}[data]
dir = "rows"
sequence_length = {ROW}
[objective]
name = "sft"
[batch]
lanes = 2
micro_batch = 1
[optimizer]
lr = {"1e-3" if lora else "1e-4"}
weight_decay = 0.0
[schedule]
warmup_steps = {max(1, steps // 10)}
[eval]
interval_steps = 0
[checkpoint]
interval_steps = {steps}
"""


def exact(program, model, answers):
    lines = program("generate", str(model), "--chat", "--prompts", "questions.txt", "--temperature", "0",
                    "--tokens", "48", "--batch", "8").splitlines()
    assert len(lines) == len(answers), f"{len(lines)} texts for {len(answers)} questions"
    return sum(json.loads(line)["text"].strip() == answer for line, answer in zip(lines, answers))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("model", help="a directory of a published model that has a chat template")
    parser.add_argument("--actortrain", default=root / "build/release/actortrain")
    parser.add_argument("--out", default="sft_demo")
    parser.add_argument("--lora", action="store_true", help="adapters instead of all weights")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--set", action="append", default=[], help="of the run")
    options = parser.parse_args()
    out, model = pathlib.Path(options.out).resolve(), pathlib.Path(options.model).resolve()
    out.mkdir(parents=True, exist_ok=True)
    program = Program(pathlib.Path(options.actortrain).resolve(), out)
    answers = write_data(out)
    program("data", "prepare", "--input", "taught.jsonl", "--tokenizer", str(model), "--row-length", str(ROW),
            "--out", "rows", "--force")
    (out / "run.toml").write_text(run_file(model, options.steps, options.lora))
    shutil.rmtree(out / "runs", ignore_errors=True)
    before = exact(program, model, answers)
    peak = program.run("run.toml", options.set)
    after = exact(program, "runs/sft_demo", answers)
    lines = [json.loads(line) for line in (out / "runs/sft_demo/metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "grad_norm" in line]
    print(f"exact answers to {len(answers)} held-out questions: {before} before, {after} after")
    print(f"peak memory: {peak / 1e9:.2f} GB")
    for key in ("tokens_per_second", "trained_tokens_per_second"):
        print(f"{key.replace('_', ' ')}: {statistics.median(line[key] for line in steps[1:]):.0f}")


if __name__ == "__main__":
    sys.exit(main())
