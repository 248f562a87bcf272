"""The schema of `actortrain config schema` against jsonschema: every run file that is shipped is valid, and
what the program refuses in one is not: a misspelt key or section, a value of another kind, out of its
range or none of the choices.
"""

import copy
import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import jsonschema

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = str(Path(sys.argv[1]).resolve())


def schema():
    said = subprocess.run([PROGRAM, "config", "schema"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(said)


def program_accepts(key, value, run_file, folder):
    """Whether the program reads a file with one more key: what it says otherwise names the key, or the section."""
    section, name = key.split(".")
    text = run_file.read_text()
    tables = tomllib.loads(text)
    tables.setdefault(section, {})[name] = value
    file = folder / "changed.toml"
    lines = []
    for table, values in tables.items():
        lines.append(f"[{table}]")
        lines += [f"{one} = {json.dumps(given)}" for one, given in values.items()]
    file.write_text("\n".join(lines) + "\n")
    said = subprocess.run([PROGRAM, "plan", "--vocab", "257", str(file)], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, cwd=folder)
    return said.returncode == 0 or not any(word in said.stderr for word in (key, f'"{section}"'))


def main():
    document = schema()
    jsonschema.Draft7Validator.check_schema(document)
    validator = jsonschema.Draft7Validator(document)
    files = [file for file in sorted((ROOT / "configs").glob("*.toml")) if file.stem != "scaling_rules"]
    assert len(files) >= 10, files
    for file in files:
        errors = [error.message for error in validator.iter_errors(tomllib.loads(file.read_text()))]
        assert not errors, f"{file.name}: {errors}"
    base = ROOT / "configs/tiny_cpu.toml"
    checked = 0
    wrong = [("optimizer.lrr", 1e-3), ("optimiser.lr", 1e-3), ("optimizer.lr", "high"), ("optimizer.lr", -1.0),
             ("run.steps", 0), ("run.steps", 2.5), ("run.name", 3), ("parallel.strategy", "fsdp"),
             ("data.sequence_length", [1]), ("parallel.sync", "first"), ("parallel.sync", 0)]
    right = [("optimizer.lr", 1), ("run.steps", 3), ("parallel.sync", "last_lane"), ("parallel.sync", 2),
             ("parallel.strategy", "full"), ("train.freeze", "head"), ("train.freeze", ["head"])]
    with tempfile.TemporaryDirectory() as folder:
        for key, value in wrong + right:
            tables = copy.deepcopy(tomllib.loads(base.read_text()))
            section, name = key.split(".")
            tables.setdefault(section, {})[name] = value
            valid = validator.is_valid(tables)
            accepts = program_accepts(key, value, base, Path(folder))
            assert valid == accepts == ((key, value) in right), f"{key} = {value!r}: schema {valid}, program {accepts}"
            checked += 1
    print(f"schema: {len(files)} run files are valid, {checked} changed ones as the program says")


if __name__ == "__main__":
    sys.exit(main())
