"""The Python package by its own tests: mypy --strict and pytest, in an environment of what
python/tests/requirements.txt pins, build/python_tests.

usage: python_check.py PROGRAM
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "python"
PINS = PYTHON / "tests/requirements.txt"
HOME = ROOT / "build/python_tests"


def environment_is_there():
    """The list of what is installed comes last: an environment that was left half made has none."""
    kept = HOME / "requirements.txt"
    if kept.is_file() and kept.read_bytes() == PINS.read_bytes():
        return True
    shutil.rmtree(HOME, ignore_errors=True)
    made = subprocess.run([sys.executable, "-m", "venv", HOME]).returncode == 0 and subprocess.run(
        [HOME / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
         "--requirement", PINS]).returncode == 0
    if made:
        shutil.copy(PINS, kept)
    return made


def main():
    if not environment_is_there():
        print(f"what {PINS} pins cannot be installed; is there a network?")
        return 77
    path = os.pathsep.join([str(Path(sys.argv[1]).resolve().parent), os.environ.get("PATH", "")])
    settings = {**os.environ, "PATH": path, "PYTHONPATH": str(PYTHON), "PYTHONDONTWRITEBYTECODE": "1"}
    python = HOME / "bin/python"
    types = subprocess.run([python, "-m", "mypy", "--cache-dir", os.devnull, "actortrain", "tests"], cwd=PYTHON, env=settings)
    tests = subprocess.run([python, "-m", "pytest", "-q", "--tb=short"], cwd=PYTHON, env=settings)
    print("python: mypy --strict, and pytest with tables of pandas and polars, and with wandb, mlflow and trackio, offline")
    return 1 if types.returncode or tests.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
