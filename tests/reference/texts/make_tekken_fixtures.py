"""Writes fixtures/tekken.json: a small tekken.json without a list of special tokens, one with such a
list, and the ids that the reference gives to texts. Needs PyPI's mistral-common==1.13.1.
"""

import base64
import json
import pathlib
import random
import tempfile

import mistral_common
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

OUTPUT = pathlib.Path(__file__).resolve().parents[1] / "fixtures/tekken.json"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
BEFORE = r"[^\r\n\p{L}\p{N}]?"
PATTERN = (BEFORE + UPPER + "*" + LOWER + "+|" + BEFORE + UPPER + "+" + LOWER + r"*|\p{N}| ?[^\s\p{L}\p{N}]+"
           + r"[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TOKENS = ["th", "he", "the", " t", " the", "in", "ing", "er", " w", "at", "wat", " wat", "water", " water", "\u00e9",
          "ub", "\u00fc", "\r\n", "  ", "\u8239", "==", "20", "unused"]
LETTERS = [" ", "  ", "\n", "\r\n", ".", "/", "the", " the", "The", "water", " water", "ing", "\u00e9", "e\u0301", "\u00fc",
           "\u8239", "\u6c34", "\U0001f600", "12", "2034", "<s>", "</s>", "[INST]", "<SPECIAL_25>", "<sys>", "'s", "=="]


def tekken_file(specials):
    vocab = [bytes([byte]) for byte in range(256)] + [token.encode() for token in TOKENS]
    file = {"config": {"pattern": PATTERN, "num_vocab_tokens": len(vocab), "default_vocab_size": len(vocab) - 1 + 30,
                       "default_num_special_tokens": 30, "version": "v3"},
            "vocab": [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
                      for rank, token in enumerate(vocab)]}
    if specials:
        file["special_tokens"] = [{"rank": rank, "token_str": name, "is_control": True}
                                  for rank, name in enumerate(specials)]
    return file


def main():
    rng = random.Random(11)
    texts = ["", " ", "the water"] + ["".join(rng.choices(LETTERS, k=rng.randint(1, 24))) for _ in range(60)]
    fixture = {"version": mistral_common.__version__, "texts": texts, "files": []}
    for specials in ([], ["<unk>", "<s>", "</s>", "<sys>"]):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tekken.json"
            path.write_text(json.dumps(tekken_file(specials)))
            tokenizer = Tekkenizer.from_file(path)
        fixture["files"].append(
            {"file": tekken_file(specials), "begin": tokenizer.bos_id, "end": tokenizer.eos_id,
             "specials": [tokenizer.id_to_piece(id) for id in range(tokenizer.num_special_tokens)],
             "ids": [tokenizer.encode(text, bos=False, eos=False) for text in texts]})
    OUTPUT.write_text(json.dumps(fixture, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
