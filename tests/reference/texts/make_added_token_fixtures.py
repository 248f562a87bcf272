"""Writes fixtures/added_tokens.json: small tokenizers whose turns are marked by tokens that the files beside
them name, and the ids and texts of transformers. Needs PyPI's transformers==5.23.0, sentencepiece==0.2.3,
tokenizers==0.23.3 and protobuf.
"""

import base64
import io
import json
import pathlib
import random
import tempfile

import sentencepiece
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

OUTPUT = pathlib.Path(__file__).resolve().parents[1] / "fixtures/added_tokens.json"

CORPUS = [
    "The ship left the harbour before the sun had risen over the quiet water.",
    "She said that the other letters were all about the weather, and that they had come late.",
    "user system assistant: how are you? I am well; and you?",
] * 20

LETTERS = [" ", " ", "  ", "\n", ".", "the", " the", "The ship", "water", "user", "<|im_start|>", "<|im_end|>", "<x>", "<s>",
           "</s>", "<unk>", "é", "船"]


def pieces(**rules):
    """As Llama's: no character is changed, unless `rules` say so."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=model, vocab_size=380, minloglevel=2, model_type="bpe",
        byte_fallback=True, **(rules or {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}))
    return {"tokenizer.model": model.getvalue()}


def trained():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=340, show_progress=False, special_tokens=["<|endoftext|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    return tokenizer


def two_files():
    model = json.loads(trained().to_str())["model"]
    merges = "\n".join(["#version: 0.2", *(" ".join(pair) for pair in model["merges"])]) + "\n"
    return {"vocab.json": json.dumps(model["vocab"]).encode(), "merges.txt": merges.encode()}


def one_file():
    return {"tokenizer.json": trained().to_str().encode()}


def token(content, **flags):
    return {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
            "special": True, **flags}


def decoder(first, *tokens):
    return {"added_tokens_decoder": {str(first + i): one for i, one in enumerate(tokens)}}


PIECES = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
          "legacy": False}
# Of each kind of tokenizer: its files, how many tokens it has, and what its configuration says besides.
KINDS = {
    "pieces": (pieces, 380, PIECES),
    "changing_pieces": (lambda: pieces(normalization_rule_name="nmt_nfkc"), 380, PIECES),
    "two_files": (two_files, 340, {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|endoftext|>"}),
    "two_files_of_gpt2": (two_files, 340, {"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>"}),
    "one_file": (one_file, 340, {"tokenizer_class": "PreTrainedTokenizerFast"}),
}


def variants(first):
    """What lies beside: changes of tokenizer_config.json, and other files."""
    listed = {"<|im_start|>": first, "<|im_end|>": first + 1, "<x>": first + 2}
    turns = [token("<|im_start|>"), token("<|im_end|>")]
    yield "listed", {}, {"added_tokens.json": listed}
    yield "listed, with names", {}, {"added_tokens.json": listed, "special_tokens_map.json": {"eos_token": "<|im_end|>"}}
    yield "listed, named", {"eos_token": "<|im_end|>"}, {"added_tokens.json": listed}
    yield "decoder", decoder(first, *turns, token("<x>", special=False)), {}
    yield "decoder and list", decoder(first, *turns), {"added_tokens.json": listed}
    yield "decoder strips", decoder(first, token("<|im_start|>", rstrip=True), token("<|im_end|>", lstrip=True),
                                    token("<x>", special=False, normalized=True)), {}
    yield "named alone", {"eos_token": "<|im_end|>", "pad_token": "<x>"}, {}
    yield "extra", {"extra_special_tokens": ["<|im_start|>", "<|im_end|>"]}, {}
    marked = {"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}
    yield "older name", marked, {"added_tokens.json": listed}
    yield "older name, both", {**marked, "extra_special_tokens": ["<x>"]}, {}
    yield "older name in the map", {}, {"added_tokens.json": listed, "special_tokens_map.json": marked}
    yield "older name in the map alone", {"eos_token": "<|im_end|>"}, {"special_tokens_map.json": marked}
    yield "map goes before", {"eos_token": "<x>", "pad_token": "<|im_start|>"}, {
        "special_tokens_map.json": {"eos_token": {"content": "<|im_end|>", "lstrip": True, "rstrip": False}}}
    yield "own names", {"turn_token": "<|im_start|>", "image_token": "<x>"}, {}
    yield "own names, object", {"extra_special_tokens": {"turn_token": "<|im_start|>", "a_token": "<x>"}}, {}
    yield "objects are not special", {"extra_special_tokens": [{"__type": "AddedToken", **token("<x>", special=False)},
                                                               {"__type": "AddedToken", **token("<|im_start|>")}]}, {}
    yield "framed", {"add_bos_token": True, "add_eos_token": True}, {}
    yield "framed by others", {"add_bos_token": True, "add_eos_token": True, "bos_token": "<|im_start|>",
                               "eos_token": "<|im_end|>"}, {}
    yield "space before", {"add_prefix_space": True}, {}
    yield "before each part", {"legacy": True, **decoder(first, *turns, token("<x>", special=False))}, {}


def texts():
    rng = random.Random(11)
    fixed = ["<|im_start|>user\nhello<|im_end|>\n", " <x> y", "the<x>y  <x>  z", "<x>", "<x><|im_start|><x> the"]
    return fixed + ["".join(rng.choices(LETTERS, k=rng.randint(1, 12))) for _ in range(60)]


def write(folder, files):
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())


def reference(files, lines):
    with tempfile.TemporaryDirectory() as name:
        write(pathlib.Path(name), files)
        tokenizer = transformers.AutoTokenizer.from_pretrained(name)
    ids = [tokenizer(line, add_special_tokens=False).input_ids for line in lines]
    framed = tokenizer(lines[0]).input_ids
    at = len(framed) - len(ids[0])
    begins = framed[:at] if framed[at:] == ids[0] else framed[:at - 1]
    return {"end": tokenizer.eos_token_id, "ids": ids, "before": begins, "after": framed[len(begins) + len(ids[0]):],
            "decoded": [tokenizer.decode(line, skip_special_tokens=True) for line in ids]}


def main():
    lines = texts()
    fixture = {"version": transformers.__version__, "texts": lines, "kinds": {}}
    for kind, (make, first, config) in KINDS.items():
        files = make()
        cases = []
        for name, changes, beside in variants(first):
            if name == "before each part" and "pieces" not in kind or name == "space before" and "two" not in kind:
                continue
            beside = {"tokenizer_config.json": {**config, **changes}, **beside}
            found = reference({**files, **beside}, lines)
            if kind == "changing_pieces":  # SentencePiece, whose texts are kept, drops all spaces at a beginning
                del found["decoded"]
            cases.append({"name": name, "beside": {file: json.dumps(one) for file, one in beside.items()}, **found})
        fixture["kinds"][kind] = {
            "files": {name: base64.b64encode(content).decode() for name, content in files.items()}, "cases": cases}
    OUTPUT.write_text(json.dumps(fixture, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
