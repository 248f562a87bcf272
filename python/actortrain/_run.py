"""A run: a process of the program that trains."""

from __future__ import annotations

import contextlib
import glob
import importlib
import itertools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator, Optional, Sequence, Union

from ._board import Board
from ._commands import Settings, option_words, set_words, several
from ._errors import ActorTrainError, Mistake, error_of
from ._interrupts import interrupts
from ._lines import Lines, NewestSteps, object_of
from ._program import PathLike, end, start

_FINISHED = (0, 75)
_RESUMED = re.compile(r"info resumed step=\d+ from (.*)/checkpoints/step-\d+$")
_STARTED = re.compile(r"info run_started directory=(.*) step=\d+ steps=\d+ ")


class _Homes:
    """The directories that the program has named, one for each name: held open since, as a directory that is removed
    leaves its inode number to the next one that is made. The program names the run's when it has begun it, while no other
    start can set it aside. Where nobody waits for the run, and this process is kept from reading the line until another
    start has come, that one's directory is taken for it."""

    def __init__(self, working_directory: Path) -> None:
        self._working_directory = working_directory
        self._held: dict[Path, int] = {}

    def __del__(self) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)

    def hear(self, line: str) -> None:
        """A line of what the program says."""
        if found := _STARTED.match(line) or _RESUMED.match(line):
            named = self._working_directory / found[1]
            if named not in self._held:
                with contextlib.suppress(OSError, ValueError):  # A name that cannot be encoded does not end the thread.
                    self._held[named] = os.open(named, os.O_RDONLY | os.O_DIRECTORY)

    def now(self, named: Path) -> Path:
        """Where the directory is that had this name: `fresh=True` sets it aside as NAME-2, or a higher number. Returns the
        name if the directory is gone. Raises FileNotFoundError where another directory has that."""
        if named not in self._held:
            return named
        for place in itertools.chain([named], named.parent.glob(glob.escape(named.name) + "-*")):
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(place), os.fstat(self._held[named])):
                    return place
        if named.exists():
            raise FileNotFoundError(f"{named}: another run has this directory now, and this one's is gone")
        return named


class Run:
    """A run in a process of its own. It ends, after saving, when Python ends, and when a cell that
    waits for it, or iterates over it, is interrupted; `run()` with the same arguments resumes it.

    working_directory: from where relative paths of its run file count.

    Used as a context (`with run(...) as r:`), it is stopped where the block is left."""

    def __init__(self, words: Sequence[str], directory: Optional[PathLike]) -> None:
        self.working_directory = Path(directory if directory is not None else ".").absolute()
        if not self.working_directory.is_dir():
            raise Mistake(f"{directory}: no such directory; make it, or leave directory out to run in the current one", 2)
        self._process = start(words, self.working_directory)
        assert self._process.stdout is not None and self._process.stderr is not None
        self._out = Lines(self._process.stdout)
        self._homes = _Homes(self.working_directory)
        self._said = Lines(self._process.stderr, self._homes.hear)

    @property
    def directory(self) -> Path:
        """The run's directory, also after another start has set it aside (`fresh=True`). Waits until the program has
        begun the run; raises its error. Raises FileNotFoundError where the directory is gone, removed or moved by
        hand, and another run has its name."""
        resumed: Optional[Path] = None
        for line in self._said.each():
            if found := _STARTED.match(line):
                return self._homes.now(self.working_directory / found[1])
            if found := _RESUMED.match(line):
                resumed = self.working_directory / found[1]
        self.wait()
        if resumed is not None and ((home := self._homes.now(resumed)) / "config.toml").is_file():
            return home  # All steps were done before.
        raise RuntimeError(f"the program has trained nothing: {self._said.now().strip()}")

    @property
    def exit_code(self) -> Optional[int]:
        """0: finished; 75: stopped after saving; 1, 2 or negative: an error; None: it goes on."""
        self._said.check_owner()  # A fork is told 0 of a process that is not its child.
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
        metrics.jsonl, also where a loss of ranks has steps done again. Raises the program's error at the end, if
        it has one."""
        newest = NewestSteps()
        with interrupts(self._process) as use:
            use.serves(sys._getframe().f_back)
            for line in self._out.each():
                read = object_of(line)  # With profile=True, a table follows the last one.
                if read is None or "step" not in read or "unix_ms" in read:  # Those are events.
                    continue
                if not newest.has(read):
                    newest.note(read)
                    yield read
                    use.serves(sys._getframe().f_back)
            self._finish()

    def wait(self, timeout: Optional[float] = None) -> "Run":
        """Waits for the end. Raises TimeoutError, or the program's error."""
        self._said.check_owner()
        with interrupts(self._process):
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                raise TimeoutError(f"the run goes on after {timeout} s") from None
            self._finish()
        return self

    def stop(self, save: bool = True, timeout: Optional[float] = None) -> "Run":
        """Ends the run, and waits for that: after it has saved, or at once. Does nothing after the
        end. Raises TimeoutError if it has not saved in time; it is still about to. Raises the program's
        error if it could not save."""
        was_running = self.running
        end(self._process, signal.SIGTERM if save else signal.SIGKILL)
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the run is still saving after {timeout} s") from None
        if save and was_running:
            self._finish()
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

    def __exit__(self, kind: Optional[type[BaseException]], *_: object) -> None:
        with contextlib.suppress(*[] if kind is None else [ActorTrainError]):  # The block's own error is told.
            self.stop()

    def __repr__(self) -> str:
        if os.getpid() != self._said.owner:
            return f"<actortrain.Run {self._process.pid}: of process {self._said.owner}>"
        code = self.exit_code
        state = "running" if code is None else {0: "finished", 75: "stopped"}.get(code, f"exit code {code}")
        return f"<actortrain.Run {self._process.pid}: {state}>"

    def _finish(self) -> None:
        self._said.check_owner()
        code = self._process.wait()
        said = self._said.whole()  # All has been heard: the directory is known from now on.
        if code not in _FINISHED:
            raise error_of(code, said)


def run(config: PathLike, *, set: Optional[Settings] = None, directory: Optional[PathLike] = None,
        fresh: bool = False, accept_data: bool = False, accept_config: Union[str, Sequence[str]] = (),
        profile: bool = False) -> Run:
    """Trains what a run file describes, or resumes it; returns at once.

    set: values instead of the file's, by key. directory: where the program runs, from where the
    file's relative paths count; by default the current one. The rest as `actortrain run` has it."""
    words = ["run", os.fspath(config), "--json", *set_words(set),
             *option_words(fresh=fresh, accept_data=accept_data, accept_config=several(accept_config), profile=profile)]
    return Run(words, directory)


def _json_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file that are objects; none if it is not there yet. Raises FileNotFoundError if its
    directory is gone."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise
        return []
    lines = content[:content.rfind(b"\n") + 1].split(b"\n")[:-1]
    return [read for line in lines if (read := object_of(line)) is not None]


def _frame(lines: list[dict[str, Any]], frame: str) -> Any:
    if frame not in ("auto", "pandas", "polars", "list"):
        raise ValueError(f'frame is "auto", "pandas", "polars" or "list", not "{frame}"')
    for name in ("pandas", "polars") if frame == "auto" else () if frame == "list" else (frame,):
        try:
            package = importlib.import_module(name)
        except ImportError as missing:
            if frame != "auto":
                raise ImportError(f'{missing}; install it: pip install {name}, or take the frame "list"', name=name) from missing
            continue
        if name == "polars":
            return package.DataFrame(lines, infer_schema_length=None, strict=False)
        return package.DataFrame(lines)
    return lines
