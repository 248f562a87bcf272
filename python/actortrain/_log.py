"""Sends a run's metrics to a tracker: Weights & Biases, MLflow or Trackio."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import fcntl
import importlib
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any, Callable, Iterable, Iterator, NoReturn, Optional, Protocol, TypeVar

from ._commands import Target, _path, call
from ._errors import ActorTrainError, Failure, Mistake
from ._lines import NewestSteps, object_of

_LOOK_S = 0.5  # Between two looks at the files of a run that trains.
_QUIET_LOOKS = 6  # So many without a new line, and the run's status is asked whether it is over.
_LAST_LOOK = 120  # So many, and a run that has no status is taken for one that never began.
_KEEP_LINES = 100  # So many lines are sent before the directory is told of them.

Made = TypeVar("Made")


class TrackerError(Exception):
    """What a tracker's package has raised, on one line."""


class Tracker(Protocol):
    id: str

    def send(self, step: int, values: dict[str, float]) -> None: ...

    def close(self) -> None: ...


class _Wandb:
    def __init__(self, project: str, directory: Path, config: dict[str, Any], known: Optional[str]) -> None:
        wandb = importlib.import_module("wandb")
        # A run of its own, also where this process has one: that would be returned, and closed at the end.
        self._run: Any = wandb.init(project=project, name=directory.name, config=config, id=known, resume="allow",
                                    reinit="create_new")
        # Its own steps only grow, and what comes late for one is dropped: evaluations may.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")
        self.id: str = self._run.id

    def send(self, step: int, values: dict[str, float]) -> None:
        self._run.log({"step": step, **values})

    def close(self) -> None:
        self._run.finish()


class _Mlflow:
    def __init__(self, project: str, directory: Path, config: dict[str, Any], known: Optional[str]) -> None:
        self._mlflow: Any = importlib.import_module("mlflow")
        if known is None:
            self._mlflow.set_experiment(project)
            run = self._mlflow.start_run(run_name=directory.name)
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
    def __init__(self, project: str, directory: Path, config: dict[str, Any], known: Optional[str]) -> None:
        self._trackio: Any = importlib.import_module("trackio")
        # It knows runs by their names alone, and another directory, or this one after --fresh, may have the same.
        self.id = known or f"{directory.name}-{os.urandom(4).hex()}"
        self._trackio.init(project=project, name=self.id, config=config, resume="never" if known is None else "allow")

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
    return {_name(key): value for key, value in found.items()}


def _name(key: str) -> str:
    """A metric's name as MLflow allows it: no other characters, and no path that has a shorter form, as that of a
    source by its whole directory has."""
    parts = re.sub(r"[^\w\-. /]", "_", key).split("/")
    return "/".join("_" if part == ".." else part for part in parts if part not in ("", "."))


class _Sent:
    """What was sent of a run, in its directory: the newest step, that of each kind of evaluation, and how
    many events of each name. Its file is locked as long as this is open: nobody else sends the same."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._held = _locked(file)
        self._home = os.stat(file.parent)
        try:
            read = object_of(file.read_bytes() or b"{}")
            if read is None:
                raise Failure(f"{file}: damaged; remove it, and all lines are sent anew, as another run", 1)
        except BaseException:
            os.close(self._held)
            raise
        self.id: Optional[str] = read.get("id")
        self.steps = NewestSteps(read.get("steps"))
        self.events: dict[str, float] = read.get("events", {})

    @property
    def newest(self) -> int:
        return max(self.steps.by_kind.values(), default=0)

    @property
    def replaced(self) -> bool:
        """True where `run --fresh` has set the run's directory aside; another one may have its name."""
        try:
            return not os.path.samestat(os.stat(self._file.parent), self._home)
        except FileNotFoundError:
            return True

    def keep(self) -> None:
        if self.id is None or self.replaced:
            return
        partial = self._file.with_suffix(".partial")
        partial.write_text(json.dumps({"id": self.id, "steps": self.steps.by_kind, "events": self.events}) + "\n")
        held = os.open(partial, os.O_RDWR)
        _lock(held)  # Nobody else has this file yet.
        try:
            os.replace(partial, self._file)
        except BaseException:
            os.close(held)
            raise
        os.close(self._held)
        self._held = held

    def close(self) -> None:
        if self.id is None and not self.replaced:  # Nothing is known, or sent.
            self._file.unlink()
        os.close(self._held)


