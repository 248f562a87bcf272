"""The small model that recipes start from where they need no published one: a Llama of 2.2 million
weights, which has read the King James Version, and may have learnt to answer questions.

Its tokens are the commonest words of that text; all other text is written in bytes.
"""

import collections
import json
import pathlib
import re

from common import Numbers, call, prepare, write_king_james, write_lines
from small_model.tokens import write_tokenizer

HERE = pathlib.Path(__file__).resolve().parent
WORDS = 700  # of the text, each one token with the space before it
DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
ROW = "128"  # tokens of a row of conversations
CHATS = 4000  # conversations of a data set, of 11,000 questions that there are


def write_config(vocab_size):
    pathlib.Path("config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": vocab_size, "hidden_size": 192,
        "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 3, "num_key_value_heads": 3,
        "head_dim": 64, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": True}))


def train(name, out):
    """Trains name.toml of this folder, and writes the model into the directory `out`."""
    call("run", str(HERE / f"{name}.toml"), "--quiet")
    call("export", f"runs/{name}", "--format", "hf", "--out", out)


def make_base():
    """Writes the directory "base"."""
    if pathlib.Path("base/config.json").exists():
        return
    write_king_james("text.txt")
    counts = collections.Counter(re.findall(r"[A-Za-z]+", pathlib.Path("text.txt").read_text(encoding="utf-8")))
    common = sorted(counts, key=lambda word: (-counts[word], word))[:WORDS]
    write_config(write_tokenizer(pathlib.Path("tokenizer"), [*common, *DIGITS, *"0123456789"]))
    prepare("text.txt", "data/base", "tokenizer", "--document-separator", "\n\n\n")
    train("base", "base")


def questions(seed, count):
    """Questions, all different, each with an answer in words and one in digits."""
    numbers, found = Numbers(seed), {}
    while len(found) < count:
        digits = [numbers.below(10) for _ in range(3 + numbers.below(2))]
        question = "Read to me: " + " ".join(map(str, digits))
        found[question] = ("I read " + " ".join(DIGITS[digit] for digit in digits) + ".",
                           "I read " + " ".join(map(str, digits)) + ".")
    return [(question, *answers) for question, answers in found.items()]


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def prepare_chats(name, conversations, *more):
    """Rows in data/NAME of these JSON lines."""
    write_lines(f"{name}.jsonl", conversations)
    prepare(f"{name}.jsonl", f"data/{name}", "base", "--template", "chatml", "--row-length", ROW,
            "--val-fraction", "0.05", *more)


def make_chat_model():
    """Writes the directory "chat": the small model, which answers questions in words or digits, as often."""
    make_base()
    if pathlib.Path("chat/config.json").exists():
        return
    prepare_chats("chat", [{"messages": [user(question), assistant(in_words if i % 2 else in_digits)]}
                           for i, (question, in_words, in_digits) in enumerate(questions(11, CHATS))])
    train("chat", "chat")
