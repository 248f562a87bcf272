"""What the recipes' scripts share: numbers that are the same in every version of Python, the text
that comes with the program, and the call of the program. Python 3.6 or later, as enterprise Linux has it."""

import bz2
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


class Numbers:
    """Whole numbers of a seed: a linear congruential generator of 64 bits, of which the upper 32 are used."""

    def __init__(self, seed):
        self.state = seed

    def below(self, end):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 32) * end >> 32

    def choice(self, items):
        return items[self.below(len(items))]

    def sample(self, items, count):
        """So many of them, each at most once, in random order."""
        rest = list(items)
        return [rest.pop(self.below(len(rest))) for _ in range(count)]


def call(*words):
    """Runs the program, sys.argv[1], in this directory; ends this script if it fails."""
    done = subprocess.run([sys.argv[1], *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, encoding="utf-8", errors="replace")
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        sys.exit(done.returncode if done.returncode > 0 else 1)


def write_lines(name, items):
    """A file of JSON lines."""
    pathlib.Path(name).write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")


def write_king_james(name):
    """The King James Version, a document a chapter, with two empty lines between them: the file of the
    package, or in a source tree what scripts/quickstart_text.sh makes."""
    packed = HERE.parent / "quickstart.txt.bz2"
    if packed.is_file():
        pathlib.Path(name).write_bytes(bz2.decompress(packed.read_bytes()))
        return
    installed = HERE.parent / "quickstart.txt"
    if installed.is_file():
        pathlib.Path(name).write_bytes(installed.read_bytes())
        return
    script = HERE.parent / "scripts/quickstart_text.sh"
    if not script.is_file():
        print(f"neither {packed}, the text that comes with a package, nor {script}", file=sys.stderr)
        sys.exit(2)
    if subprocess.run([script, name]).returncode != 0:
        sys.exit(2)


def prepare(source, out, tokenizer, *more):
    call("data", "prepare", "--input", source, "--tokenizer", tokenizer, "--out", out, "--force", *more)
