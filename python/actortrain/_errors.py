"""Errors of the program, as exceptions."""

from __future__ import annotations

import json
import re
from typing import Any, Mapping, Optional, Sequence

# The words before a file that are none of its name, and the file with its line.
_ACCESS = re.compile(r"cannot (?:read|write|copy|create directory|write index) (?P<file>\S.*?)(?::(?P<line>\d+))?: (?P<rest>.*)",
                     re.DOTALL)
_PLACE = re.compile(r"(?!--)(?P<file>(?:(?!: |; ).)+?(?:\.toml|\.jsonl?|\.csv|\.tsv|\.txt)(?=:\d+: |: )"
                    r"|(?:(?!: |; ).)+(?=: no such (?:run file|directory)))"
                    r"(?::(?P<line>\d+))?: (?P<rest>.*)", re.DOTALL)
_FIRST_AT = re.compile(r"the first at (?P<file>(?:(?!: |; ).)+?):(?P<line>\d+)(?=[;,]|$)")
_SET = re.compile(r"--set (?P<key>[^=\s]+)=.*?: ")
_UNKNOWN = re.compile(r'unknown (?:key|section) "(?P<key>[^"]+)"')
_WORD = re.compile(r"[a-z_0-9]+\.[a-z_0-9]+")

# Options that are keywords of the functions, as the program's sentences name them: those that are
# True or left out, and the words that stand for a value of the others.
_FLAGS = {"accept-data", "chat", "ema", "force", "fresh", "logprobs", "no-tokenizer", "profile", "tensors"}
_VALUES = {
    "accept-config": r"[a-z_0-9]+\.[a-z_0-9]+",
    "batch": "", "choices": "", "context": "", "date": "", "document-separator": "", "keywords": "",
    "dtype": "fp32|bf16|fp16|q8_0|q4_k_m",
    "format": "hf|peft|gguf-lora|gguf",
    "input-format": "text|json|csv|tsv",
    "kind": "chat|prompt|preference|kto|text",
    "max-dropped": "", "max-shard-size": "",
    "mtp": "none",
    "out": "",
    "packing": "bfd_split|bfd|wrapped|greedy|none",
    "ranks": "", "row-length": "", "seed": "", "source-key": "",
    "step": "best",
    "stop": "", "system": "",
    "template": r"(?<=with --template )[\w.-]+",
    "temperature": "", "threads": "", "tokenizer": "bytes", "tokens": "", "top-k": "", "top-p": "",
    "train-on": "all|last|thinking|final",
    "val-fraction": "", "vocab": "",
}
_SHELL = re.compile(r'`(?:actortrain|iconv|\./dev) [^`]*`|"actortrain [^"]*"')
_SET_OPTION = re.compile(r"(?P<quote>\"?)--set (?P<key>[a-z_0-9]+\.[a-z_0-9]+)="
                         r"(?P<value>[^\s;,\"'\[\]{}]*[^\s;,:\"'\[\]{}])(?=[\s;,:)\"?]|$)(?P=quote)")
_QUOTED_OPTION = re.compile(r'"--(?P<name>[a-z][a-z-]*)"')
_OPTION = re.compile("|".join(
    [rf"--(?P<flag>{'|'.join(sorted(_FLAGS))})(?![\w-])"]
    + [rf"--(?P<v{number}>{name})(?![\w-])"
       rf"(?: (?P<w{number}>(?:[A-Z][A-Z|]*|\d[\d.]*{'|' + words if words else ''})(?![\w.-]*\w)))?"
       for number, (name, words) in enumerate(_VALUES.items())]))


def _literal(text: str) -> str:
    """A value of an option as Python has it; words in capitals stand for a value."""
    if text in ("true", "false"):
        return text.title()
    return text if re.fullmatch(r"[A-Z][A-Z|]*|-?\d+(\.\d+)?(e-?\d+)?", text) else json.dumps(text, ensure_ascii=False)


def _keyword(found: "re.Match[str]") -> str:
    if found["flag"]:
        left_out = re.search(r"leave $", found.string[:found.start()])
        return found["flag"].replace("-", "_") + ("" if left_out else "=True")
    name, value = next((one, found[f"w{number}"]) for number in range(len(_VALUES)) if (one := found[f"v{number}"]))
    return name.replace("-", "_") + (f"={_literal(value)}" if value else "")


def in_python(text: str) -> str:
    """The program's sentence with keywords of the functions in the place of options. Commands that
    it quotes stay as a shell takes them."""
    parts: list[str] = []
    place = 0
    for shell in [*_SHELL.finditer(text), None]:
        part = text[place:shell.start() if shell else None]
        part = _SET_OPTION.sub(lambda found: f'set={{"{found["key"]}": {_literal(found["value"])}}}', part)
        part = _QUOTED_OPTION.sub(lambda found: f'"{found["name"].replace("-", "_")}"', part)
        parts.append(_OPTION.sub(_keyword, part))
        if shell:
            parts.append(shell[0])
            place = shell.end()
    return "".join(parts)


