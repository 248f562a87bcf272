"""Writes fixtures/sentencepiece.json: small SentencePiece models of BPE and Unigram, and the ids that
the reference gives to texts; of one also those of transformers, which takes texts as rendered
conversations. Needs PyPI's sentencepiece==0.2.3, transformers==5.23 and protobuf.
"""

import base64
import io
import json
import pathlib
import random
import tempfile

import sentencepiece
import transformers

OUTPUT = pathlib.Path(__file__).resolve().parents[1] / "fixtures/sentencepiece.json"

CORPUS = [
    "The ship left the harbour before the sun had risen over the quiet water.",
    "She said that the other letters were all about the weather, and that they had come late.",
    "Wir müssen über die Brücke gehen, größer als früher war sie nie.",
    "船は朝早く港を出た。水は静かだった。",
    "for (int i = 0; i < count; ++i) { total += values[i] * 2; }",
] * 20

LETTERS = [" ", " ", "  ", "   ", "\t", "\n", ".", ",", "a", "b", "the", " the", "The", "ship", "water", "ü", "ß", "e\u0301",
           "船", "水", "\U0001f600", "\u2581", "<s>", "</s>", "<unk>", "<0x41>", "<sep>", "[INST]", "ab", "aab", "0", "12",
           "\u00a0", "\u3000", "\u0000", "\ufeff", "(", "+="]

MODELS = {
    "bytes": {"byte_fallback": True, "remove_extra_whitespaces": False,
              "user_defined_symbols": ["<sep>", "\u2581\u2581", "[INST]", "ab", "aab"]},
    "unknown": {"user_defined_symbols": ["<sep>"], "control_symbols": ["<ctl>"]},
    "suffix": {"byte_fallback": True, "treat_whitespace_as_suffix": True},
    "no_prefix": {"byte_fallback": True, "add_dummy_prefix": False, "split_by_whitespace": False},
    "unigram": {"model_type": "unigram", "user_defined_symbols": ["<sep>"], "control_symbols": ["<ctl>"]},
    "unigram_bytes": {"model_type": "unigram", "byte_fallback": True, "remove_extra_whitespaces": False,
                      "user_defined_symbols": ["<sep>", "\u2581\u2581", "[INST]", "ab", "aab"]},
    "unigram_suffix": {"model_type": "unigram", "treat_whitespace_as_suffix": True},
}

# Sums of scores begin anew where they are beyond 100,000, which takes a long text; and far from 0 they are rounded
# so that other pieces are the likeliest.
LONG_TEXTS = {"lines": [CORPUS[0] + " ", 3000], "letters": ["船ab水", 8000], "mixed": [CORPUS[2] + CORPUS[4], 1500]}


def train(options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=model, vocab_size=420, minloglevel=2,
        normalization_rule_name="identity", hard_vocab_limit=False, **{"model_type": "bpe", **options})
    return model.getvalue()


def checksum(ids):
    """How many ids, and their FNV-1a."""
    value = 0xcbf29ce484222325
    for one in ids:
        value = (value ^ one) * 0x100000001b3 % 2**64
    return [len(ids), value]


def texts():
    rng = random.Random(7)
    plain = ["", " ", "a", "  the ship  ", *CORPUS[:5]]
    return plain + ["".join(rng.choices(LETTERS, k=rng.randint(1, 30))) for _ in range(120)]


def rendered(model, legacy, lines):
    """Ids and offsets where control pieces are found in text."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "tokenizer.model").write_bytes(model)
        (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
        (folder / "tokenizer_config.json").write_text(json.dumps(
            {"tokenizer_class": "LlamaTokenizer", "legacy": legacy, "bos_token": "<s>", "eos_token": "</s>",
             "unk_token": "<unk>"}))
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder).backend_tokenizer
    for line in lines:
        encoding = tokenizer.encode(line, add_special_tokens=False)
        yield [encoding.ids, [edge for offsets in encoding.offsets for edge in offsets]]


def main():
    fixture = {"version": sentencepiece.__version__, "texts": texts(), "long_texts": LONG_TEXTS, "models": {}}
    for name, options in MODELS.items():
        model = train(options)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        ids = [processor.encode(text) for text in fixture["texts"]]
        fixture["models"][name] = {"model": base64.b64encode(model).decode(), "begin": processor.bos_id(), "ids": ids,
                                   "decoded": [processor.decode(line) for line in ids]}
        if name.startswith("unigram"):
            fixture["models"][name]["long"] = {
                key: checksum(processor.encode(text * count)) for key, (text, count) in LONG_TEXTS.items()}
        if name == "bytes":
            fixture["rendered"] = {"model": name, **{key: list(rendered(model, legacy, fixture["texts"]))
                                                     for key, legacy in (("first", False), ("each", True))}}
    OUTPUT.write_text(json.dumps(fixture, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
