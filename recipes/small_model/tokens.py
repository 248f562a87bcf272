"""A tokenizer of bytes and words."""

import json

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_letters():
    """Letters by which byte-level tokenizers write bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain}, **{byte: chr(256 + i) for i, byte in enumerate(other)}}


def write_tokenizer(directory, words):
    """Byte-level BPE in which each of the words, with a space before it, is one token. Returns its size."""
    letters = byte_letters()
    vocab = {letters[byte]: byte for byte in range(256)}
    merges = []
    for word in words:
        pieces = [letters[byte] for byte in (" " + word).encode()]
        while len(pieces) > 1:
            left, right = pieces[0], pieces[1]
            if left + right not in vocab:
                vocab[left + right] = len(vocab)
                merges.append([left, right])
            pieces[:2] = [left + right]
    added = [{"id": len(vocab) + i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for i, token in enumerate(SPECIAL)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
                 "added_tokens": added, "pre_tokenizer": byte_level, "decoder": byte_level,
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                           "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                           "ignore_merges": False, "vocab": vocab, "merges": merges}}
    directory.mkdir(exist_ok=True)
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": SPECIAL[0], "tokenizer_class": "PreTrainedTokenizerFast"}))
    return len(vocab) + len(SPECIAL)
