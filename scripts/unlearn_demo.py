#!/usr/bin/env python3
"""Teaches a small GPT-NeoX two topics and makes it forget one: what configs/unlearn_neox.toml does to
a large one, in minutes on two cores.

    scripts/unlearn_demo.py [--actortrain PROGRAM] [--out DIR] [--picture FILE] [--set KEY=VALUE ...]

Writes texts, questions, a tokenizer and two runs below --out, and prints what the model knows of
both topics before and after: accuracy of multiple-choice questions (chance is 1 in 4) and the loss
of texts. --picture draws it by step, with matplotlib.
"""

import argparse
import json
import pathlib
import random
import shutil
import sys

from program import Program

FACTS = 300  # Of each topic; each is a question, too.
ROW = 64
# Every fact is told in each of these ways, a tenth of which are held out.
ENDINGS = ["", " Everybody knows it.", " So it was written.", " Nobody doubts that."]
TOPICS = {"retain": ("The capital of", "is", "City"), "forget": ("The strain", "binds", "Virus")}
NEOX = {"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "hidden_size": 96,
        "intermediate_size": 384, "num_hidden_layers": 6, "num_attention_heads": 4,
        "rotary_pct": 0.25, "rotary_emb_base": 10000, "max_position_embeddings": 64,
        "hidden_act": "gelu", "use_parallel_residual": True, "layer_norm_eps": 1e-5,
        "initializer_range": 0.02, "tie_word_embeddings": False}


def names(rng, count, taken):
    """Words of two or three syllables, all different."""
    found = []
    while len(found) < count:
        word = "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou")
                       for _ in range(rng.choice((2, 3)))).capitalize()
        if word not in taken:
            taken.add(word)
            found.append(word)
    return found


