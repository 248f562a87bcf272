#!/usr/bin/env python3
"""tidy.py BUILD [FOLDER]...: runs clang-tidy, with the checks of .clang-tidy, on the sources of folders
(default: the product's) as the build directory compiles them: those of one piece together, which takes
a fifth of the time. Exit code 1 if it finds something."""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^#include "(/.*\.cpp)"$', re.MULTILINE)
# Options of GCC alone, precompiled headers, which Clang cannot read, and names that another file of a piece
# uses too; with 1, the next word as well.
DROPPED = {"-fpch-preprocess": 0, "-Winvalid-pch": 0, "-Werror": 0, "-Wshadow": 0, "--param": 1, "-include": 1}


def clang_arguments(command):
    kept, skipped = [], 0
    for word in shlex.split(command):
        if skipped:
            skipped -= 1
        elif word in DROPPED:
            skipped = DROPPED[word]
        else:
            kept.append(word)
    return kept


def product_folders():
    lines = (ROOT / "CMakeLists.txt").read_text()
    return re.findall(r"^add_subdirectory\((\w+)\)", lines, re.MULTILINE)


def inside(source, folders):
    path = os.path.relpath(source, ROOT)
    return any(path.startswith(folder.rstrip("/") + "/") for folder in folders)


def commands(build, folders):
    """The compile commands: a unity file's is for all that it includes, or for each that lies in the folders."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if entry["file"].endswith(".cu"):
            continue  # of a CUDA that it does not read
        path = pathlib.Path(entry["file"])
        unity = path.name.startswith("unity_") and path.is_file()
        sources = INCLUDE.findall(path.read_text()) if unity else [str(path)]
        wanted = [source for source in sources if inside(source, folders)]
        for source in [str(path)] if unity and wanted == sources else wanted:
            arguments = [source if word == entry["file"] else word
                         for word in clang_arguments(entry["command"])]
            found.setdefault(source, {"directory": entry["directory"], "file": source,
                                      "arguments": arguments})
    return found


def version(program):
    """Its first number; 0: there is no such program."""
    if shutil.which(program) is None:
        return 0
    said = re.search(r"version (\d+)", subprocess.run([program, "--version"], capture_output=True, text=True).stdout)
    return int(said[1]) if said else 0


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    program = next((name for name in ("clang-tidy-16", "clang-tidy") if version(name) >= 16), None)
    if program is None:
        sys.exit("tidy.py: no clang-tidy of version 16 or later; apt-get install clang-tidy-16")
    build = pathlib.Path(sys.argv[1]).resolve()
    found = commands(build, sys.argv[2:] or product_folders())
    database = build / "tidy"
    database.mkdir(exist_ok=True)
    (database / "compile_commands.json").write_text(json.dumps(list(found.values())))

    def check(source):
        run = subprocess.run([program, "--quiet", "-p", str(database), source],
                             capture_output=True, text=True)
        return run.returncode, run.stdout + ("" if run.returncode == 0 else run.stderr)

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        for source, (code, text) in zip(sorted(found), threads.map(check, sorted(found))):
            failed += code != 0
            print(text if code else f"{os.path.relpath(source, ROOT)}: clean", flush=True)
    sys.exit(f"tidy.py: findings in {failed} of {len(found)} sources or pieces" if failed else 0)


if __name__ == "__main__":
    main()
