"""Writes fixtures/tokenizers.json: small tokenizers of every kind, and the ids and offsets that the
reference gives to texts. Needs PyPI's tokenizers==0.23.3, sentencepiece==0.2.3 and protobuf.
"""

import collections
import io
import json
import pathlib
import random
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from tokenizers import (AddedToken, Regex, Tokenizer, __version__, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

OUTPUT = pathlib.Path(__file__).resolve().parents[1] / "fixtures/tokenizers.json"

CORPUS = [
    "The ship left the harbour before the sun had risen over the quiet water.",
    "She said that she'd read the other letters, and they're all about the weather.",
    "In 1998 there were 12,345 lighthouses; 678 of them still had keepers.",
    "for (int i = 0; i < count; ++i) {\n\ttotal += values[i] * 2;  // twice\n}\n",
    "Wir müssen über die Brücke gehen, größer als früher war sie nie.",
    "L'été dernier, nous avons mangé des pêches à la crème brûlée.",
    "Корабль вышел из гавани рано утром, когда вода была тиха.",
    "船は朝早く港を出た。水は静かだった。カモメが鳴いた。",
    "배는 이른 아침에 항구를 떠났다.   Spaces    stay.\r\n\r\nLines too.",
    "WHERE ARE THE OTHERS? They'll come; we've time. I'm sure it's so, isn't it?",
]

LETTERS = ["'", "\"", " ", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", ".", ",", "!", "-", "_", "(",
           "/", "<", "a", "b", "A", "B", "s", "S", "t", "the", " the", "The", "THE", "'s", "'LL", "'\u017f",
           "0", "12", "3456", "\u0663", "\u00bd", "\u00b2", "\u00e9", "e\u0301", "\u00c5", "\u0323",
           "\u0307", "\u01c5", "\u02b0", "\u00df", "\u4e2d", "\u6587", "\u3072", "\u30ab", "\ud55c",
           "\u1100", "\u1161", "\u0438", "\u0416", "\u200d", "\u00a0", "\u3000", "\u2028", "\u0085",
           "\ufeff", "\u0000", "\U0001f600", "$", "+", "\u20ac", "\u24d0", "\U0001e030",
           "\U00010d50", "\U0001e08f", "\u2581", "<s>", "</s>", "<mask>", " and", "ab", "aab"]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LINES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*" + LINES)
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = QWEN2.replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(r"\s\p{L}\p{N}", r"\s\p{L}\p{M}\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
BEFORE = r"[^\r\n\p{L}\p{N}]?"
O200K = (BEFORE + UPPER + "*" + LOWER + "+" + ENDING + "|" + BEFORE + UPPER + "+" + LOWER + "*"
         + ENDING + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + LINES)
TEKKEN = O200K.replace(ENDING, "").replace("{1,3}", "")
DEEPSEEK = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"""
            + "[^\r\n" + r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+" + "[\r\n]*"
            + r"|\s*" + "[\r\n]+" + r"|\s+(?!\S)|\s+"]

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def commonest(tokenizer, limit):
    """The characters to keep; the trainer itself would draw lots among equals."""
    counts = collections.Counter()
    for text in CORPUS:
        text = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
        for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text):
            counts.update(piece)
    return sorted(counts, key=lambda character: (-counts[character], character))[:limit]


def trained(tokenizer, size, special=(), alphabet=(), limit=None):
    alphabet = list(alphabet) if limit is None else commonest(tokenizer, limit)
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), initial_alphabet=alphabet,
        limit_alphabet=limit or 1000, show_progress=False))
    return tokenizer


def of_bytes(patterns, size=360, normalizer=None, special=("<s>", "</s>"), **options):
    tokenizer = Tokenizer(models.BPE(**options))
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        splits + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not patterns)])
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    return trained(tokenizer, size, special, ALPHABET)


def llama3():
    tokenizer = of_bytes([LLAMA3], ignore_merges=True)
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<s> $A </s>",
                                      special_tokens=[("<s>", 0), ("</s>", 1)])])
    # Merges do not reach this word, which is a token all the same.
    file = json.loads(tokenizer.to_str())
    file["model"]["vocab"]["\u0120harbour"] = len(file["model"]["vocab"])
    return Tokenizer.from_str(json.dumps(file))


def llama2():
    """As SentencePiece has it: all of the text is one word."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    trained(tokenizer, 560, ["<unk>", "<s>", "</s>", *BYTES], limit=60)
    file = json.loads(tokenizer.to_str())
    file["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0)])
    return tokenizer


def mistral():
    file = json.loads(llama2().to_str())
    file["normalizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return tokenizer


def gemma():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    trained(tokenizer, 480, ["<unk>", "<s>", *BYTES[:200]], limit=50)
    return tokenizer


def marked():
    """Added tokens with every combination of flags."""
    tokenizer = of_bytes([], normalizer=normalizers.NFC(), size=300, special=())
    contents = ["<s>", "</s>", "<mask>", "ab", "aab", "the", " and", "  ", "   ", "e\u0301", "'s", "\n",
                "12", "\u2581", "\u4e2d", "THE"]
    for bits, content in enumerate(contents):
        token = AddedToken(content, single_word=bool(bits & 1), lstrip=bool(bits & 2),
                           rstrip=bool(bits & 4), normalized=bool(bits & 8))
        if bits % 3 == 0:
            tokenizer.add_special_tokens([token])
        else:
            tokenizer.add_tokens([token])
    return tokenizer


def plain(stages, **options):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", **options))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(stages)
    return trained(tokenizer, 160, ["<unk>"], limit=70)


def character_table():
    """A small table of characters as SentencePiece models have them: letters, ligatures, accents, lines."""
    pairs = [("A", "a"), ("\u00aa", "a"), ("\ufb01", "fi"), ("e\u0301", "\u00e9"), ("\r", " "), ("\n", " "),
             ("\u200b", " "), ("\u0308\u0301", "\u0344"), ("\u24d0", "a"), ("\u0663", "3"), ("\u00bd", "1/2")]
    codes = "".join(" ".join(f"{ord(c):X}" for c in old) + "\t" + " ".join(f"{ord(c):X}" for c in new) + "\n"
                    for old, new in pairs)
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        rules.write(codes)
        rules.flush()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS), model_writer=model, vocab_size=150, hard_vocab_limit=False, minloglevel=2,
            model_type="char", normalization_rule_tsv=rules.name)
    parsed = sentencepiece_model_pb2.ModelProto()
    parsed.ParseFromString(model.getvalue())
    return parsed.normalizer_spec.precompiled_charsmap


def unigram(byte_fallback=False, bytes_count=256):
    """Pieces of the corpus with scores at random, some of which are equal."""
    draw = random.Random(3)
    text = "\u2581" + " ".join(CORPUS).replace(" ", "\u2581")
    pieces = {"<unk>": 0.0, "<s>": 0.0, "</s>": 0.0}
    for byte in BYTES[:bytes_count if byte_fallback else 0]:
        pieces[byte] = -20.0
    for character in sorted(set(text)):
        if draw.random() < 0.9:
            pieces[character] = -draw.uniform(5, 12)
    for _ in range(400):
        at = draw.randrange(len(text))
        pieces[text[at:at + draw.randint(2, 8)]] = -draw.choice([7.5, draw.uniform(4, 16)])
    return Tokenizer(models.Unigram(list(pieces.items()), 0, byte_fallback))


def table():
    """As T5's kin have it."""
    tokenizer = unigram()
    tokenizer.normalizer = normalizers.Precompiled(character_table())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.add_tokens(["<mask>"])
    return tokenizer


def likeliest(bytes_count):
    """All of a text is one word; what has no piece becomes bytes, if there are enough of those."""
    tokenizer = unigram(True, bytes_count)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
    return tokenizer


def tokenizers():
    split = pre_tokenizers.Split
    yield "gpt2", of_bytes([])
    yield "llama3", llama3()
    yield "qwen2", of_bytes([QWEN2], normalizer=normalizers.NFC())
    yield "qwen35", of_bytes([QWEN35], normalizer=normalizers.NFC(), size=300)
    yield "o200k", of_bytes([O200K], ignore_merges=True)
    yield "tekken", of_bytes([TEKKEN], ignore_merges=True, size=300)
    yield "deepseek", of_bytes(DEEPSEEK)
    yield "another pattern", of_bytes([r"\w+|[^\w\s]{1,2}+|\s+(?=\S)|\b\s"], size=290)
    yield "llama2", llama2()
    yield "mistral", mistral()
    yield "gemma", gemma()
    yield "marked", marked()
    for name in ("NFKC", "NFD", "NFKD", "Lowercase"):
        yield name, of_bytes([], normalizer=getattr(normalizers, name)(), size=256, special=())
    yield "classes", plain([pre_tokenizers.Digits(True), pre_tokenizers.Punctuation("isolated")])
    yield "words", plain([pre_tokenizers.Whitespace()], fuse_unk=True)
    yield "behaviors", plain([pre_tokenizers.WhitespaceSplit(), split("e", "merged_with_previous"),
                              split(Regex("[ao]"), "merged_with_next"),
                              split(Regex(r"\p{L}"), "contiguous", invert=True),
                              pre_tokenizers.Digits(False),
                              pre_tokenizers.Punctuation("removed")])
    yield "table", table()
    yield "likeliest", likeliest(256)
    yield "few bytes", likeliest(200)


def texts(count, seed):
    draw = random.Random(seed)
    yield from ("", " ", "a", CORPUS[seed % len(CORPUS)], " ".join(CORPUS)[seed * 20:seed * 20 + 150])
    for _ in range(count):
        yield "".join(draw.choice(LETTERS) for _ in range(draw.randint(1, 16)))


def sweep_blocks():
    """Nearly all assigned characters, within words, before them and after a quote."""
    points = [*range(0xD800), *range(0xE000, 0x32000), *range(0xE0000, 0xE0200)]
    for at in range(0, len(points), 4096):
        yield "".join(f"a{chr(p)}B {chr(p)}\u0301'{chr(p)}" for p in points[at:at + 4096])


def sweep(tokenizer):
    checksum = 0
    for block in sweep_blocks():
        for token in tokenizer.encode(block, add_special_tokens=False).ids:
            checksum = (checksum * 1000003 + token) % 2**64
    return checksum


def main():
    assert __version__ == "0.23.3"
    out = []
    for seed, (name, tokenizer) in enumerate(tokenizers()):
        cases = []
        for text in texts(28, seed):
            encoding = tokenizer.encode(text, add_special_tokens=len(cases) % 2 == 0)
            ids = encoding.ids
            cases.append([text, ids, tokenizer.decode(ids, skip_special_tokens=False),
                          tokenizer.decode(ids, skip_special_tokens=True),
                          [edge for offsets in encoding.offsets for edge in offsets]])
        file = json.loads(tokenizer.to_str())
        merges = file["model"].get("merges", [])
        # Both ways to write them are in use; this one has no place for spaces.
        if merges and seed % 2 == 0 and not any(" " in part for pair in merges for part in pair):
            file["model"]["merges"] = [" ".join(pair) for pair in merges]
        out.append(dict(name=name, file=file, sweep=sweep(tokenizer), cases=cases))
    lines = ",\n".join(json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in out)
    OUTPUT.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
