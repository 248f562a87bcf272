"""Metrics in trackers, in their offline modes, read back: each step once, through resumes and repeated calls."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import actortrain as at
from actortrain import _log

from conftest import comes_true


class Recorder:
    """A tracker that keeps what it is sent, in a list of all starts."""

    sent: list[tuple[int, dict[str, float]]] = []
    ids: list[Any] = []

    def __init__(self, project: str, directory: Path, config: dict[str, Any], known: Any) -> None:
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


@pytest.mark.parametrize("words, said", [
    ([], "run_directory is required"),
    (["RUN"], "--to is required: wandb, mlflow, trackio"),
    (["RUN", "--to", "foo"], '--to: must be wandb, mlflow or trackio, not "foo"'),
    (["RUN", "--to", "mlfow"], '--to: must be wandb, mlflow or trackio, not "mlfow"; did you mean "mlflow"?'),
    (["RUN", "--to"], "--to: 1 required wandb|mlflow|trackio missing"),
    (["RUN", "--to", "wandb", "--project="], "--project: 1 required NAME missing"),
    (["--projekt", "x"], 'unknown option "--projekt"; did you mean "--project"?'),
    (["--pro", "x"], 'unknown option "--pro"'),
    (["RUN", "OTHER", "--to", "wandb"], "one run_directory is taken, not also OTHER"),
])
def test_the_command_speaks_as_the_others(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _log.main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"error actortrain log: {said}") and printed.err.count("\n") == 1
    assert printed.err.endswith('; "actortrain log --help" explains\n')


def test_the_help_has_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert _log.main(["RUN", "--help"]) == 0
    printed = capsys.readouterr()
    assert "\nExit codes:\n  0 " in printed.out and printed.err == ""
    assert all(option in printed.out for option in ("run_directory", "--to", "--project", "--once", "75"))


def test_a_tracker_that_is_missing_is_named_with_the_way_to_have_it(logged: Path, monkeypatch: pytest.MonkeyPatch,
                                                                    capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("wandb", "mlflow", "trackio"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ImportError, match=f"install it: pip install {name}$"):
            at.log(logged, name)
        assert _log.main([str(logged), "--to", name]) == 2
        said = capsys.readouterr().err
        assert said.startswith("error log: ") and said.count("install it") == 1 and said.count("\n") == 1


@pytest.fixture
def logged(tmp_path: Path) -> Path:
    """The directory of a run of five steps that is over."""
    folder = tmp_path / "logged"
    folder.mkdir()
    (folder / "config.toml").write_text('[model]\narch = "enoki"\n[batch]\nlanes = 2\n')
    (folder / "metrics.jsonl").write_text("".join(f'{{"step": {step}, "loss": 1.0}}\n' for step in range(1, 6)))
    (folder / "events.jsonl").write_text('{"event": "started", "unix_ms": 1}\n')
    return folder


def test_an_interrupted_tracker_goes_on_as_the_same_run(logged: Path, recorder: type[Recorder],
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted while it sends, it sends the line to its end first; where that fails, it is sent again."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    class Interrupted(Recorder):
        def send(self, step: int, values: dict[str, float]) -> None:
            signal.raise_signal(signal.SIGINT)
            super().send(step, values)

    class Failing(Recorder):
        def send(self, step: int, values: dict[str, float]) -> None:
            if step == 3:
                raise RuntimeError("no\nnetwork")
            super().send(step, values)

    try:
        monkeypatch.setitem(_log.TRACKERS, "wandb", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            at.log(logged, "wandb", follow=False)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    monkeypatch.setitem(_log.TRACKERS, "wandb", Failing)
    with pytest.raises(at.TrackerError, match="^RuntimeError: no network$"):
        at.log(logged, "wandb", follow=False)
    monkeypatch.setitem(_log.TRACKERS, "wandb", Recorder)
    assert at.log(logged, "wandb", follow=False) == 3
    assert [step for step, _ in recorder.sent] == [1, 2, 3, 4, 5]
    assert recorder.ids == [None, "number 1", "number 1"]


def test_what_was_sent_is_kept_on_the_way(logged: Path, recorder: type[Recorder], monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracker that is killed would send no more than so many lines again."""
    kept: list[Any] = []

    class Watched(Recorder):
        def send(self, step: int, values: dict[str, float]) -> None:
            kept.append(json.loads((logged / "logged_wandb.json").read_text()))

    monkeypatch.setitem(_log.TRACKERS, "wandb", Watched)
    monkeypatch.setattr(_log, "_KEEP_LINES", 2)
    at.log(logged, "wandb", follow=False)
    assert [(one["id"], one["steps"]) for one in kept] == [
        ("number 1", {}), ("number 1", {}), ("number 1", {"step": 2}), ("number 1", {"step": 2}), ("number 1", {"step": 4})]


