"""What an interrupt of Python's main thread ends: the runs that it waits for, or iterates over."""

from __future__ import annotations

import contextlib
import inspect
import signal
import subprocess
import threading
from types import CodeType, FrameType
from typing import Any, Callable, Iterator, Optional

from ._program import end

_SUSPENDED = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Use:
    """A run's process, which the main thread waits for or whose lines it iterates over."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._interrupted = False
        self._loop: Optional[tuple[int, CodeType]] = None

    def serves(self, frame: Optional[FrameType]) -> None:
        """From now on the use is that of a loop in `frame`: where that has ended, though its iterator
        was kept, an interrupt does not concern the run."""
        while frame is not None and frame.f_code.co_flags & inspect.CO_GENERATOR:
            frame = frame.f_back  # Of a generator that iterates over the run, its loop counts.
        self._loop = None if frame is None or frame.f_code.co_flags & _SUSPENDED else (id(frame), frame.f_code)

    def concerned_by(self, frame: Optional[FrameType]) -> bool:
        """True if the loop is in the interrupted `frame`, or in one that has called it."""
        if self._loop is None:
            return True
        while frame is not None and (id(frame), frame.f_code) != self._loop:
            frame = frame.f_back
        return frame is not None

    def interrupt(self) -> None:
        self._interrupted = True
        end(self._process)

    def finish(self) -> None:
        if self._interrupted:
            self._process.wait()


Handler = Callable[[int, Optional[FrameType]], Any]

_uses: list[Use] = []  # Those of the main thread.
_installed: Optional[tuple[Handler, Handler]] = None  # One handler for all uses, and what was there before.


def _handler_before(before: Handler) -> Handler:
    def handle(number: int, frame: Optional[FrameType]) -> None:
        for use in list(_uses):
            if use.concerned_by(frame):
                use.interrupt()
        before(number, frame)

    return handle


def _enter(use: Use) -> None:
    """A handler is needed for a loop, whose iterator does not hear why it is closed."""
    global _installed
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        return
    if _installed is None or before is not _installed[0]:
        _installed = (_handler_before(before), before)
        signal.signal(signal.SIGINT, _installed[0])
    _uses.append(use)


def _leave(use: Use) -> None:
    global _installed
    if use in _uses:
        _uses.remove(use)
    main = threading.current_thread() is threading.main_thread()
    if main and not _uses and _installed is not None:
        if signal.getsignal(signal.SIGINT) is _installed[0]:
            signal.signal(signal.SIGINT, _installed[1])
        _installed = None


@contextlib.contextmanager
def interrupts(process: "subprocess.Popen[bytes]") -> Iterator[Use]:
    """Where the main thread is interrupted in here, or in the body of a loop that this serves, the run saves
    and ends before that is left."""
    use = Use(process)
    _enter(use)
    try:
        yield use
    except KeyboardInterrupt:
        use.interrupt()
        raise
    finally:
        _leave(use)
        use.finish()