def _lock(descriptor: int) -> bool:
    """False: another process has the file. A file system without locks has it for everybody."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _locked(file: Path) -> int:
    """A descriptor of the file, made if it was missing, that holds its lock."""
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        if not _lock(descriptor):
            os.close(descriptor)
            raise BlockingIOError(f'{file}: another "actortrain log" sends this run; wait for its end, or end it')
        # It may have replaced the file between the two calls.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(file)):
                return descriptor
        os.close(descriptor)


class _Signals:
    """Until it is closed, the first signal to end waits for check(): what was sent is noted then. Another one
    does not wait."""

    def __init__(self) -> None:
        self._came: Optional[int] = None
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL):
                    self._before[number] = signal.signal(number, self._take)

    def _take(self, number: int, frame: Optional[FrameType]) -> None:
        if self._came is not None:
            self._raise(number)
        self._came = number

    @staticmethod
    def _raise(number: int) -> None:
        raise KeyboardInterrupt if number == signal.SIGINT else _Ended(128 + number)

    def check(self) -> None:
        if self._came is not None:
            self._raise(self._came)

    def close(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)


class _Ended(SystemExit):
    """A signal that ends Python."""


class _Tail:
    """New whole lines of a file that grows, and that a resumed run cuts: then from the beginning. Lines without
    `key` are left out."""

    def __init__(self, path: Path, key: str) -> None:
        self._path = path
        self._key = key
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
        for line in content.split(b"\n")[:-1]:
            read = object_of(line)
            if read is not None and self._key in read:
                yield read


def _is_held(directory: Path) -> bool:
    """True if a process of this machine trains there: its status may still be that of an earlier one."""
    try:
        first, *others = (directory / "run.lock").read_text(encoding="utf-8", errors="replace").split("\n")
        pid = int(first)
    except (OSError, ValueError):
        return False
    return f"host {socket.gethostname()}" in others and "state held" in others and os.path.exists(f"/proc/{pid}")


def _is_over(directory: Path) -> Optional[bool]:
    """None: the run has no status, as before its first step."""
    if _is_held(directory):
        return False
    try:
        status: dict[str, Any] = json.loads(call(["status", str(directory), "--json"]))
    except ActorTrainError:
        return None
    return bool(status.get("condition") != "running")


def _config_of(directory: Path) -> dict[str, str]:
    """Keys of the run's config.toml with their values, as they are written there."""
    config: dict[str, str] = {}
    counts: dict[str, int] = {}
    section = ""
    for line in (directory / "config.toml").read_text(encoding="utf-8").split("\n"):
        if found := re.match(r"\[\[([\w.]+)\]\]", line):
            section = f"{found[1]}.{counts.setdefault(found[1], 0)}"
            counts[found[1]] += 1
        elif found := re.match(r"\[([\w.]+)\]", line):
            section = found[1]
        elif found := re.match(r"(\w+) = (.*)", line):
            config[f"{section}.{found[1]}"] = found[2].strip('"')[:500]
    return config


def log(target: Target, to: str, project: str = "actortrain", follow: bool = True) -> int:
    """Sends what was not sent yet: metrics, and `events/NAME`, how many events of a name there were. Follows
    a run that trains to its end, unless told not to. Returns how many lines were sent. Raises TrackerError
    where the tracker's package fails, and ImportError where it is not installed. What is interrupted goes
    on where it was, when it is called again."""
    if to not in TRACKERS:
        raise ValueError(f"to is one of {', '.join(TRACKERS)}, not \"{to}\"")
    directory = Path(_path(target))
    if not (directory / "config.toml").is_file():
        raise Mistake(f"{directory}: no directory of a run; it has no config.toml", 2)
    if directory.name in ("", ".."):  # Trackers call the run by its directory's name.
        directory = directory.resolve()
    config = _config_of(directory)
    with contextlib.ExitStack() as stack:
        sent = _Sent(directory / f"logged_{to}.json")
        stack.callback(sent.close)
        signals = _Signals()
        stack.callback(signals.close)
        try:
            tracker: Tracker = _asked(lambda: TRACKERS[to](project, directory, config, sent.id))
        except ImportError as missing:
            raise ImportError(f"{missing}; install it: pip install {to}", name=to) from missing
        stack.callback(lambda: _asked(tracker.close))
        stack.callback(sent.keep)
        sent.id = tracker.id
        sent.keep()
        return _send_all(directory, tracker, sent, signals, follow)


def _asked(call_it: Callable[[], Made]) -> Made:
    """What a tracker's package returns. Raises TrackerError, and ImportError where it is not installed."""
    try:
        return call_it()
    except ImportError:
        raise
    except Exception as failed:
        raise TrackerError(f"{type(failed).__name__}: {' '.join(str(failed).split())}") from failed


