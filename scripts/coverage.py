#!/usr/bin/env python3
"""coverage.py BUILD [PATH]...: says how many lines of sources have run, of a build with ACTORTRAIN_COVERAGE
whose tests have run: lines, percent and the numbers of those that did not, a file a row, and of each folder
together (default: the folders that guard the promises of README.md). Not counted: what a process did that
was killed or left by _Exit, as ranks of their own do."""

import collections
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
GUARDS = ["engine/collective", "engine/sharding", "checkpoint/save", "checkpoint/load", "run/recovery",
          "run/directory", "storage/files"]


def counts_of(notes):
    """[(source, line, count)] of one compiled piece; a piece that never ran has counts of 0."""
    run = subprocess.run(["gcov", "--json-format", "--stdout", str(notes)], cwd=notes.parent,
                         capture_output=True, text=True, check=True)
    return [(file["file"], line["line_number"], line["count"])
            for text in run.stdout.splitlines() for file in json.loads(text)["files"]
            for line in file["lines"]]


def read(build, paths):
    """{source: {line: count}}, summed over all pieces that have the line."""
    found = collections.defaultdict(collections.Counter)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        for counts in threads.map(counts_of, sorted(build.rglob("*.gcno"))):
            for source, line, count in counts:
                inside = os.path.relpath(os.path.join(ROOT, source), ROOT)
                if any(inside == path or inside.startswith(path + "/") for path in paths):
                    found[inside][line] += count
    return found


def ranges(lines):
    """"3-5 9" of 3, 4, 5, 9"""
    runs = []
    for line in lines:
        if runs and runs[-1][1] == line - 1:
            runs[-1][1] = line
        else:
            runs.append([line, line])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def row(name, lines, ran, rest=""):
    print(f"{100 * ran / max(lines, 1):5.1f} % {ran:5} of {lines:5}  {name}{rest}")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    paths = [path.rstrip("/") for path in sys.argv[2:]] or GUARDS
    found = read(pathlib.Path(sys.argv[1]).resolve(), paths)
    folders = collections.defaultdict(list)
    for source in sorted(found):
        folders[os.path.dirname(source)].append(source)
    for folder, sources in folders.items():
        row(folder, sum(len(found[source]) for source in sources),
            sum(count > 0 for source in sources for count in found[source].values()))
        for source in sources:
            missed = [line for line in sorted(found[source]) if not found[source][line]]
            row(f"  {os.path.basename(source)}", len(found[source]), len(found[source]) - len(missed),
                f": {ranges(missed)}" if missed else "")
    if not found:
        sys.exit(f"coverage.py: no counted source of {' '.join(paths)} in {sys.argv[1]}")


if __name__ == "__main__":
    main()
