"""The examples of docs/python.md run as they stand, in an empty directory, and once more there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_examples_run_twice(tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 2
    path = os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
    printed: list[list[str]] = []
    for _ in range(2):
        for example in examples:
            ended = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path},
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert ended.returncode == 0, ended.stderr
            printed.append(ended.stdout.splitlines())
    first, error, again, error_again = printed
    assert any(line.startswith("100 ") for line in first)
    assert not any(line.startswith("100 ") for line in again) and again == first[-len(again):]
    # Printed as its comment says.
    said = [line.partition("# ")[2] for line in examples[1].splitlines() if "print(" in line]
    assert error == error_again == said
