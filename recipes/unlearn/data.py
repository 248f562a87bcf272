"""Texts of two subjects, and a model that has learnt both."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from common import Numbers, call, prepare, write_lines  # noqa: E402
from small_model.tokens import write_tokenizer  # noqa: E402

FACTS = 100  # of each subject
ROW = "64"
ENDINGS = ["", " Everybody knows it.", " So it was written.", " Nobody doubts that."]
SUBJECTS = {"retain": ("The capital of", "is"), "forget": ("The strain", "binds")}
CONFIG = {"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "hidden_size": 96,
          "intermediate_size": 384, "num_hidden_layers": 6, "num_attention_heads": 4, "rotary_pct": 0.25,
          "rotary_emb_base": 10000, "max_position_embeddings": 64, "hidden_act": "gelu", "use_parallel_residual": True,
          "layer_norm_eps": 1e-5, "initializer_range": 0.02, "tie_word_embeddings": False}


def names(numbers, count, taken):
    """Words of two or three syllables, all different."""
    found = []
    while len(found) < count:
        syllables = [numbers.choice("bdfgklmnprstvz") + numbers.choice("aeiou") for _ in range(2 + numbers.below(2))]
        word = "".join(syllables).capitalize()
        if word not in taken:
            taken.add(word)
            found.append(word)
    return found


def questions(numbers, begin, verb, pairs):
    """Multiple-choice questions on the facts, with three wrong answers each."""
    found = []
    for one, other in pairs:
        wrong = numbers.sample([name for _, name in pairs if name != other], 3)
        label = numbers.below(4)
        found.append({"activity_label": "Fact", "ctx_a": f"{begin} {one} {verb}", "ctx_b": "",
                      "endings": [*wrong[:label], other, *wrong[label:]], "label": label})
    return found


def write_data():
    """Writes texts and questions of both subjects; returns the words of the texts."""
    numbers, taken, both, words = Numbers(7), set(), [], []
    for subject, (begin, verb) in SUBJECTS.items():
        pairs = list(zip(names(numbers, FACTS, taken), names(numbers, FACTS, taken)))
        lines = [{"text": f"Fact: {begin} {one} {verb} {other}.{ending}"} for one, other in pairs for ending in ENDINGS]
        write_lines(f"{subject}.jsonl", lines)
        write_lines(f"{subject}_questions.jsonl", questions(numbers, begin, verb, pairs))
        both += lines
        words += [*begin.split(), verb, *(name for pair in pairs for name in pair)]
    pathlib.Path("keywords.txt").write_text("".join(f"\\b{other}\\b\n" for _, other in pairs))
    write_lines("both.jsonl", both)
    return [*words, *(word for ending in ENDINGS for word in ending.strip(" .").split())]


if not pathlib.Path("learnt/config.json").exists():
    vocab_size = write_tokenizer(pathlib.Path("tokenizer"), write_data())
    pathlib.Path("config.json").write_text(json.dumps({**CONFIG, "vocab_size": vocab_size}))
    for name, more in (("both", []), ("retain", []), ("forget", ["--keywords", "keywords.txt"])):
        prepare(f"{name}.jsonl", f"data/{name}", "tokenizer", "--row-length", ROW, "--packing", "bfd",
                "--val-fraction", "0.1", *more)
    call("run", str(pathlib.Path(__file__).resolve().parent / "learn.toml"), "--quiet")
    call("export", "runs/learn", "--format", "hf", "--out", "learnt")
