"""What the tests share: a text's tokens and a run file of a tiny model. The program is the one of the package, or of
the PATH."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Callable

import pytest

import actortrain as at

SEED = 20251128

RUN_FILE = """\
[run]
name = "tiny"
dir = "{folder}/runs"
steps = 6

[model]
arch = "enoki"
layers = 2
heads = 2
head_dim = 16

[data]
dir = "{data}"
sequence_length = 32

[batch]
lanes = 2
micro_batch = 2

[runtime]
threads = 1

[schedule]
name = "constant"
warmup_steps = 0

[eval]
interval_steps = 3

[checkpoint]
interval_steps = 2
"""


def comes_true(condition: Callable[[], bool], limit_s: float = 300) -> bool:
    """Waits for a state that nothing tells of: a file of another process. False after `limit_s`."""
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            return condition()
        time.sleep(0.01)
    return True


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    print(f"seed {SEED}")
    numbers = random.Random(SEED)
    words = ["one", "two", "three", "four", "five"]
    texts = [" ".join(numbers.choice(words) for _ in range(200)) for _ in range(40)]
    return at.prepare(texts, tmp_path_factory.mktemp("data") / "tokens", tokenizer="bytes")


@pytest.fixture
def run_file(tmp_path: Path, data: Path) -> Path:
    file = tmp_path / "tiny.toml"
    file.write_text(RUN_FILE.format(folder=tmp_path, data=data))
    return file
