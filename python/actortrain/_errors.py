"""Errors of the program, as exceptions."""

from __future__ import annotations

import re
from typing import Optional, Sequence

_PLACE = re.compile(r"(?P<file>[^:]+(?:\.toml|\.jsonl?|\.csv|\.tsv|\.txt)|[^:]+(?=: no such run file))(?::(?P<line>\d+))?: "
                    r"(?P<rest>.*)", re.DOTALL)
_SET = re.compile(r"--set (?P<key>[^=\s]+)=.*?: ")
_UNKNOWN = re.compile(r'unknown (?:key|section) "(?P<key>[^"]+)"')
_WORD = re.compile(r"[a-z_0-9]+\.[a-z_0-9]+")


class ActorTrainError(Exception):
    """The program ended with an error.

    message: its line, or its lines. file, line: where a run file or the data is wrong. key: the key
    of the run file that the line names, or that was set. fix: the way out, the part of the line
    after the first semicolon. All but the message are None where the program does not say them, as
    where it ended without a line of an error (`told` is false, and the message is no such line).
    exit_code: 1 or 2; a negative number is the signal that killed it."""

    def __init__(self, message: str, exit_code: int, keys: Sequence[str] = (), told: bool = True) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.file: Optional[str] = None
        self.line: Optional[int] = None
        self.key: Optional[str] = None
        self.fix: Optional[str] = None
        if not told:
            return
        first = message.split("\n", 1)[0]
        if place := _PLACE.match(first):
            self.file = place["file"]
            self.line = int(place["line"]) if place["line"] else None
            first = place["rest"]
        elif given := _SET.match(first):
            self.key = given["key"]
        if unknown := _UNKNOWN.search(first):
            self.key = unknown["key"]
        known = set(keys)
        named = [word for word in _WORD.findall(first) if word in known]
        if self.key is None and named:
            self.key = named[0]
        cause, semicolon, fix = first.partition("; ")
        if semicolon:
            self.fix = fix


class Mistake(ActorTrainError):
    """A mistake in the call, the run file or the data; nothing was started (exit code 2)."""


class Failure(ActorTrainError):
    """A full disk, a damaged file, a lost process (exit code 1, or a signal)."""


def error_of(exit_code: int, lines: str) -> ActorTrainError:
    """The error that a program reports by its exit code, on its standard error."""
    written = lines.rstrip("\n").split("\n")
    said = [line[len("error "):] for line in written if line.startswith("error ")]
    told = bool(said)
    if exit_code < 0:
        said.append(f"the program was killed by signal {-exit_code}")
    last = "; ".join(written[-3:])
    message = "\n".join(said) or f"the program ended with exit code {exit_code}" + (f": {last}" if last else "")
    from ._commands import known_keys
    kind = Mistake if exit_code == 2 else Failure
    return kind(message, exit_code, known_keys(), told)