class ActorTrainError(Exception):
    """The program ended with an error.

    message: its line, or its lines, with keywords in the place of options. file, line: where a run
    file or the data is wrong. key: the key of the run file that the line names, or that was set.
    fix: the way out, the part of the line after the first semicolon. All but the message are None
    where the program does not say them, as where it ended without a line of an error (`told` is
    false, and the message is no such line). exit_code: 1 or 2; a negative number is the signal that
    killed it."""

    def __init__(self, message: str, exit_code: int, keys: Sequence[str] = (), told: bool = True) -> None:
        self.message = in_python(message) if told else message
        super().__init__(self.message)
        self.exit_code = exit_code
        self.file: Optional[str] = None
        self.line: Optional[int] = None
        self.key: Optional[str] = None
        self.fix: Optional[str] = None
        if not told:
            return
        first = message.split("\n", 1)[0]
        if place := _ACCESS.match(first) or _PLACE.match(first):
            self.file = place["file"]
            self.line = int(place["line"]) if place["line"] else None
            first = place["rest"]
        elif given := _SET.match(first):
            self.key = given["key"]
        elif place := _FIRST_AT.search(first):
            self.file, self.line = place["file"], int(place["line"])
        if unknown := _UNKNOWN.search(first):
            self.key = unknown["key"]
        known = set(keys)
        named = [word for word in _WORD.findall(first) if word in known]
        if self.key is None and named:
            self.key = named[0]
        cause, semicolon, fix = first.partition("; ")
        if semicolon:
            self.fix = in_python(fix)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies, and what a pool of processes hands on, have the parts as they are: not those of the message again."""
        return _again, (type(self), self.args), self.__dict__


def _again(kind: type[ActorTrainError], arguments: tuple[Any, ...]) -> ActorTrainError:
    return kind.__new__(kind, *arguments)


class Mistake(ActorTrainError):
    """A mistake in the call, the run file or the data, or a run that another process is training
    (exit code 2)."""


class Failure(ActorTrainError):
    """A full disk, a damaged file, a lost process (exit code 1, or a signal)."""


def error_of(exit_code: int, lines: str, stands_for: Optional[Mapping[str, str]] = None) -> ActorTrainError:
    """The error that a program reports by its exit code, on its standard error.

    stands_for: files that hold what the caller gave, with the name of one of its lines: {"/tmp/x/rows.jsonl": "row"}.
    The message names the lines as the caller counts them, from 0."""
    written = lines.rstrip("\n").split("\n")
    said = _lines_of("error", lines, stands_for)
    told = bool(said)
    if exit_code < 0:
        said.append(f"the program was killed by signal {-exit_code}")
    last = "; ".join(written[-3:])
    message = "\n".join(said) or f"the program ended with exit code {exit_code}" + (f": {last}" if last else "")
    from ._commands import known_keys
    kind = Mistake if exit_code == 2 else Failure
    return kind(message, exit_code, known_keys(), told)


def warnings_of(lines: str, stands_for: Optional[Mapping[str, str]] = None) -> list[str]:
    """What a program has warned of on its standard error, with keywords in the place of options."""
    return [in_python(line) for line in _lines_of("warning", lines, stands_for)]


def dropped_of(printed: str, stands_for: Optional[Mapping[str, str]] = None) -> Optional[str]:
    """The table of what `data prepare` has dropped, as a sentence; None: nothing."""
    _, _, table = printed.partition("  DROPPED  REASON")
    rows = re.findall(r"^ {0,8}(\d+)  (.*?)  +(\S.*)$", table.partition("\n")[2], re.MULTILINE)
    parts = [f"{count} dropped: {reason}, the first at {_with_names(first, stands_for or {})}" for count, reason, first in rows]
    return "; ".join(parts) or None


def _lines_of(level: str, lines: str, stands_for: Optional[Mapping[str, str]]) -> list[str]:
    begin = level + " "
    return [_with_names(line[len(begin):], stands_for or {}) for line in lines.split("\n") if line.startswith(begin)]


def _with_names(line: str, stands_for: Mapping[str, str]) -> str:
    for file, name in stands_for.items():
        line = re.sub(re.escape(file) + r":(\d+)", lambda found: f"{name} {int(found[1]) - 1}", line)
        if file in line:
            line = line.replace(file, f"the {name}s").replace("a file that is not empty", f"{name}s that are not empty")
    return line
