"""What a process writes, kept as it comes."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
from typing import IO, Any, Callable, Iterator, Optional, Union


def object_of(line: Union[str, bytes]) -> Optional[dict[str, Any]]:
    """The JSON object of a line; None of another, as half a line is, which a run that was cut off leaves: the next
    start writes behind it."""
    try:
        read = json.loads(line)
    except ValueError:
        return None
    return read if isinstance(read, dict) else None


class NewestSteps:
    """The newest step of the lines of metrics that were taken, and that of each kind of evaluation. A resumed run,
    and one that has lost ranks, writes lines of steps before it again."""

    def __init__(self, by_kind: Optional[dict[str, int]] = None) -> None:
        self.by_kind: dict[str, int] = {} if by_kind is None else by_kind

    def has(self, line: dict[str, Any]) -> bool:
        return bool(line["step"] <= self.by_kind.get(line.get("event", "step"), -1))

    def note(self, line: dict[str, Any]) -> None:
        self.by_kind[line.get("event", "step")] = line["step"]


class Lines:
    """What a process writes, copied by a thread to a file without a name: nobody need read it in
    time, and it takes no memory. Only what the file cannot take, on a full disk, is kept in memory.

    hear: what the thread calls with each line before others have it; it may not raise."""

    def __init__(self, pipe: IO[bytes], hear: Optional[Callable[[str], None]] = None) -> None:
        self._hear = hear
        self._file: Optional[IO[bytes]] = None
        with contextlib.suppress(OSError):
            self._file = tempfile.TemporaryFile()
        self._size = 0
        self._filed = 0  # Bytes in the file; what follows them is the rest.
        self._rest = bytearray()
        self._ended = False
        self._changed = threading.Condition()
        self.owner = os.getpid()  # The thread is not in its forks.
        threading.Thread(target=self._copy, args=(pipe,), daemon=True).start()

    def __del__(self) -> None:  # When the thread has ended, too.
        if self._file is not None:
            self._file.close()

    def _copy(self, pipe: IO[bytes]) -> None:
        try:
            for line in pipe:
                if self._hear is not None:
                    self._hear(line.decode("utf-8", "replace"))
                with self._changed:
                    self._keep(line)
                    self._changed.notify_all()
        finally:
            pipe.close()
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _keep(self, line: bytes) -> None:
        self._size += len(line)
        if self._file is not None and not self._rest:
            with contextlib.suppress(OSError):
                written = os.pwrite(self._file.fileno(), line, self._filed)
                self._filed += written
                line = line[written:]
        self._rest += line

    def _piece(self, place: int, size: int) -> bytes:
        """At most so many bytes from `place` on."""
        if self._file is not None and place < self._filed:
            return os.pread(self._file.fileno(), min(size, self._filed - place), place)
        return bytes(self._rest[place - self._filed:place - self._filed + size])

    def after(self, place: int) -> Optional[bytes]:
        """Waits for what follows the first `place` bytes; None at the end. RuntimeError: it would wait in a fork."""
        with self._changed:
            while self._size <= place and not self._ended:
                self.check_owner()
                self._changed.wait()
            if self._size <= place:
                return None
            return self._piece(place, 1 << 20)

    def check_owner(self) -> None:
        if os.getpid() != self.owner:
            raise RuntimeError(f"process {self.owner} has started this run and alone can follow it, not its fork "
                               f"{os.getpid()}; call this there, or read the files of the run's directory")

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
            filed = self._piece(0, self._filed) if self._filed else b""
            return (filed + bytes(self._rest)).decode("utf-8", "replace")

    def whole(self) -> str:
        with self._changed:
            while not self._ended:
                self.check_owner()
                self._changed.wait()
        return self.now()
