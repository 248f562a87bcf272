"""Compares the text that generate shows behind a prompt with what the reference decodes of prompt and answer, less
what it decodes of the prompt, token by token and at once, for every tokenizer of tokenizer_sweep.py.

    python3 tests/reference/texts/decode_sweep.py build/release/actortrain [--texts COUNT] [NAME...]

Needs what tokenizer_sweep.py needs. Prints a row for each, and counts; exit code 1 if anything differs.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from tokenizer_sweep import TOKENIZERS, Hugging, code_points, emoji, mixed_text, random_strings

# What models write: indented, with numbers, and longer than what is remembered while it is shown.
CODE = ["def f(n):\n    if n < 2:\n        return n\n", "  - a list\n    - in a list\n", "\t\tx = 1;\n\n\n    y\n", "The quick brown fox. ",
        "1. One,  two,   three\r\n", "a\u00a0b \u3000c\n ", "\U0001f469\u200d\U0001f4bb and \u4f60\u597d\n"]


def texts_of(draw, count):
    several = ["".join(draw.choice(CODE) for _ in range(draw.randint(1, 40))) for _ in range(count // 4)]
    others = [*mixed_text(draw, count // 4), *random_strings(draw, count * 3 // 8), *list(emoji(draw))[:count // 8],
              *draw.sample(list(code_points()), 200)]
    draw.shuffle(others)
    return (several + others)[:count]


def cases_of(draw, tokenizer, texts):
    """Prompts are texts, too: ids of a first part, and those of the whole behind them where they begin with those."""
    cuts = [draw.randint(0, len(text)) for text in texts]
    wholes = tokenizer.encode(texts)
    firsts = tokenizer.encode([text[:cut] for text, cut in zip(texts, cuts, strict=True)])
    for whole, first in zip(wholes, firsts, strict=True):
        shared = 0
        while shared < min(len(whole), len(first)) and whole[shared] == first[shared]:
            shared += 1
        yield whole[:shared], whole[shared:]


def by_program(program, tokenizer, cases):
    lines = "".join(json.dumps({"prompt": prompt, "ids": ids}) + "\n" for prompt, ids in cases)
    run = subprocess.run([program, "detokenize", "--jsonl", "--pieces", "--tokenizer", str(tokenizer.path)], input=lines,
                         capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr.strip())
    return ["".join(json.loads(line)["pieces"]) for line in run.stdout.split("\n") if line]


def decoded(tokenizer, lists):
    """Without special tokens, which generate does not show."""
    if isinstance(tokenizer, Hugging):
        return [tokenizer.tokenizer.decode(ids, skip_special_tokens=True) for ids in lists]
    return tokenizer.decode(lists)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--texts", type=int, default=10000)
    options = parser.parse_intermixed_args()
    total = {"tokenizers": 0, "texts": 0, "cut characters": 0, "different": 0}
    print("| tokenizer | texts | prompts that cut a character | different | s |\n|---|---|---|---|---|")
    for name in options.names or TOKENIZERS:
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = TOKENIZERS[name](pathlib.Path(folder))
            draw = random.Random(name)
            begin = time.time()
            cases = list(cases_of(draw, tokenizer, texts_of(draw, options.texts)))
            shown = by_program(options.program, tokenizer, cases)
            prompts = decoded(tokenizer, [prompt for prompt, _ in cases])
            wholes = decoded(tokenizer, [prompt + ids for prompt, ids in cases])
            cut = different = 0
            for case, prompt, whole, text in zip(cases, prompts, wholes, shown, strict=True):
                if not whole.startswith(prompt):  # its last bytes become a character only with the next ones
                    cut += 1
                elif text != whole[len(prompt):]:
                    different += 1
                    if different <= 3:
                        print(f"{name}: {case}: {text!r}, not {whole[len(prompt):]!r}")
            for what, count in (("tokenizers", 1), ("texts", len(cases)), ("cut characters", cut), ("different", different)):
                total[what] += count
            print(f"| {name} | {len(cases)} | {cut} | {different} | {time.time() - begin:.0f} |", flush=True)
    print(", ".join(f"{count} {what}" for what, count in total.items()))
    return 1 if total["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
