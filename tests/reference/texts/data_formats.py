"""Compares the rows that `actortrain data prepare` makes of the same conversations with tools: as JSON lines,
compressed, under names of other kinds, as an array, and as structs of Parquet, in which each has every member
that another one has, as null.

    python3 tests/reference/texts/data_formats.py build/release/actortrain

Needs PyPI's tokenizers, transformers, jinja2 and pyarrow. Prints what differs, and counts; exit code 1 if
anything does.
"""

import gzip
import json
import lzma
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import pyarrow
import pyarrow.parquet

import chat_oracle
from chat_conversations import WEATHER, SEARCH, call, result, say
from make_mask_fixtures import TEMPLATES
from mask_check import tokenizer_of

COUNT = 200
PARTS = ["tokens", "mask", "documents", "segments", "rows"]


def conversations():
    """Calls of two functions with arguments that the other does not have, answers with and without thoughts."""
    chance = random.Random(5)
    for number in range(COUNT):
        messages = say(("s", "Be brief.")) if number % 4 == 0 else []
        messages += say(("u", f"Question {number}?"))
        if number % 3 != 0:
            city = {"city": chance.choice(["Oslo", "Rome"]), "units": "metric"}
            query = {"query": f"wind {number}", "filters": {"exact": number % 2 == 0}}
            name, arguments = ("get_weather", city) if number % 3 == 1 else ("search", query)
            messages += [call((name, arguments), content=None), result(f"{number}", name)]
        answer = {"role": "assistant", "content": f"Answer {number}."}
        messages.append(dict(answer, reasoning_content=f"Hm {number}.") if number % 5 == 0 else answer)
        yield {"messages": messages, "tools": [WEATHER, SEARCH]}


def rows(program, folder, name):
    """The bytes of each part, and the report without names of files."""
    out = folder / ("out-" + name)
    words = [program, "data", "prepare", "--input", folder / name, "--out", out, "--tokenizer", folder,
             "--row-length", "4096", "--val-fraction", "0", "--date", chat_oracle.DATE]
    environment = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        return {"error": done.stderr.strip()}
    return {part: (out / f"train.{part}").read_bytes() for part in PARTS}


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    lines = list(conversations())
    different = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = "".join(json.dumps(line) + "\n" for line in lines)
        source = TEMPLATES["keeps_last_thoughts"].replace("{%- set ns", "{{ tools | tojson }}{%- set ns", 1)
        tokenizer_of(source, folder, [text])
        (folder / "chat_template.jinja").write_text(source)
        (folder / "a.jsonl").write_text(text)
        (folder / "b.jsonl.gz").write_bytes(gzip.compress(text.encode()))
        (folder / "d.txt").write_bytes(gzip.compress(text.encode()))
        (folder / "e.data").write_bytes(lzma.compress(text.encode()))
        (folder / "f").write_text(json.dumps(lines))
        (folder / "g.json").write_text(json.dumps(lines, indent=2))
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(lines), folder / "c.parquet")
        (folder / "h.bin").write_bytes((folder / "c.parquet").read_bytes())
        wanted = rows(program, folder, "a.jsonl")
        others = ["b.jsonl.gz", "c.parquet", "d.txt", "e.data", "f", "g.json", "h.bin"]
        for other in others:
            found = rows(program, folder, other)
            wrong = [part for part in wanted if found.get(part) != wanted[part]]
            different += bool(wrong) or "error" in wanted
            if wrong:
                print(f"{other}: {', '.join(wrong)} differ: {found.get('error', '')}")
    print(f"{len(lines)} conversations in {1 + len(others)} files, {different} different")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
