"""Makes every fixture anew with the installed packages and compares it with the committed one.

    python3 tests/reference/compare_fixtures.py [SCRIPT...]     # models/make_lora_fixtures.py, ...

The scripts run in a copy of this folder, so that nothing here changes. Whatever is no fraction has to be
equal, and so do fractions but for those of the scripts in ROUNDED: on another processor, other kernels add
up in another order. Exit code 1 if anything differs.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

FOLDER = pathlib.Path(__file__).resolve().parent
# Whose fractions may differ, and by how much, relative to the largest of their list. Sums in float64 have
# 16 digits; the files keep 8 to 17 of them.
FLOAT64 = 1e-7
ROUNDED = {
    "make_choice_fixtures.py": FLOAT64, "make_config_fixtures.py": 1e-6,  # of frequencies in fp32
    "make_expert_fixtures.py": FLOAT64, "make_kto_fixtures.py": FLOAT64, "make_lora_fixtures.py": FLOAT64,
    "make_model_fixtures.py": FLOAT64, "make_optimizer_fixtures.py": FLOAT64, "make_parity_fixtures.py": FLOAT64,
    "make_preference_fixtures.py": FLOAT64, "make_schedule_fixtures.py": FLOAT64,
    "make_router_fixtures.py": FLOAT64, "make_sequential_unlearning_fixtures.py": FLOAT64,
    "make_unlearning_fixtures.py": FLOAT64,
    "make_gguf_model_fixtures.py": FLOAT64, "make_state_space_fixtures.py": FLOAT64,
    # How far bf16 is from float64: rounding errors themselves, of whole gradients.
    "make_bf16_fixtures.py": 0.3,
}
# Where the true value is 0 float64 leaves such a rest: of the router's gradient where the one chosen expert's
# weight is always 1.
SMALLEST = 1e-9
# Of a single number in bf16 the error may come out as anything.
NOT_COMPARED = {"models_bf16.json": "/loss"}


def numbers(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def distances(wanted, found, where, largest=0.0):
    """The distance of each pair of fractions, by place; infinity where anything else differs."""
    if numbers(wanted) and numbers(found) and float in (type(wanted), type(found)):
        scale = max(largest, abs(wanted), abs(found), SMALLEST)
        yield (0.0 if wanted == found else abs(wanted - found) / scale), where
    elif type(wanted) is not type(found):
        yield float("inf"), where
    elif isinstance(wanted, dict):
        if wanted.keys() != found.keys():
            yield float("inf"), f"{where}: {sorted(wanted.keys() ^ found.keys())}"
        for key in wanted.keys() & found.keys():
            yield from distances(wanted[key], found[key], f"{where}/{key}")
    elif isinstance(wanted, list):
        if len(wanted) != len(found):
            yield float("inf"), f"{where}: {len(found)} instead of {len(wanted)}"
        largest = max((abs(each) for each in wanted if numbers(each)), default=0.0)
        for number, pair in enumerate(zip(wanted, found)):
            yield from distances(*pair, f"{where}/{number}", largest)
    elif wanted != found:
        yield float("inf"), where


def compare(committed, made):
    """(how many fractions, the largest distance, where) of two files."""
    pair = [json.loads(file.read_text(encoding="utf-8")) for file in (committed, made)]
    left_out = NOT_COMPARED.get(made.name)
    found = [each for each in distances(*pair, "") if not (left_out and each[1].endswith(left_out))]
    return len(found), *max(found, default=(0.0, ""))


def judge(script, made):
    """How many of the script's files are as committed, rounded, and different."""
    counts = {"equal": 0, "rounded": 0, "different": 0}
    for file in sorted(made):
        committed = FOLDER / "fixtures" / file.name
        allowed = ROUNDED.get(pathlib.Path(script).name, 0.0)
        if not committed.exists():
            how, text = "different", "is not committed"
        elif committed.read_bytes() == file.read_bytes():
            how, text = "equal", "the same bytes"
        else:
            fractions, furthest, where = compare(committed, file)
            how = "rounded" if furthest <= allowed else "different"
            text = f"{furthest:.1e} apart at {where}, of {fractions} fractions; {allowed:.0e} are allowed"
        counts[how] += 1
        print(f"{script}: {file.name}: {how}: {text}", flush=True)
    return counts


def main():
    scripts = sys.argv[1:] or sorted(str(file.relative_to(FOLDER)) for file in FOLDER.glob("*/make_*_fixtures.py"))
    total = {"equal": 0, "rounded": 0, "different": 0}
    seen = set()
    with tempfile.TemporaryDirectory() as name:
        copy = pathlib.Path(name)
        for file in FOLDER.glob("*/*.py"):
            (copy / file.parent.name).mkdir(exist_ok=True)
            shutil.copy(file, copy / file.parent.name)
        for script in scripts:
            shutil.rmtree(copy / "fixtures", ignore_errors=True)
            (copy / "fixtures").mkdir()
            begin = time.monotonic()
            # One thread adds up in one order, and is enough for models of this size.
            subprocess.run([sys.executable, copy / script], check=True, stdout=subprocess.DEVNULL,
                           env={**os.environ, "OMP_NUM_THREADS": "1"})
            made = list((copy / "fixtures").iterdir())
            seen |= {file.name for file in made}
            for how, count in judge(script, made).items():
                total[how] += count
            print(f"{script}: {time.monotonic() - begin:.0f} s", flush=True)
    orphans = {file.name for file in (FOLDER / "fixtures").iterdir()} - seen if not sys.argv[1:] else set()
    for name in sorted(orphans):
        print(f"{name}: no script makes it")
    print(f"{len(seen)} files of {len(scripts)} scripts: {total['equal']} the same bytes, {total['rounded']} "
          f"within rounding, {total['different'] + len(orphans)} different")
    return 1 if total["different"] or orphans else 0


if __name__ == "__main__":
    sys.exit(main())
