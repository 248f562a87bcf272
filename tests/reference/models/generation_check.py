#!/usr/bin/env python3
"""Compares `actortrain generate` with transformers on a published model's directory.

    generation_check.py PROGRAM DIRECTORY [--speed]

Greedy continuations of 20 prompts, 64 tokens each, in one batch here and one by one there. Where two
texts part, the larger of both programs' candidates must be a tie for transformers: logits within
1e-3. With --speed also the tokens per second of one text, both in turns, median of three; both
compute in fp32. A directory that is not there yet becomes SmolLM2-135M (scripts/smollm2.sh).

Needs: pip install torch transformers
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROMPTS = [
    "The capital of France is", "Once upon a time", "Water boils at", "The three primary colours are",
    "In the beginning", "def fibonacci(n):", "The quick brown fox", "To make a cup of tea,",
    "The largest planet of the solar system", "1, 2, 3, 4,", "Dear Sir or Madam,", "A prime number is",
    "The old man and", "import numpy as np", "Photosynthesis is the process", "She opened the door and",
    "The year 1969", "To be or not to be", "An actor model of computation", "Le chat est",
]
NEW_TOKENS = 64
TIE = 1e-3


def ours(program, directory, arguments):
    command = [program, "generate", directory, "--temperature", "0", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def written(program, directory):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("".join(prompt + "\n" for prompt in PROMPTS))
        file.flush()
        lines = ours(program, directory, ["--prompts", file.name, "--tokens", str(NEW_TOKENS), "--logprobs"])
    return [json.loads(line)["tokens"] for line in lines.splitlines()]


def greedy(model, ids):
    out = model.generate(ids, max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0)[0, ids.shape[1]:]
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    return [token for token in out.tolist() if token not in ends]


def compare(model, tokenizer, found):
    equal = ties = 0
    for prompt, tokens in zip(PROMPTS, found):
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        expected = greedy(model, ids)
        if tokens == expected:
            equal += 1
        else:
            at = next((i for i, (a, b) in enumerate(zip(tokens, expected)) if a != b), min(len(tokens), len(expected)))
            context = torch.cat([ids[0], torch.tensor(expected[:at], dtype=torch.long)])[None]
            logits = model(context).logits[0, -1]
            largest = torch.topk(logits, 2).values
            gap = float(largest[0] - largest[1])
            ties += gap <= TIE
            print(f"{prompt!r}: differs at token {at}, the two likeliest are {gap:.2e} apart")
        print(f"{prompt!r}: {len(tokens)} tokens")
    print(f"equal {equal}, ties {ties}, of {len(PROMPTS)}")
    return equal + ties == len(PROMPTS)


def timed(action):
    begin = time.monotonic()
    action()
    return time.monotonic() - begin


def speed(program, directory, model, tokenizer):
    few, many = 10, 130
    prompt = "Once upon a time"
    ids = tokenizer(prompt, return_tensors="pt").input_ids

    def our_run(tokens):
        return timed(lambda: ours(program, directory, ["--prompt", prompt, "--tokens", str(tokens)]))

    def their_run(tokens):
        return timed(lambda: model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False,
                                            pad_token_id=0))

    rates = {"actortrain": [], "transformers": []}
    for _ in range(3):
        for name, run in (("actortrain", our_run), ("transformers", their_run)):
            rates[name].append((many - few) / (run(many) - run(few)))
    for name, values in rates.items():
        print(f"{name}: {statistics.median(values):.1f} tokens/s (of {', '.join(f'{v:.1f}' for v in values)})")
    ratio = statistics.median(rates["actortrain"]) / statistics.median(rates["transformers"])
    print(f"ratio {ratio:.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("directory")
    parser.add_argument("--speed", action="store_true")
    options = parser.parse_args()
    if not (pathlib.Path(options.directory) / "config.json").exists():
        subprocess.run([ROOT / "scripts/smollm2.sh", options.directory], check=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.directory)
    model = transformers.AutoModelForCausalLM.from_pretrained(options.directory, dtype=torch.float32).eval()
    with torch.no_grad():
        if options.speed:
            speed(options.program, options.directory, model, tokenizer)
            return 0
        return 0 if compare(model, tokenizer, written(options.program, options.directory)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