def test_half_a_line_is_left_out(logged: Path, recorder: type[Recorder]) -> None:
    with (logged / "metrics.jsonl").open("a") as metrics, (logged / "events.jsonl").open("a") as events:
        metrics.write('{"step": 6, "lo\n{"step": 6, "loss": 2.0}\n')
        events.write('{"event": "resu\n{"event": "resumed", "unix_ms": 2}\n')
    assert at.log(logged, "wandb", follow=False) == 6
    assert recorder.sent[-1] == (6, {"loss": 2.0, "events/started": 1, "events/resumed": 1})


def test_a_damaged_record_of_what_was_sent_is_a_line(logged: Path, recorder: type[Recorder],
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    (logged / "logged_wandb.json").write_bytes(b'{"id": "number 1", "ste\0\0')
    assert _log.main([str(logged), "--to", "wandb", "--once"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"error log: {logged}/logged_wandb.json: damaged; ") and said.count("\n") == 1
    assert recorder.sent == []


@pytest.mark.parametrize("path", [".", "tensorboard/.."])
def test_a_run_is_called_by_its_directory_from_inside_it(path: str, logged: Path, recorder: type[Recorder],
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[str] = []

    class Named(Recorder):
        def __init__(self, project: str, directory: Path, config: dict[str, Any], known: Any) -> None:
            super().__init__(project, directory, config, known)
            named.append(directory.name)

    monkeypatch.setitem(_log.TRACKERS, "wandb", Named)
    (logged / "tensorboard").mkdir()
    monkeypatch.chdir(logged)
    assert at.log(path, "wandb", follow=False) == 5
    assert named == ["logged"]


def test_names_are_paths_that_mlflow_takes() -> None:
    line = {"step": 1, "source_loss//data/a": 1, "source_loss/../b": 2, "choices": {"acc": 3, "sources": {"./q:1.jsonl": {"acc": 4}}}}
    assert _log.numbers_of(line) == {"source_loss/data/a": 1, "source_loss/_/b": 2, "choices/acc": 3,
                                     "choices/sources/q_1.jsonl/acc": 4}


def test_events_after_the_last_line_are_sent(logged: Path, recorder: type[Recorder], monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(_log, "_LOOK_S", 0.01)
    monkeypatch.setattr(_log, "_is_over", lambda directory: over.is_set())
    follower = threading.Thread(target=lambda: at.log(logged, "wandb"), daemon=True)
    follower.start()
    assert comes_true(lambda: len(recorder.sent) >= 5 or not follower.is_alive()) and follower.is_alive()
    with (logged / "events.jsonl").open("a") as file:
        file.write('{"event": "rank_died", "unix_ms": 2}\n{"event": "finished", "unix_ms": 3}\n')
    over.set()
    follower.join(60)
    assert not follower.is_alive()
    assert recorder.sent[-1] == (5, {"events/started": 1, "events/rank_died": 1, "events/finished": 1})
    count = len(recorder.sent)
    assert at.log(logged, "wandb") == 0 and len(recorder.sent) == count


def test_two_do_not_send_the_same(logged: Path, recorder: type[Recorder], monkeypatch: pytest.MonkeyPatch,
                                  capsys: pytest.CaptureFixture[str]) -> None:
    codes: list[int] = []

    class Second(Recorder):
        def send(self, step: int, values: dict[str, float]) -> None:
            if not codes:
                monkeypatch.setitem(_log.TRACKERS, "wandb", Recorder)
                codes.append(_log.main([str(logged), "--to", "wandb", "--once"]))

    monkeypatch.setitem(_log.TRACKERS, "wandb", Second)
    assert at.log(logged, "wandb", follow=False) == 5
    assert codes == [2] and recorder.sent == []
    assert capsys.readouterr().err == (f'error log: {logged}/logged_wandb.json: another "actortrain log" sends this run; '
                                       "wait for its end, or end it\n")


def test_a_run_that_was_resumed_is_not_over(logged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its status is that of its earlier start until the first step."""
    monkeypatch.setattr(_log, "call", lambda words: '{"condition": "over"}')
    assert _log._is_over(logged)
    lock = f"{os.getpid()}\nhost {socket.gethostname()}\nboot 1\nstate held\n   \n"
    for text, held in [(lock, True), (lock.replace("held", "given_back"), False), ("", False),
                       (lock.replace(str(os.getpid()), "4194305"), False), (lock.replace("host ", "host other"), False)]:
        (logged / "run.lock").write_text(text)
        assert _log._is_over(logged) is not held, text


def test_the_lock_of_a_run_is_read(run_file: Path) -> None:
    with at.run(run_file, set={"run.steps": 1_000_000}) as run:
        next(iter(run))
        assert _log._is_held(run.directory)
    assert not _log._is_held(run.directory)


def test_a_configuration_keeps_its_sources_apart(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        '[data]\ndir = "a\u2028b = 1"\n\n[[data.sources]]\ndir = "b"\n[[data.sources]]\ndir = "c"\n[eval]\nlanes = 1\n')
    assert _log._config_of(tmp_path) == {"data.dir": "a\u2028b = 1", "data.sources.0.dir": "b", "data.sources.1.dir": "c",
                                         "eval.lanes": "1"}


# A package in the place of a tracker's: a line of SENT for each that it is sent, after some time.
STAND_IN = """\
import os, time
class Run:
    id = "made"
    def define_metric(self, *names, **options): pass
    def finish(self): pass
    def log(self, values):
        if os.environ.get("FAILS"):
            raise OSError("no\\nroute")
        while values["step"] == 3 and not os.path.exists(os.environ.get("TOLD", "/")):
            time.sleep(0.01)
        with open(os.environ["SENT"], "a") as file:
            print(values["step"], file=file)
def init(**options):
    with open(os.environ["SENT"], "a") as file:
        print("run", options["id"], file=file)
    return Run()
"""


def sent_by_command(logged: Path, number: int = 0, **variables: str) -> tuple[int, str, list[str]]:
    """Exit code, errors, and all that the stand-in was sent so far; `number`: a signal after the second line."""
    file, told = logged.parent / "sent.txt", logged.parent / "told"
    (logged.parent / "wandb.py").write_text(STAND_IN)
    environment = {**os.environ, **variables, "SENT": str(file), **({"TOLD": str(told)} if number else {}),
                   "PYTHONPATH": os.pathsep.join([str(logged.parent), os.environ.get("PYTHONPATH", "")])}
    with subprocess.Popen([sys.executable, "-m", "actortrain", "log", str(logged), "--to", "wandb", "--once"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment) as command:
        try:
            if number:
                assert comes_true(lambda: command.poll() is not None or
                                  (file.is_file() and file.read_text().count("\n") >= 3))
                command.send_signal(number)
                told.touch()  # lets the third line be sent, after which there is no other
            said = command.communicate(timeout=60)[1]
        finally:
            command.kill()
    return command.returncode, said, file.read_text().splitlines()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_told_to_end_sends_nothing_twice(logged: Path, number: signal.Signals) -> None:
    code, said, lines = sent_by_command(logged, number)
    assert (code, said, lines[0]) == (75, "", "run None") and 3 <= len(lines) < 5
    code, said, lines = sent_by_command(logged)
    assert (code, said) == (0, "")
    assert [line for line in lines if line.isdigit()] == ["1", "2", "3", "4", "5"]
    assert [line for line in lines if not line.isdigit()] == ["run None", "run made"]


def test_a_run_begun_anew_is_not_sent_as_the_one_before(
        logged: Path, recorder: type[Recorder], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_log, "_LOOK_S", 0.01)
    monkeypatch.setattr(_log, "_is_over", lambda directory: False)
    all_sent = threading.Event()
    send = recorder.send

    def noted(tracker: Recorder, step: int, values: dict[str, float]) -> None:
        send(tracker, step, values)
        if len(recorder.sent) == 5:
            all_sent.set()

    monkeypatch.setattr(recorder, "send", noted)
    other = shutil.copytree(logged, logged.with_name("new"))
    follower = threading.Thread(target=lambda: at.log(logged, "wandb"), daemon=True)
    follower.start()
    assert all_sent.wait(60)
    logged.rename(logged.with_name("logged-2"))
    other.rename(logged)
    follower.join(60)
    assert not follower.is_alive() and not (logged / "logged_wandb.json").exists()
    assert at.log(logged, "wandb", follow=False) == 5 and recorder.ids == [None, None]


def test_what_a_tracker_raises_is_a_line(logged: Path) -> None:
    assert sent_by_command(logged, FAILS="1")[:2] == (1, "error log: OSError: no route\n")


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


# A process that has a run of its own, which it goes on with.
WITH_A_RUN = """\
import json, sys
import actortrain, wandb
own = wandb.init(project="own")
actortrain.log(sys.argv[1], "wandb", follow=False)
own.log({"own": 1})
print(json.dumps(own.id))
"""


def test_wandb_gives_a_run_that_the_process_has_nothing(logged: Path, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    settings = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", WITH_A_RUN, logged], check=True, stdout=subprocess.PIPE, text=True,
                           env={**os.environ, **settings})
    own = json.loads(ended.stdout.splitlines()[-1])
    known = json.loads((logged / "logged_wandb.json").read_text())["id"]
    lines: dict[str, list[Any]] = {}
    for name in (own, known):
        (file,) = (tmp_path / "wandb").glob(f"offline-run-*/run-{name}.wandb")
        read = subprocess.run([sys.executable, "-c", READ_WANDB, file], check=True, stdout=subprocess.PIPE, text=True)
        lines[name] = [set(json.loads(line)) & {"own", "loss"} for line in read.stdout.splitlines()]
    assert lines == {own: [{"own"}], known: [{"loss"}] * 5}


def test_trackio_has_each_step_once(run_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trackio")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    run = resumed_and_logged(run_file, "trackio")
    with sqlite3.connect(tmp_path / "trackio/actortrain.db") as base:
        rows = [(step, json.loads(text)) for step, text in base.execute("SELECT step, metrics FROM metrics")]
    losses = [(step, values["loss"]) for step, values in rows if "loss" in values]
    assert len(losses) == 6 and dict(losses) == losses_of(run)


def test_trackio_keeps_runs_of_one_name_apart(run_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trackio")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    run = at.run(run_file).wait()
    other = shutil.copytree(run.directory, tmp_path / "others" / run.directory.name)
    for folder in (run.directory, other, run.directory):
        subprocess.run([sys.executable, "-m", "actortrain", "log", str(folder), "--to", "trackio"], check=True,
                       stdout=subprocess.DEVNULL)
    with sqlite3.connect(tmp_path / "trackio/actortrain.db") as base:
        rows = base.execute("SELECT run_name, metrics FROM metrics").fetchall()
    names = [name for name, text in rows if "loss" in json.loads(text)]
    assert sorted(names.count(name) for name in set(names)) == [6, 6]
    assert all(name.startswith("tiny-") for name in names)
    known = json.loads((other / "logged_trackio.json").read_text())["id"]
    moved = shutil.move(other, tmp_path / "moved")
    assert _log._Sent(Path(moved) / "logged_trackio.json").id == known in names
