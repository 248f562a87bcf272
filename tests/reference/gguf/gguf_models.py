#!/usr/bin/env python3
"""Compares models in GGUF files with the directories that they were made of.

    gguf_models.py PROGRAM [NAME...]

For every family that such files know, each kind of rope, windows and scales (gguf_cases.py): a small
model of transformers, its file by the `gguf` package, `actortrain convert`, and the sum of
log-probabilities of a text by transformers before and after, and here. All within 1e-4.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

import torch
import transformers

from gguf_cases import CASES, make_model, write_file

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)

SIZES = dict(vocab_size=280, hidden_size=48, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=256)
LONG = "the quick brown fox and the lazy dog sleep under an old oak tree near the river, " * 2
CHOICES = ["bank of stones", "and dreams of cats"]
NEAR = 1e-4


def scores_there(model, tokenizer):
    found = []
    prompt = f"Question: {LONG}\nAnswer:"
    for choice in CHOICES:
        ids = tokenizer(prompt + " " + choice).input_ids
        before = len(tokenizer(prompt).input_ids)
        with torch.no_grad():
            logs = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0].double(), -1)
        found.append(sum(logs[i - 1, ids[i]].item() for i in range(before, len(ids))))
    return found


def scores_here(program, directory, work):
    question = {"question": LONG, "choices": {"text": CHOICES, "label": ["A", "B"]}, "answerKey": "A"}
    (work / "q.jsonl").write_text(json.dumps(question) + "\n")
    details = work / "details.jsonl"
    details.unlink(missing_ok=True)
    done = subprocess.run([program, "eval", directory, "--choices", work / "q.jsonl", "--context", "256",
                           "--details", details], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return json.loads(details.read_text().splitlines()[0])["log_likelihoods"]


def compare(program, name, work):
    """(distance, what went wrong)"""
    model = make_model(name, SIZES)
    file, out = work / f"{name}.gguf", work / name
    write_file(file, name, model)
    done = subprocess.run([program, "convert", file, "--out", out], capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr.strip()
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    after = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32,
                                                              attn_implementation="eager").eval()
    before = scores_there(model, tokenizer)
    others = scores_there(after, tokenizer) + scores_here(program, out, work)
    return max(abs(a - b) for a, b in zip(before * 2, others)), ""


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    names = sys.argv[2:] or list(CASES)
    worst, different = 0.0, 0
    for name in names:
        with tempfile.TemporaryDirectory() as work:
            try:
                distance, wrong = compare(program, name, pathlib.Path(work))
            except Exception as error:  # what transformers refuses differs, too
                distance, wrong = None, f"{type(error).__name__}: {str(error).splitlines()[-1]}"
        if wrong or distance > NEAR:
            different += 1
            print(f"{name:<16} DIFFERENT {wrong or distance}", flush=True)
        else:
            worst = max(worst, distance)
            print(f"{name:<16} {distance:.1e}", flush=True)
    print(f"{len(names)} models in GGUF files: {different} different, others within {worst:.1e}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
