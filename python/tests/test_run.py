"""Runs: their metrics, how they end, and what is left of them."""

from __future__ import annotations

import errno
import gc
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any, Iterator

import pytest

import actortrain as at
from actortrain._lines import Lines

from conftest import comes_true

ENDLESS: dict[str, Any] = {"run.steps": 1_000_000}

# A shell may have started all of this with interrupts ignored.
SCRIPT = """\
import signal, sys
import actortrain as at
signal.signal(signal.SIGINT, signal.default_int_handler)
run = at.run(sys.argv[1], set={"run.steps": 1000000, "parallel.ranks": 2})
for metrics in run:
    if metrics.get("step") == 3 and "loss" in metrics:
        print(run._process.pid, flush=True)
"""


def steps_of(lines: list[dict[str, Any]]) -> list[int]:
    return [line["step"] for line in lines if "event" not in line]


def test_a_run_gives_each_step_once_and_keeps_it(run_file: Path, tmp_path: Path) -> None:
    run = at.run(run_file)
    lines = list(run)
    assert steps_of(lines) == [1, 2, 3, 4, 5, 6]
    assert [line["step"] for line in lines if line.get("event") == "evaluation"] == [0, 3, 6]
    assert run.wait().exit_code == 0 and not run.running
    assert run.directory == tmp_path / "runs/tiny"
    assert run.metrics("list") == lines
    assert [event["event"] for event in run.events()][-1] == "finished"
    assert list(run) == lines  # Again, from the beginning.


