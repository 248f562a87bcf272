"""Sends a run's metrics to a tracker: Weights & Biases, MLflow or Trackio."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any, Iterator, Optional, Protocol

from ._commands import Target, _path, call
from ._errors import ActorTrainError

_LOOK_S = 0.5  # Between two looks at the files of a run that trains.
_QUIET_LOOKS = 6  # So many without a new line, and the run's status is asked whether it is over.
_LAST_LOOK = 120  # So many, and a run that has no status is taken for one that never began.


class Tracker(Protocol):
    id: str

    def send(self, step: int, values: dict[str, float]) -> None: ...

    def close(self) -> None: ...


class _Wandb:
    def __init__(self, project: str, name: str, config: dict[str, Any], known: Optional[str]) -> None:
        wandb = importlib.import_module("wandb")
        self._run: Any = wandb.init(project=project, name=name, config=config, id=known, resume="allow")
        # Its own steps only grow, and what comes late for one is dropped: evaluations may.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")
        self.id: str = self._run.id

    def send(self, step: int, values: dict[str, float]) -> None:
        self._run.log({"step": step, **values})

    def close(self) -> None:
        self._run.finish()


class _Mlflow:
    def __init__(self, project: str, name: str, config: dict[str, Any], known: Optional[str]) -> None:
        self._mlflow: Any = importlib.import_module("mlflow")
        if known is None:
            self._mlflow.set_experiment(project)
            run = self._mlflow.start_run(run_name=name)
            for key, value in config.items():
                self._mlflow.log_param(key, value)
        else:
            run = self._mlflow.start_run(run_id=known)
        self.id: str = run.info.run_id

    def send(self, step: int, values: dict[str, float]) -> None:
        self._mlflow.log_metrics(values, step=step)

    def close(self) -> None:
        self._mlflow.end_run()


class _Trackio:
    def __init__(self, project: str, name: str, config: dict[str, Any], known: Optional[str]) -> None:
        self._trackio: Any = importlib.import_module("trackio")
        self._trackio.init(project=project, name=known or name, config=config, resume="allow")
        self.id = known or name

    def send(self, step: int, values: dict[str, float]) -> None:
        self._trackio.log(values, step=step)

    def close(self) -> None:
        self._trackio.finish()


TRACKERS: dict[str, Any] = {"wandb": _Wandb, "mlflow": _Mlflow, "trackio": _Trackio}


def numbers_of(line: dict[str, Any]) -> dict[str, float]:
    """The numbers of a line of metrics, those of a part as "part/name"; lists and texts are left out."""
    found: dict[str, float] = {}
    for key, value in line.items():
        if isinstance(value, dict):
            found.update({f"{key}/{name}": one for name, one in numbers_of(value).items()})
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and key != "step":
            found[key] = value
    # MLflow allows no other characters.
    return {re.sub(r"[^\w\-. /]", "_", key): value for key, value in found.items()}


class _Sent:
    """What was sent of a run, in its directory: the newest step, that of each kind of evaluation."""

    def __init__(self, file: Path) -> None:
        self._file = file
        read = json.loads(file.read_text()) if file.is_file() else {}
        self.id: Optional[str] = read.get("id")
        self._steps: dict[str, int] = read.get("steps", {})

    def has(self, line: dict[str, Any]) -> bool:
        return bool(line["step"] <= self._steps.get(line.get("event", "step"), -1))

    def note(self, line: dict[str, Any]) -> None:
        self._steps[line.get("event", "step")] = line["step"]

    def keep(self) -> None:
        partial = self._file.with_suffix(".partial")
        partial.write_text(json.dumps({"id": self.id, "steps": self._steps}) + "\n")
        os.replace(partial, self._file)


class _Tail:
    """New whole lines of a file that grows, and that a resumed run cuts: then from the beginning."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = 0
        self._head = b""

    def lines(self) -> Iterator[dict[str, Any]]:
        try:
            with self._path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                before = max(self._place - len(self._head), 0)
                file.seek(before)
                if size < self._place or file.read(len(self._head)) != self._head:
                    self._place = 0
                    self._head = b""
                file.seek(self._place)
                content = file.read()
        except FileNotFoundError:
            return
        content = content[:content.rfind(b"\n") + 1]
        self._place += len(content)
        self._head = (self._head + content)[-256:]
        for line in content.splitlines():
            yield json.loads(line)