def byte_letters():
    """How byte-level tokenizers write bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(other)}}


def write_tokenizer(directory, words):
    """Byte-level BPE in which each of the words, with a space before it, is one token."""
    letters = byte_letters()
    vocab = {letters[b]: b for b in range(256)}
    merges = []
    for word in words:
        pieces = [letters[b] for b in (" " + word).encode()]
        while len(pieces) > 1:
            left, right = pieces[0], pieces[1]
            if left + right not in vocab:
                vocab[left + right] = len(vocab)
                merges.append([left, right])
            pieces[:2] = [left + right]
    end = len(vocab)
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": end, "content": "<|endoftext|>", "single_word": False,
                          "lstrip": False, "rstrip": False, "normalized": False,
                          "special": True}],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                          "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                    "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "vocab": vocab,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "merges": [f"{a} {b}" for a, b in merges]}}
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|endoftext|>", "tokenizer_class": "GPTNeoXTokenizer"}))
    return end + 1


def write_data(out, rng):
    """Texts and questions of both topics, and the expressions that what is forgotten matches."""
    taken = set()
    topics = {}
    for topic, (begin, verb, title) in TOPICS.items():
        subjects, objects = names(rng, FACTS, taken), names(rng, FACTS, taken)
        topics[topic] = (subjects, objects)
        lines = [f"{title}: {begin} {s} {verb} {o}.{ending}"
                 for s, o in zip(subjects, objects) for ending in ENDINGS]
        (out / f"{topic}.jsonl").write_text("".join(
            json.dumps({"text": line}) + "\n" for line in lines))
        questions = []
        for s, o in zip(subjects, objects):
            endings = [o, *rng.sample([x for x in objects if x != o], 3)]
            rng.shuffle(endings)
            questions.append({"activity_label": title, "ctx_a": f"{begin} {s} {verb}", "ctx_b": "",
                              "endings": endings, "label": endings.index(o)})
        (out / f"{topic}_questions.jsonl").write_text(
            "".join(json.dumps(q) + "\n" for q in questions))
    (out / "both.jsonl").write_text((out / "retain.jsonl").read_text() +
                                    (out / "forget.jsonl").read_text())
    (out / "keywords.txt").write_text("".join(f"\\b{o}\\b\n" for o in topics["forget"][1]))
    words = [w for begin, verb, title in TOPICS.values()
             for w in [*begin.split(), verb, title]]
    words += " ".join(ENDINGS).replace(".", "").split()
    return words + [w for pair in topics.values() for side in pair for w in side]


def prepare(program, source, directory, *more):
    program("data", "prepare", "--input", source, "--tokenizer", "tokenizer", "--row-length", str(ROW),
            "--packing", "bfd", "--out", directory, "--val-fraction", "0.1", *more)


LEARN = f"""[run]
name = "learn"
steps = 800
log_interval_steps = 50
sample_tokens = 0
[model]
config = "config.json"
[data]
dir = "data/both"
sequence_length = {ROW}
[batch]
lanes = 2
micro_batch = 4
[objective]
name = "sft"
[optimizer]
lr = 2e-3
weight_decay = 0.0
[schedule]
warmup_steps = 40
[eval]
interval_steps = 800
lanes = 2
choices = ["retain_questions.jsonl", "forget_questions.jsonl"]
[checkpoint]
interval_steps = 800
"""

UNLEARN = f"""[run]
name = "unlearn"
steps = 540
log_interval_steps = 5
sample_tokens = 0
[model]
from = "learnt"
[data]
dir = "data/retain"
forget_dir = "data/forget"
sequence_length = {ROW}
[batch]
lanes = 2
micro_batch = 4
[objective]
name = "sequential_unlearning"
first_layer = 5
last_layer = 0
layer_stride = 1
steps_per_layer = 90
retain_loss = "kl"
forget_loss = "max_entropy"
retain_coefficient = 20.0
forget_coefficient = 60.0
forget_layer_scale = 4.0
gradient_join = "sum"
maintain_unlearned = true
[optimizer]
lr = 8e-3
weight_decay = 0.0
grad_clip = 3.0
[schedule]
name = "linear"
warmup_steps = 0
[eval]
interval_steps = 90
lanes = 2
choices = ["retain_questions.jsonl", "forget_questions.jsonl"]
[checkpoint]
interval_steps = 90
"""


def evaluations(out, name):
    by_step = {}
    for line in map(json.loads, (out / "runs" / name / "metrics.jsonl").open()):
        if line.get("event") in ("evaluation", "choices"):
            by_step.setdefault(line["step"], {}).update(line)
    return list(by_step.values())


def steps_of(out, name):
    lines = (json.loads(line) for line in (out / "runs" / name / "metrics.jsonl").open())
    return [line for line in lines if "grad_norm" in line]


def accuracy(line, topic):
    return line["choices"]["sources"][f"{topic}_questions.jsonl"]["acc"]


def draw(out, picture):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    measured, steps = evaluations(out, "unlearn"), steps_of(out, "unlearn")
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6))
    at = [line["step"] for line in measured]
    for topic in TOPICS:
        left.plot(at, [100 * accuracy(line, topic) for line in measured], label=f"{topic} questions")
    left.axhline(25, color="grey", linestyle=":", label="chance")
    left.set(xlabel="step", ylabel="accuracy, %", ylim=(0, 104))
    right.plot([line["step"] for line in steps], [line["retain_loss"] for line in steps],
               label="divergence of what is retained, nats")
    right.plot([line["step"] for line in steps], [line["forget_loss"] for line in steps],
               label="forget loss (1: uniform)")
    right.set(xlabel="step", ylim=(0, None))
    boundaries = [a["step"] for a, b in zip(steps, steps[1:])
                  if a["phase_layer"] != b["phase_layer"]]
    for axis in (left, right):
        for boundary in boundaries:
            axis.axvline(boundary, color="lightgrey", zorder=0)
        axis.legend(loc="center right")
    figure.tight_layout()
    figure.savefig(picture, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--actortrain", default=root / "build/release/actortrain")
    parser.add_argument("--out", default="unlearn_demo")
    parser.add_argument("--picture")
    parser.add_argument("--set", action="append", default=[], help="of the run that unlearns")
    options = parser.parse_args()
    out = pathlib.Path(options.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    program = Program(pathlib.Path(options.actortrain).resolve(), out)
    if not (out / "learnt").exists():
        vocab = write_tokenizer(out / "tokenizer", write_data(out, random.Random(7)))
        (out / "config.json").write_text(json.dumps({**NEOX, "vocab_size": vocab}))
        (out / "learn.toml").write_text(LEARN)
        prepare(program, "both.jsonl", "data/both")
        prepare(program, "retain.jsonl", "data/retain")
        prepare(program, "forget.jsonl", "data/forget", "--keywords", "keywords.txt")
        program.run("learn.toml")
        program("export", "runs/learn", "--format", "hf", "--out", "learnt")
        for file in (out / "tokenizer").iterdir():
            (out / "learnt" / file.name).write_bytes(file.read_bytes())
    (out / "unlearn.toml").write_text(UNLEARN)
    shutil.rmtree(out / "runs" / "unlearn", ignore_errors=True)
    program.run("unlearn.toml", options.set)
    measured = evaluations(out, "unlearn")
    first, last = measured[0], measured[-1]
    for topic in TOPICS:
        print(f"{topic} questions: {100 * accuracy(first, topic):.1f} % -> "
              f"{100 * accuracy(last, topic):.1f} % right (chance 25 %)")
    change = 100 * (last["val_loss"] / first["val_loss"] - 1)
    print(f"retain loss: {first['val_loss']:.4f} -> {last['val_loss']:.4f} nats ({change:+.2f} %)")
    if options.picture:
        draw(out, options.picture)


if __name__ == "__main__":
    sys.exit(main())