def test_steps_that_are_done_again_come_once(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = at.run(run_file).wait()
    lines = list(run)
    again = [json.dumps(line) for line in [*lines[:5], *lines[2:]]]
    monkeypatch.setattr(run._out, "each", lambda: iter(again))
    assert list(run) == lines


def test_half_a_line_is_left_out(run_file: Path) -> None:
    """Where a run was cut off in a line, the next start writes behind it."""
    run = at.run(run_file).wait()
    for name, read in [("metrics.jsonl", run.metrics), ("events.jsonl", run.events)]:
        lines = read("list")
        with (run.directory / name).open("a") as file:
            file.write('{"event": "sta\n' + json.dumps(lines[-1]) + '\n{"half')
        assert read("list") == [*lines, lines[-1]]


def test_a_profiled_run_gives_its_metrics_alone(run_file: Path) -> None:
    run = at.run(run_file, profile=True)
    assert list(run) == run.metrics("list")
    assert (run.directory / "profile/summary.json").is_file()


def test_metrics_are_a_table_where_there_is_a_package(run_file: Path) -> None:
    polars = pytest.importorskip("polars")
    pandas = pytest.importorskip("pandas")
    run = at.run(run_file).wait()
    table = run.metrics("polars")
    assert isinstance(table, polars.DataFrame)
    assert table.filter(polars.col("loss").is_not_null())["step"].to_list() == [1, 2, 3, 4, 5, 6]
    other = run.metrics()
    assert isinstance(other, pandas.DataFrame)
    assert other.set_index("step").loss.dropna().to_dict() == {
        line["step"]: line["loss"] for line in run.metrics("list") if "loss" in line}
    with pytest.raises(ValueError):
        run.metrics("excel")


def test_a_stopped_run_goes_on_where_it_was_saved(run_file: Path) -> None:
    whole = steps_of(list(at.run(run_file, set={"run.name": "whole", "run.steps": 40})))
    run = at.run(run_file, set=ENDLESS)
    for metrics in run:
        if "loss" in metrics and metrics["step"] == 3:
            break
    assert run.running  # A loop that is left does not stop it.
    assert run.stop().exit_code == 75
    saved = steps_of(run.metrics("list"))[-1]
    later = steps_of(list(at.run(run_file, set={"run.steps": saved + 4})))
    assert later == [saved + 1, saved + 2, saved + 3, saved + 4]
    assert whole == list(range(1, 41))


def test_a_run_that_is_stopped_before_it_has_begun_ends_as_stopped(run_file: Path) -> None:
    for wait_s in (0, 0, 0.005, 0.02, 0.05):
        run = at.run(run_file, set=ENDLESS)
        time.sleep(wait_s)
        assert run.stop().exit_code == 75, run.log


def test_a_directory_is_known_after_python_has_gone_elsewhere(run_file: Path, tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    run_file.write_text(run_file.read_text().replace(f'dir = "{tmp_path}/runs"', 'dir = "runs"'))
    monkeypatch.chdir(tmp_path)
    runs = [at.run(run_file), at.run(run_file.name, directory="../" + tmp_path.name, set={"run.name": "other"})]
    monkeypatch.chdir("/")
    assert [run.directory.resolve() for run in runs] == [tmp_path / "runs/tiny", tmp_path / "runs/other"]
    for run in runs:
        assert run.wait().metrics("list")


def test_a_run_whose_steps_are_all_done_has_its_directory(run_file: Path) -> None:
    first = at.run(run_file).wait()
    again = at.run(run_file).wait()
    assert again.directory == first.directory and again.metrics("list") == first.metrics("list")
    assert list(again) == []


def test_a_run_whose_directory_is_gone_has_no_empty_table(run_file: Path) -> None:
    run = at.run(run_file).wait()
    (run.directory / "events.jsonl").unlink()
    assert run.events() == []
    run.directory.rename(run.directory.with_name("moved"))
    for read in (run.metrics, run.events):
        with pytest.raises(FileNotFoundError, match=str(run.directory)):
            read("list")


def test_a_run_that_is_set_aside_keeps_its_lines(run_file: Path) -> None:
    """Nobody has waited for the first, or asked it for anything, before the second has its directory."""
    first = at.run(run_file)
    first._said.whole()
    named = run_file.parent / "runs/tiny"
    lines, events = [(named / name).read_bytes() for name in ("metrics.jsonl", "events.jsonl")]
    second = at.run(run_file, set={"run.seed": 7}, fresh=True).wait()
    assert (first.directory, second.directory) == (named.with_name("tiny-2"), named)
    assert list(first) == first.metrics("list") == [json.loads(line) for line in lines.splitlines()]
    assert first.events() == [json.loads(line) for line in events.splitlines()]
    assert list(second) == second.metrics("list") != first.metrics("list")
    again = at.run(run_file, set={"run.seed": 7}).wait()  # All steps are done: the program names it in another line.
    third = at.run(run_file, fresh=True).wait()
    assert [run.directory.name for run in (first, second, again, third)] == ["tiny-2", "tiny-3", "tiny-3", "tiny"]
    with first.board() as board, urllib.request.urlopen(board.url + "runs.json") as answer:
        assert [one["name"] for one in json.load(answer)["runs"]] == ["tiny-2"]


def test_a_run_that_is_removed_is_not_taken_for_the_next(run_file: Path) -> None:
    """The next directory of the name would have its number, too."""
    first = at.run(run_file).wait()
    lines = list(first)
    shutil.rmtree(first.directory)
    second = at.run(run_file, set={"run.seed": 7}).wait()
    for read in (first.metrics, first.events):
        with pytest.raises(FileNotFoundError, match=f"{second.directory}: another run has this directory now"):
            read("list")
    assert list(first) == lines and second.metrics("list") == list(second)


def test_a_table_without_its_package_says_how_to_have_it(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = at.run(run_file).wait()
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ImportError, match=f"install it: pip install {name}") as raised:
            run.metrics(name)
        assert raised.value.name == name
    assert isinstance(run.metrics(), list)


@pytest.fixture
def interruptible() -> Iterator[Any]:
    """The handler of interrupts, which a shell may have had ignored; it is there after the test."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def begin(run: at.Run) -> Iterator[dict[str, Any]]:
    lines = iter(run)
    next(lines)
    return lines


def test_an_interrupt_ends_all_runs_of_its_loop(run_file: Path, interruptible: Any) -> None:
    runs = [at.run(run_file, set={**ENDLESS, "run.name": name}) for name in ("a", "b")]

    def losses(run: at.Run) -> Iterator[Any]:
        for line in run:
            yield line

    with pytest.raises(KeyboardInterrupt):
        for _ in zip(runs[0], losses(runs[1])):
            signal.raise_signal(signal.SIGINT)
    assert [run._process.returncode for run in runs] == [75, 75]  # Without a poll: it has waited.
    assert signal.getsignal(signal.SIGINT) is interruptible


def test_an_interrupt_elsewhere_does_not_end_a_run_whose_iterator_was_kept(run_file: Path, interruptible: Any) -> None:
    with at.run(run_file, set=ENDLESS) as run, at.run(run_file, set={**ENDLESS, "run.name": "other"}) as other:
        kept = begin(run)
        with pytest.raises(KeyboardInterrupt):
            for _ in other:
                signal.raise_signal(signal.SIGINT)
        assert other.exit_code == 75
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(TimeoutError):
            run.wait(2)
        assert len(list(itertools.islice(kept, 2))) == 2
        later = begin(at.run(run_file, set={"run.name": "later"}))
        del kept  # Before the one that was begun after it.
        assert signal.getsignal(signal.SIGINT) is not interruptible
        del later
        assert signal.getsignal(signal.SIGINT) is interruptible
    assert run.exit_code == 75


def test_a_run_that_is_killed_goes_on_from_its_newest_checkpoint(run_file: Path) -> None:
    run = at.run(run_file, set=ENDLESS)
    for event in run:
        if any(line["event"] == "checkpoint_published" for line in run.events()):
            break
    assert run.stop(save=False).exit_code == -signal.SIGKILL
    with pytest.raises(at.Failure, match="^the program was killed by signal 9$"):
        run.wait()
    first = next(iter(at.run(run_file, set={**ENDLESS, "run.steps_per_job": 2})))
    assert first["step"] >= 2


def test_a_stop_that_cannot_save_is_an_error(run_file: Path) -> None:
    def cannot_save() -> at.Run:
        run = at.run(run_file, set={**ENDLESS, "checkpoint.interval_steps": 1_000_000}, fresh=True)
        next(iter(run))
        (run.directory / "checkpoints").rename(run.directory / "moved")
        (run.directory / "checkpoints").write_text("a file")
        return run

    with pytest.raises(at.Failure, match="checkpoint"):
        cannot_save().stop()
    with pytest.raises(at.Failure, match="checkpoint"), cannot_save():
        pass
    with pytest.raises(ZeroDivisionError), cannot_save() as run:
        raise ZeroDivisionError
    assert run.exit_code == 1
    assert run.stop() is run and cannot_save().stop(save=False).exit_code == -signal.SIGKILL


def test_a_fork_cannot_follow_the_run_of_its_parent(run_file: Path) -> None:
    """It is told that the process has ended well, which is no child of its own."""
    with at.run(run_file, set=ENDLESS) as run:
        next(line for line in run if line.get("step") == 1)

        def answers() -> list[str]:
            asked = [lambda: run.exit_code, lambda: run.wait(), lambda: run.stop(), lambda: list(run)]
            found = [repr(run)]
            for ask in asked:
                with pytest.raises(RuntimeError, match=f"process {parent} has started this run"):
                    ask()
                found.append("refused")
            return found

        parent = os.getpid()
        out, into = os.pipe()
        if (child := os.fork()) == 0:
            try:
                os.write(into, json.dumps(answers()).encode())
            finally:
                os._exit(0)
        os.close(into)
        with os.fdopen(out) as told:
            assert json.loads(told.read()) == [f"<actortrain.Run {run._process.pid}: of process {parent}>"] + ["refused"] * 4
        os.waitpid(child, 0)
        assert run.running
    assert run.exit_code == 75


def test_a_context_stops_its_run(run_file: Path) -> None:
    with pytest.raises(ZeroDivisionError), at.run(run_file, set=ENDLESS) as run:
        next(iter(run))
        raise ZeroDivisionError
    assert run.exit_code == 75


def test_a_mistake_has_file_line_key_and_fix(run_file: Path) -> None:
    run_file.write_text(run_file.read_text().replace("layers = 2", "layer = 2"))
    with pytest.raises(at.Mistake) as raised:
        at.run(run_file).wait()
    line = run_file.read_text().splitlines().index("layer = 2") + 1
    error = raised.value
    assert (error.file, error.line, error.key, error.exit_code) == (str(run_file), line, "model.layer", 2)
    assert error.fix is not None and "model.layers" in error.fix
    with pytest.raises(at.Mistake) as raised:
        at.run(run_file, set={"optimizer.lr": -1.0}).directory
    assert raised.value.file is not None or raised.value.key == "optimizer.lr"


def test_values_of_every_kind_reach_the_run_file(run_file: Path) -> None:
    run = at.run(run_file, set={"run": {"name": 'a "b"', "tensorboard": False}, "optimizer.lr": 1e-5,
                                "batch.radix": [2], "run.steps": 1}).wait()
    text = (run.directory / "config.toml").read_text()
    for line in ('name = "a \\"b\\""', "tensorboard = false", "lr = 1e-05", "radix = [2]", "steps = 1"):
        assert line in text.splitlines(), line


def test_texts_reach_the_run_file_as_they_are(run_file: Path) -> None:
    texts = ['"To be"', "'tis", "\\", " a\nb\t", "\x7f\u2028"]
    for text in texts:
        run = at.run(run_file, set={"run.sample_prompt": text, "run.sample_prompts": texts, "run.steps": 1}, fresh=True).wait()
        lines = [line.partition(" = ") for line in (run.directory / "config.toml").read_text(encoding="utf-8").split("\n")]
        stored = {key: json.loads(value) for key, _, value in lines if key.startswith("sample_prompt")}
        assert stored == {"sample_prompt": text, "sample_prompts": texts}


def test_the_board_shows_the_run_until_it_is_stopped(run_file: Path) -> None:
    run = at.run(run_file).wait()
    with run.board(height=123) as board:
        assert f'src="{board.url}"' in board._repr_html_() and 'height="123"' in board._repr_html_()
        with urllib.request.urlopen(board.url + "runs.json") as answer:
            assert "tiny" in json.dumps(json.load(answer))
        with urllib.request.urlopen(board.url) as answer:  # A browser shows it in a notebook's frame.
            assert answer.headers["X-Frame-Options"] is None
            assert "frame-ancestors http://localhost:* http://127.0.0.1:* " in answer.headers["Content-Security-Policy"]
    with pytest.raises(OSError):
        urllib.request.urlopen(board.url)


def test_a_board_may_say_more_than_a_pipe_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = tmp_path / "actortrain"
    stand_in.write_text("#!/bin/sh\necho http://x/\nhead -c 300000 /dev/zero >&2\ntouch said\nexec sleep 100\n")
    stand_in.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with at.Board(tmp_path) as board:
        assert board.url == "http://x/"
        assert comes_true((tmp_path / "said").exists)


@pytest.mark.parametrize("room", [None, 0, 10, 1 << 20])
def test_lines_are_kept_where_the_disk_is_full(monkeypatch: pytest.MonkeyPatch, room: Any) -> None:
    """room: bytes that the file takes; None: no file can be made."""
    left, write = room, os.pwrite

    def full_write(file: int, data: bytes, place: int) -> int:
        nonlocal left
        if not left:
            raise OSError(errno.ENOSPC, "full")
        written = write(file, data[:left], place)
        left -= written
        return written

    def no_file() -> Any:
        raise FileNotFoundError("no place")

    monkeypatch.setattr(os, "pwrite", full_write)
    if room is None:
        monkeypatch.setattr(tempfile, "TemporaryFile", no_file)
    ends = os.pipe()
    lines = Lines(os.fdopen(ends[0], "rb"))
    written = [f"line {number}" for number in range(1000)]
    with os.fdopen(ends[1], "w") as pipe:
        pipe.write("\n".join(written))
    assert list(lines.each()) == written
    assert lines.whole() == "\n".join(written)


def test_lines_that_nobody_has_close_their_file() -> None:
    ends = os.pipe()
    before = set(threading.enumerate())
    lines = Lines(os.fdopen(ends[0], "rb"))
    (thread,) = set(threading.enumerate()) - before
    os.close(ends[1])
    thread.join()
    file = lines._file
    assert file is not None and not file.closed
    del lines
    gc.collect()
    assert file.closed


def descendants(pid: int) -> list[int]:
    """The process and all that it, or a thread of it, has started."""
    children = [child for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]
    return [pid, *(one for child in children for one in descendants(int(child)))]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_python_that_is_interrupted_or_killed_leaves_no_process(run_file: Path, number: signal.Signals) -> None:
    """A process for each of two ranks. An interrupted one has saved before Python goes on."""
    with subprocess.Popen([sys.executable, "-c", SCRIPT, str(run_file)], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as python:
        try:
            assert python.stdout is not None
            pid = int(python.stdout.readline())
            handles = [os.pidfd_open(one) for one in descendants(pid)]
            assert len(handles) >= 2
            python.send_signal(number)
            assert python.wait(120) != 0
        finally:
            python.kill()
    if number == signal.SIGINT:  # Nothing is left to wait for.
        assert len(select.select(handles, [], [], 0)[0]) == len(handles)
        assert any((run_file.parent / "runs/tiny/checkpoints").glob("step-*"))
    for handle in handles:
        assert select.select([handle], [], [], 120)[0], "a process is left"
        os.close(handle)