def _is_over(directory: Path) -> Optional[bool]:
    """None: the run has no status, as before its first step."""
    try:
        status: dict[str, Any] = json.loads(call(["status", str(directory), "--json"]))
    except ActorTrainError:
        return None
    return bool(status.get("condition") != "running")


def _config_of(directory: Path) -> dict[str, str]:
    """Keys of the run's config.toml with their values, as they are written there."""
    config: dict[str, str] = {}
    section = ""
    for line in (directory / "config.toml").read_text(encoding="utf-8").splitlines():
        if found := re.match(r"\[([\w.]+)\]", line):
            section = found[1]
        elif found := re.match(r"(\w+) = (.*)", line):
            config[f"{section}.{found[1]}"] = found[2].strip('"')[:500]
    return config


def log(target: Target, to: str, project: str = "actortrain", follow: bool = True) -> int:
    """Sends what was not sent yet: metrics, and `events/NAME`, how many events of a name there were. Follows
    a run that trains to its end, unless told not to. Returns how many lines were sent."""
    if to not in TRACKERS:
        raise ValueError(f"to is one of {', '.join(TRACKERS)}, not \"{to}\"")
    directory = Path(_path(target))
    if not (directory / "config.toml").is_file():
        raise FileNotFoundError(f"{directory}: no directory of a run; it has no config.toml")
    sent = _Sent(directory / f"logged_{to}.json")
    tracker: Tracker = TRACKERS[to](project, directory.name, _config_of(directory), sent.id)
    sent.id = tracker.id
    metrics, events = _Tail(directory / "metrics.jsonl"), _Tail(directory / "events.jsonl")
    counts: dict[str, float] = {}
    lines = quiet = 0
    over = not follow
    try:
        while True:
            for event in events.lines():
                name = "events/" + str(event["event"])
                counts[name] = counts.get(name, 0) + 1
            new = [line for line in metrics.lines() if not sent.has(line)]
            for number, line in enumerate(new):
                if not sent.has(line):  # A resumed run's file has the same again.
                    tracker.send(line["step"], {**numbers_of(line), **(counts if number == len(new) - 1 else {})})
                    sent.note(line)
                    lines += 1
            if new:
                sent.keep()
                quiet = 0
            if over:
                return lines
            quiet += 1
            if quiet % _QUIET_LOOKS == 1 and not new:
                ended = _is_over(directory)
                over = ended is True or (ended is None and quiet > _LAST_LOOK)
                if over:
                    continue  # Once more through the files, which are whole now.
            time.sleep(_LOOK_S)
    finally:
        tracker.close()


def main(words: list[str]) -> int:
    """actortrain log RUN --to TRACKER"""
    parser = argparse.ArgumentParser(prog="actortrain log", description="Send a run's metrics to a tracker.")
    parser.add_argument("run_directory", help="for example runs/quickstart")
    parser.add_argument("--to", required=True, choices=sorted(TRACKERS))
    parser.add_argument("--project", default="actortrain", help="name of the project; MLflow: of the experiment")
    parser.add_argument("--once", action="store_true", help="send what there is; do not follow the run")
    options = parser.parse_args(words)
    try:
        lines = log(options.run_directory, options.to, options.project, follow=not options.once)
    except ImportError as missing:
        print(f"error log: {missing}; install it: pip install {options.to}", file=sys.stderr)
        return 2
    except (OSError, ActorTrainError) as failed:
        print(f"error log: {failed}", file=sys.stderr)
        return 2 if isinstance(failed, FileNotFoundError) else 1
    except KeyboardInterrupt:
        return 75
    print(f"{lines} lines sent")
    return 0
