"""How fast PyPI's tokenizers encodes a text file with a tokenizer.json, on one thread.

    RAYON_NUM_THREADS=1 python3 bench/peers/tokenizers_speed.py TOKENIZER_JSON TEXT [DOCUMENT_BYTES]

The text is cut as bench_tokenizer cuts it.
"""

import sys
import time

from tokenizers import Tokenizer, __version__


def documents(text, size):
    at = 0
    while at < len(text):
        end = text.find(b"\n", at + min(size, len(text) - at - 1))
        end = len(text) if end < 0 else end + 1
        yield text[at:end].decode("utf-8", "replace")
        at = end


def main():
    begin = time.time()
    tokenizer = Tokenizer.from_file(sys.argv[1])
    print(f"tokenizers {__version__}: load {time.time() - begin:.3f} s")
    with open(sys.argv[2], "rb") as file:
        text = file.read()
    parts = list(documents(text, int(sys.argv[3]) if len(sys.argv) > 3 else 4096))
    begin = time.time()
    for part in parts:
        tokenizer.encode(part, add_special_tokens=False)
    print(f"1 thread: {len(text) / (time.time() - begin) / 1e6:.2f} MB/s")


if __name__ == "__main__":
    main()