def _send_all(directory: Path, tracker: Tracker, sent: _Sent, signals: _Signals, follow: bool) -> int:
    metrics, events = _Tail(directory / "metrics.jsonl", "step"), _Tail(directory / "events.jsonl", "event")
    counts: dict[str, float] = {}
    lines = quiet = 0
    over = not follow

    def send(step: int, values: dict[str, float], with_counts: bool) -> None:
        signals.check()
        _asked(lambda: tracker.send(step, {**values, **counts} if with_counts else values))
        if with_counts:
            sent.events = dict(counts)

    while True:
        signals.check()
        if sent.replaced:
            return lines
        for event in events.lines():
            name = "events/" + str(event["event"])
            counts[name] = counts.get(name, 0) + 1
        new = [line for line in metrics.lines() if not sent.steps.has(line)]
        for number, line in enumerate(new):
            if not sent.steps.has(line):  # A resumed run's file has the same again.
                send(line["step"], numbers_of(line), number == len(new) - 1)
                sent.steps.note(line)
                lines += 1
                if lines % _KEEP_LINES == 0:
                    sent.keep()
        if new:
            sent.keep()
            quiet = 0
        if over:
            if counts and counts != sent.events:  # Of what happened after the last line.
                send(sent.newest, {}, True)
            return lines
        quiet += 1
        if quiet % _QUIET_LOOKS == 1 and not new:
            ended = _is_over(directory)
            over = ended is True or (ended is None and quiet > _LAST_LOOK)
            if over:
                continue  # Once more through the files, which are whole now.
        time.sleep(_LOOK_S)


HELP = """\
Send a run's metrics to a tracker.
Usage: actortrain log [OPTIONS] run_directory

Positionals:
  run_directory RUN_DIRECTORY REQUIRED
                              For example runs/quickstart

Options:
  -h,--help                   Print this help message and exit
  --to wandb|mlflow|trackio REQUIRED
                              Tracker, whose Python package must be installed
  --project NAME=actortrain   Name of the project; MLflow: of the experiment
  --once                      Send what there is; do not follow the run

Exit codes:
  0   all is sent
  1   failure: the tracker's own error, a damaged file
  2   mistake in the command, a package that is missing, or another "actortrain log" sends this run
  75  stopped by a signal; the same command goes on
"""


class _UsageError(Exception):
    """What is wrong with the words of the command."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _UsageError(message)


def _options_of(words: list[str]) -> argparse.Namespace:
    """The options of the command. Raises _UsageError with a sentence as the program's commands have them."""
    parser = _Parser(prog="actortrain log", add_help=False, allow_abbrev=False)
    known = ["--to", "--project", "--once"]
    parser.add_argument("run_directory", nargs="?")
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--to", nargs="?", const="")
    parser.add_argument("--project", nargs="?", const="", default="actortrain")
    parser.add_argument("--once", action="store_true")
    options, others = parser.parse_known_args(words)
    if options.help:
        return options
    for word in others:
        name = word.partition("=")[0]
        if name.startswith("-") and name != "-":
            raise _UsageError(f'unknown option "{name}"{_did_you_mean(name, known)}')
    if others:
        raise _UsageError(f"one run_directory is taken, not also {' '.join(others)}")
    if not options.run_directory:
        raise _UsageError("run_directory is required")
    if options.to is None:
        raise _UsageError(f"--to is required: {', '.join(TRACKERS)}")
    for name, value, kind in [("--to", options.to, "|".join(TRACKERS)), ("--project", options.project, "NAME")]:
        if not value:
            raise _UsageError(f"{name}: 1 required {kind} missing")
    if options.to not in TRACKERS:
        raise _UsageError(f'--to: must be {_either(TRACKERS)}, not "{options.to}"{_did_you_mean(options.to, TRACKERS)}')
    return options


def _either(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}"


def _did_you_mean(word: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(names), 1)
    return f'; did you mean "{near[0]}"?' if near else ""


def main(words: list[str]) -> int:
    """actortrain log RUN --to TRACKER"""
    try:
        options = _options_of(words)
    except _UsageError as wrong:
        said = " ".join(str(wrong).split())
        print(f'error actortrain log: {said}; "actortrain log --help" explains', file=sys.stderr)
        return 2
    if options.help:
        print(HELP, end="")
        return 0
    try:
        lines = log(options.run_directory, options.to, options.project, follow=not options.once)
    except TrackerError as failed:
        print(f"error log: {failed}", file=sys.stderr)
        return 1
    except ImportError as missing:
        print(f"error log: {missing}", file=sys.stderr)
        return 2
    except ActorTrainError as failed:
        print(f"error log: {failed}", file=sys.stderr)
        return 2 if isinstance(failed, Mistake) else 1
    except OSError as failed:
        print(f"error log: {failed}", file=sys.stderr)
        return 2 if isinstance(failed, BlockingIOError) else 1
    except (KeyboardInterrupt, _Ended):
        return 75
    print(f"{lines} lines sent")
    return 0
