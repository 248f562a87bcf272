"""Metrics in trackers, in their offline modes, read back: each step once, through resumes and repeated calls."""

from __future__ import annotations

import importlib
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import actortrain as at
from actortrain import _log


class Recorder:
    """A tracker that keeps what it is sent, in a list of all starts."""

    sent: list[tuple[int, dict[str, float]]] = []
    ids: list[Any] = []

    def __init__(self, project: str, name: str, config: dict[str, Any], known: Any) -> None:
        self.id = known or "number 1"
        Recorder.ids.append(known)
        self.config = config
        assert config["model.arch"] == "enoki" and config["batch.lanes"] == "2"

    def send(self, step: int, values: dict[str, float]) -> None:
        Recorder.sent.append((step, values))

    def close(self) -> None:
        pass


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> type[Recorder]:
    Recorder.sent, Recorder.ids = [], []
    monkeypatch.setitem(_log.TRACKERS, "wandb", Recorder)
    return Recorder


def test_each_step_is_sent_once(run_file: Path, recorder: type[Recorder]) -> None:
    run = at.run(run_file, set={"run.steps": 3}).wait()
    assert at.log(run, "wandb") == 5  # Three steps, evaluations at 0 and 3.
    assert at.log(run, "wandb") == 0
    at.run(run_file).wait()
    assert at.log(run, "wandb") == 4
    assert [step for step, values in recorder.sent if "loss" in values] == [1, 2, 3, 4, 5, 6]
    assert [step for step, values in recorder.sent if "val_loss" in values] == [0, 3, 6]
    assert recorder.ids == [None, "number 1", "number 1"]
    assert recorder.sent[0][1].keys() >= {"val_loss"} and "unit_grad_norm/head" in recorder.sent[1][1]
    assert recorder.sent[-1][1]["events/finished"] == 2


def test_lines_that_a_resumed_run_writes_again_are_not_sent_again(run_file: Path, recorder: type[Recorder]) -> None:
    run = at.run(run_file).wait()
    assert at.log(run, "wandb") == 9
    file = run.directory / "metrics.jsonl"
    file.write_bytes(file.read_bytes() * 2)
    assert at.log(run, "wandb") == 0


def test_it_follows_a_run_that_trains_to_its_end(run_file: Path, recorder: type[Recorder]) -> None:
    run = at.run(run_file, set={"run.steps": 50})
    assert at.log(run, "wandb") == 50 + 18
    assert run.wait().exit_code == 0
    assert [step for step, values in recorder.sent if "loss" in values] == list(range(1, 51))


def test_the_command_names_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _log.main([str(tmp_path), "--to", "wandb"]) == 2
    assert capsys.readouterr().err == f"error log: {tmp_path}: no directory of a run; it has no config.toml\n"


# A log of LevelDB's format behind a head of seven bytes: blocks of 32 KiB, of records with a checksum, a size and
# a kind: whole, first, middle or last.
READ_WANDB = """\
import json, struct, sys
from wandb.proto import wandb_internal_pb2
for path in sys.argv[1:]:
    data = open(path, "rb").read()
    place, whole = 7, b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, place)
        whole = (whole if kind in (3, 4) else b"") + data[place + 7:place + 7 + size]
        place += 7 + size
        if kind in (1, 4):
            record = wandb_internal_pb2.Record.FromString(whole)
            if record.WhichOneof("record_type") == "history":
                print(json.dumps({item.key or "/".join(item.nested_key): json.loads(item.value_json)
                                  for item in record.history.item}))
"""


def losses_of(run: at.Run) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in run.metrics("list") if "loss" in line}


def resumed_and_logged(run_file: Path, to: str) -> at.Run:
    """A run of six steps in two starts, logged after each, by the command."""
    at.run(run_file, set={"run.steps": 3}).wait()
    run = at.run(run_file)
    words = [sys.executable, "-m", "actortrain", "log", str(run.directory), "--to", to]
    for _ in range(2):
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        run.wait()
    return run


def test_wandb_has_each_step_once(run_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    run = resumed_and_logged(run_file, "wandb")
    files = [str(file) for file in sorted(tmp_path.rglob("*.wandb"))]
    said = subprocess.run([sys.executable, "-c", READ_WANDB, *files], check=True, stdout=subprocess.PIPE, text=True).stdout
    lines = [json.loads(line) for line in said.splitlines()]
    losses = [(line["step"], line["loss"]) for line in lines if "loss" in line]
    assert len(losses) == 6 and dict(losses) == losses_of(run)


def test_mlflow_has_each_step_once(run_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    place = (tmp_path / "mlruns").as_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", place)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    run = resumed_and_logged(run_file, "mlflow")
    client = importlib.import_module("mlflow.tracking").MlflowClient(place)
    known = json.loads((run.directory / "logged_mlflow.json").read_text())["id"]
    history = client.get_metric_history(known, "loss")
    assert len(history) == 6 and {one.step: one.value for one in history} == losses_of(run)
    assert client.get_run(known).data.params["model.arch"] == "enoki"


def test_trackio_has_each_step_once(run_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trackio")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    run = resumed_and_logged(run_file, "trackio")
    with sqlite3.connect(tmp_path / "trackio/actortrain.db") as base:
        rows = [(step, json.loads(text)) for step, text in base.execute("SELECT step, metrics FROM metrics")]
    losses = [(step, values["loss"]) for step, values in rows if "loss" in values]
    assert len(losses) == 6 and dict(losses) == losses_of(run)
