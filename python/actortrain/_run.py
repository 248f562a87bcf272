"""A run: a process of the program that trains."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import IO, Any, Iterator, Optional, Sequence

from ._board import Board
from ._commands import Settings, option_words, set_words
from ._errors import error_of
from ._program import PathLike, end, start

_FINISHED = (0, 75)
_STARTED = re.compile(r"info run_started directory=(.*) step=\d+ steps=\d+ ")


class _Lines:
    """What a process writes, copied by a thread to a file without a name: nobody need read it in
    time, and it takes no memory."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._file = tempfile.TemporaryFile()
        self._size = 0
        self._ended = False
        self._changed = threading.Condition()
        threading.Thread(target=self._copy, args=(pipe,), daemon=True).start()

    def _copy(self, pipe: IO[bytes]) -> None:
        try:
            for line in pipe:
                with self._changed:
                    os.pwrite(self._file.fileno(), line, self._size)
                    self._size += len(line)
                    self._changed.notify_all()
        finally:
            pipe.close()
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def after(self, place: int) -> Optional[bytes]:
        """Waits for what follows the first `place` bytes: whole lines; None at the end."""
        with self._changed:
            while self._size <= place and not self._ended:
                self._changed.wait()
            if self._size <= place:
                return None
            return os.pread(self._file.fileno(), min(self._size - place, 1 << 20), place)

    def each(self) -> Iterator[str]:
        place, rest = 0, b""
        while (piece := self.after(place)) is not None:
            place += len(piece)
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                yield line.decode("utf-8", "replace")
        if rest:
            yield rest.decode("utf-8", "replace")

    def now(self) -> str:
        with self._changed:
            return os.pread(self._file.fileno(), self._size, 0).decode("utf-8", "replace")

    def whole(self) -> str:
        with self._changed:
            while not self._ended:
                self._changed.wait()
        return self.now()


class Run:
    """A run in a process of its own. It ends, after saving, when Python ends, and when a cell that
    waits for it, or iterates over it, is interrupted; `run()` with the same arguments resumes it.

    Used as a context (`with run(...) as r:`), it is stopped where the block is left."""

    def __init__(self, words: Sequence[str], directory: Optional[PathLike]) -> None:
        self._cwd = Path(directory) if directory is not None else Path.cwd()
        self._process = start(words, self._cwd)
        assert self._process.stdout is not None and self._process.stderr is not None
        self._out = _Lines(self._process.stdout)
        self._said = _Lines(self._process.stderr)

    @property
    def directory(self) -> Path:
        """The run's directory. Waits until the program has begun the run; raises its error."""
        for line in self._said.each():
            if found := _STARTED.match(line):
                return self._cwd / found[1]
        self.wait()
        raise RuntimeError(f"the program has trained nothing: {self._said.now().strip()}")

    @property
    def exit_code(self) -> Optional[int]:
        """0: finished; 75: stopped after saving; 1, 2 or negative: an error; None: it goes on."""
        return self._process.poll()

    @property
    def running(self) -> bool:
        return self.exit_code is None

    @property
    def log(self) -> str:
        """What the program has said so far."""
        return self._said.now()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Metrics of this start, as they come: a dict for each step and each evaluation, with the keys of
        metrics.jsonl. Raises the program's error at the end, if it has one."""
        with self._stops_on_interrupt():
            for line in self._out.each():
                read = json.loads(line)
                if "unix_ms" not in read:  # Those are events.
                    yield read
            self._finish()

    def wait(self, timeout: Optional[float] = None) -> "Run":
        """Waits for the end. Raises TimeoutError, or the program's error."""
        with self._stops_on_interrupt():
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                raise TimeoutError(f"the run goes on after {timeout} s") from None
            self._finish()
        return self

    def stop(self, save: bool = True, timeout: Optional[float] = None) -> "Run":
        """Ends the run, and waits for that: after it has saved, or at once. Does nothing after the
        end. Raises TimeoutError if it has not saved in time; it is still about to."""
        end(self._process, signal.SIGTERM if save else signal.SIGKILL)
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the run is still saving after {timeout} s") from None
        return self

    def metrics(self, frame: str = "auto") -> Any:
        """All lines of metrics.jsonl, of earlier starts too: a table of pandas, of polars, or a list of
        dicts. frame: which; "auto" takes the first that is installed."""
        return _frame(_json_lines(self.directory / "metrics.jsonl"), frame)

    def events(self, frame: str = "list") -> Any:
        """All lines of events.jsonl, as metrics() gives them."""
        return _frame(_json_lines(self.directory / "events.jsonl"), frame)

    def board(self, width: str = "100%", height: int = 700) -> Board:
        """The run's board, as a frame of a notebook."""
        return Board(self.directory, width, height)

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        code = self.exit_code
        state = "running" if code is None else {0: "finished", 75: "stopped"}.get(code, f"exit code {code}")
        return f"<actortrain.Run {self._process.pid}: {state}>"

    def _finish(self) -> None:
        code = self._process.wait()
        if code not in _FINISHED:
            raise error_of(code, self._said.whole())

    @contextlib.contextmanager
    def _stops_on_interrupt(self) -> Iterator[None]:
        """Where Python's main thread is interrupted in here, or in a loop's body, the run is stopped. A
        handler is needed for the loop: its iterator does not hear why it is closed."""
        interrupted = False
        before = signal.getsignal(signal.SIGINT)
        main = threading.current_thread() is threading.main_thread() and callable(before)

        def handle(number: int, frame: Optional[FrameType]) -> None:
            nonlocal interrupted
            interrupted = True
            end(self._process)
            if callable(before):
                before(number, frame)

        if main:
            signal.signal(signal.SIGINT, handle)
        try:
            yield
        except KeyboardInterrupt:
            interrupted = True
            end(self._process)
            raise
        finally:
            if main and signal.getsignal(signal.SIGINT) is handle:
                signal.signal(signal.SIGINT, before)
            if interrupted:
                self._process.wait()


def run(config: PathLike, *, set: Optional[Settings] = None, directory: Optional[PathLike] = None,
        fresh: bool = False, accept_data: bool = False, accept_config: Sequence[str] = (),
        profile: bool = False) -> Run:
    """Trains what a run file describes, or resumes it; returns at once.

    set: values instead of the file's, by key. directory: where the program runs, from where the
    file's relative paths count; by default the current one. The rest as `actortrain run` has it."""
    words = ["run", os.fspath(config), "--json", *set_words(set),
             *option_words(fresh=fresh, accept_data=accept_data, accept_config=list(accept_config), profile=profile)]
    return Run(words, directory)


def _json_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file; none if it is not there yet."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in content[:content.rfind(b"\n") + 1].splitlines()]


def _frame(lines: list[dict[str, Any]], frame: str) -> Any:
    if frame not in ("auto", "pandas", "polars", "list"):
        raise ValueError(f'frame is "auto", "pandas", "polars" or "list", not "{frame}"')
    for name in ("pandas", "polars") if frame == "auto" else () if frame == "list" else (frame,):
        try:
            package = importlib.import_module(name)
        except ImportError:
            if frame != "auto":
                raise
            continue
        if name == "polars":
            return package.DataFrame(lines, infer_schema_length=None, strict=False)
        return package.DataFrame(lines)
    return lines
