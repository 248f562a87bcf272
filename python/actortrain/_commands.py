"""Commands that end by themselves."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import numbers
import os
import re
import signal
import subprocess
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping, Optional, Protocol, Sequence, Union, overload

from ._errors import ActorTrainError, Mistake, dropped_of, error_of, warnings_of
from ._program import PathLike, end, start

Message = Mapping[str, Any]
Settings = Mapping[str, Any]  # Texts, paths, numbers, booleans, lists of them, and inline tables.


class Table(Protocol):
    """A table of pandas or polars, whose own iterator gives its columns."""

    @property
    def columns(self) -> Any: ...


Rows = Union[PathLike, Sequence[Path], Table, Iterable[Mapping[str, Any]], Iterable[str]]


class HasDirectory(Protocol):
    """A Run, whose directory may stand for it."""

    @property
    def directory(self) -> Path: ...


Target = Union[PathLike, HasDirectory]


def plain(value: Any, name: str) -> Any:
    """A text, bool, int, float, list or mapping of Python's own: also of a path, or of what numpy or
    torch has. name: what the value is given for, in errors."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    elif hasattr(value, "tolist") and not isinstance(value, memoryview):  # An array, or a number of one.
        value = value.tolist()
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray, memoryview)):
        return list(value)
    if value is None:
        raise TypeError(f"{name} is None; leave it out, or give a text, a path, a number, a boolean or a list")
    raise TypeError(f"{name} is a {type(value).__name__}; give a text, a path, a number, a boolean or a list")


def value_text(value: Any, name: str) -> str:
    """A value as --set reads it: TOML, but for texts, which may be bare where they do not begin with a quote."""
    value = plain(value, name)
    return value if isinstance(value, str) and value[:1] not in ("'", '"') else inner_text(value, name)


def inner_text(value: Any, name: str) -> str:
    """A value as TOML on one line; a mapping is an inline table."""
    value = plain(value, name)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # That JSON allows, TOML does not.
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {inner_text(one, f'{name}.{key}')}" for key, one in value.items()) + "}"
    return "[" + ", ".join(inner_text(one, f"{name}[{number}]") for number, one in enumerate(value)) + "]"


def set_words(values: Optional[Settings]) -> list[str]:
    """Options --set for keys; also for sections: {"optimizer": {"lr": 1e-3}}."""
    words: list[str] = []
    if values is not None and not isinstance(values, Mapping):
        raise TypeError(f"set is {_kind(values)}, not a dict of keys and values; give it as set={{{_first_set(values)}}}")
    for key, value in (values or {}).items():
        section = isinstance(value, Mapping) and "." not in key
        for name, one in [(f"{key}.{name}", one) for name, one in value.items()] if section else [(key, value)]:
            words += ["--set", f"{name}={value_text(one, name)}"]
    return words


def _kind(value: Any) -> str:
    """A value's type with its article, in errors."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _first_set(values: Any) -> str:
    """The dict that was meant by a text, or a list of texts, of the form KEY=VALUE; else an example."""
    texts = [values] if isinstance(values, str) else values if isinstance(values, (list, tuple)) else []
    pairs = [one.partition("=") for one in texts if isinstance(one, str)]
    if not pairs or len(pairs) != len(texts) or not all(equals for _, equals, _ in pairs):
        return '"run.steps": 100'
    return ", ".join(f"{json.dumps(key)}: {json.dumps(_number(value))}" for key, _, value in pairs)


def option_words(**options: Any) -> list[str]:
    """Options of a command: none for None and False, a flag for True, repeated for a list."""
    words: list[str] = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        value = None if value is None else plain(value, name)
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
        else:
            for number, one in enumerate(value) if isinstance(value, list) else [(None, value)]:
                one = plain(one, name if number is None else f"{name}[{number}]")
                if isinstance(one, (bool, list, dict)):
                    raise TypeError(f"{name} has a {type(one).__name__}; give texts, paths or numbers")
                words += [option, str(one)]
    return words


def several(values: Union[PathLike, Sequence[PathLike]]) -> list[PathLike]:
    """A list, also of what was given alone."""
    return [values] if isinstance(values, (str, os.PathLike)) else list(values)


def call(words: Sequence[str], directory: Optional[PathLike] = None, stands_for: Optional[Mapping[str, str]] = None) -> str:
    """Runs a command to its end; returns what it printed. An interrupt ends the command as well. What it warns of is a
    warning of Python, to whoever called the function that calls this.

    directory: where it runs; by default the current one. stands_for: as error_of() has it."""
    process = start(words, directory)
    try:
        out, said = process.communicate()
    except BaseException:
        end(process)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            end(process, signal.SIGKILL)
            process.wait()
        raise
    if process.returncode != 0:
        raise error_of(process.returncode, said.decode("utf-8", "replace"), stands_for)
    for line in warnings_of(said.decode("utf-8", "replace"), stands_for):
        warnings.warn(line, stacklevel=3)
    return out.decode("utf-8", "replace")


@functools.lru_cache(maxsize=1)
def known_keys() -> tuple[str, ...]:
    """All keys of a run file; none if the program cannot be asked."""
    process = start(["config", "schema"])
    out, _ = process.communicate()
    if process.returncode != 0:
        return ()
    sections = json.loads(out)["properties"]
    return tuple(f"{section}.{key}" for section, content in sections.items()
                 for key in content["properties"])


def schema() -> dict[str, Any]:
    """JSON Schema of run files."""
    read: dict[str, Any] = json.loads(call(["config", "schema"]))
    return read


@overload
def prepare(data: Rows, out: PathLike, *, tokenizer: PathLike = "bytes", row_length: int = 0, **options: Any) -> Path: ...


@overload
def prepare(data: Rows, tokenizer: PathLike, out: PathLike, *, row_length: int = 0, **options: Any) -> Path: ...


def prepare(data: Rows, *places: PathLike, row_length: int = 0, **options: Any) -> Path:
    """Makes a data directory from files, rows or texts, and returns it: prepare(data, out), with the
    tokenizer "bytes", prepare(data, out, tokenizer=...), or prepare(data, tokenizer, out).

    data: a path or a list of paths; or rows, as dicts (a list, a generator, a `datasets.Dataset`, a
    table of pandas or polars) with the members that `data prepare` reads, such as "messages"; rows
    are written as JSON lines to a file that is removed afterwards. Of a list, strings are texts, and
    Path objects files. options: those of `data prepare`, with underscores."""
    names = ("out",) if len(places) == 1 and "out" not in options else ("tokenizer", "out")[:2 - ("out" in options)]
    if len(places) > len(names) or any(name in options for name in names[:len(places)]):
        raise TypeError("prepare() takes data, out or data, tokenizer, out, each once")
    options = {"tokenizer": "bytes", **dict(zip(names, places)), **options}
    if "out" not in options:
        raise TypeError("prepare() wants out, the directory to make")
    out = os.fspath(options["out"])
    words = option_words(row_length=row_length or None, **options)
    if isinstance(data, (list, tuple)) and data and all(isinstance(one, str) and os.path.isfile(one) for one in data):
        raise TypeError(f"data is a list of texts that are names of files, as {data[0]!r}; give files as Path objects: "
                        "[Path(name) for name in data]")
    stands_for: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        if isinstance(data, (str, os.PathLike)):
            inputs = [os.fspath(data)]
        elif isinstance(data, (list, tuple)) and data and all(isinstance(one, Path) for one in data):
            inputs = [os.fspath(one) for one in data]
        else:
            inputs = [os.path.join(stack.enter_context(tempfile.TemporaryDirectory(prefix="actortrain-")), "rows.jsonl")]
            stands_for = {inputs[0]: "row"}
            _write_rows(data, inputs[0])
        printed = call(["data", "prepare", *[word for one in inputs for word in ("--input", one)], *words], stands_for=stands_for)
    if dropped := dropped_of(printed, stands_for):
        warnings.warn(dropped, stacklevel=2)
    return Path(out)


def _write_rows(data: Any, path: str) -> None:
    """Writes rows as JSON lines. Raises Mistake where there is none, and ValueError with the row's number and member."""
    number = -1
    try:
        with open(path, "wb") as file:
            for number, row in enumerate(_rows_of(data)):
                try:
                    if not isinstance(row, str) and not hasattr(row, "keys"):
                        raise TypeError(f"it is {_kind(row)}")
                    line = {"text": row} if isinstance(row, str) else dict(row)
                    file.write(_json(line) + b"\n")
                except (TypeError, ValueError) as error:
                    raise ValueError(f"row {number} is no JSON object: {error}") from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(error.errno, f"{os.strerror(error.errno)} for the rows, which are written to a file until they are "
                      "prepared; name a directory with more room by the environment variable TMPDIR", path) from error
    if number < 0:
        raise Mistake("data has no rows; give at least one", 2)


def _json(row: Mapping[str, Any]) -> bytes:
    """A row as JSON on one line. Raises ValueError, which names the member."""
    try:
        return _json_text(row)
    except (TypeError, ValueError) as error:
        for name, value in row.items():
            try:
                _json_text({name: value})
            except (TypeError, ValueError) as wrong:
                raise ValueError(f"its member {name!r}: {wrong}; give a value of JSON, or leave the member out") from error
        raise


def _json_text(value: Any) -> bytes:
    """Raises UnicodeEncodeError, a ValueError, for half a surrogate pair."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_of_json).encode()


def _of_json(value: Any) -> Any:
    """What stands for a value that JSON does not have: one of numpy or torch, a path, a date."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist") and not isinstance(value, memoryview):
        return value.tolist()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"it is, or has, {_kind(value)}")


def _rows_of(data: Any) -> Iterator[Any]:
    """The rows of a list, a generator or a table. Refuses what would give names in their place."""
    if isinstance(data, Mapping):
        names = list(data)
        split = "train" if "train" in names else names[0] if names else "train"
        raise TypeError(f"data is a mapping ({', '.join(map(repr, names[:5]))}), not rows; give one of its splits, as "
                        f"data[{split!r}], or a list of dicts")
    if isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"data is {_kind(data)}; give a text in a list, as [data.decode()], or the path of a file")
    if hasattr(data, "iloc") and hasattr(data, "columns"):  # A table of pandas, whose JSON has no types of numpy.
        return (_without_none(row) for begin in range(0, len(data), 1000) for row in json.loads(
            data.iloc[begin:begin + 1000].to_json(orient="records", date_format="iso", double_precision=15)))
    if hasattr(data, "iter_rows"):  # Of polars.
        return (_without_none(row) for row in data.iter_rows(named=True))
    if hasattr(data, "features") and hasattr(data, "column_names"):  # Of datasets, whose structs have all members, too.
        return (_without_none(row) for row in data)
    if hasattr(data, "collect_schema"):
        raise TypeError("data is a query, not rows; give what it finds, as data.collect()")
    try:
        return iter(data)
    except TypeError:
        raise TypeError(f"data is {_kind(data)}; give a path, a list of paths, rows as dicts, or texts") from None


def _without_none(value: Any) -> Any:
    """A table's row has every member that any row has: None is one that it lacks."""
    if hasattr(value, "keys"):
        return {key: _without_none(value[key]) for key in value.keys() if value[key] is not None}
    return [_without_none(one) for one in value] if isinstance(value, list) else value


def plan(config: PathLike, *, set: Optional[Settings] = None, tensors: bool = False,
         vocab: Optional[int] = None) -> str:
    """What each rank of a run would keep, compute and send, as text."""
    return call(["plan", os.fspath(config), *set_words(set), *option_words(tensors=tensors, vocab=vocab)])


def evaluate(target: Target, *, step: Union[int, str, None] = None, ranks: int = 1, ema: bool = False,
             device: Optional[str] = None, choices: Union[PathLike, Sequence[PathLike]] = (),
             context: Optional[int] = None) -> dict[str, Any]:
    """Evaluates a checkpoint of a run, the newest by default: step, loss, accuracy, and where they
    are defined perplexity and bits_per_byte.

    With choices, files of questions, also for a published model: of each file, and of "all" if there
    are several, a dict under its name, with questions, acc, acc_norm and the rest; and digest."""
    given = {os.fspath(file): os.fspath(file) for file in several(choices)}
    path = _path(target)
    directory: Optional[Path] = getattr(target, "working_directory", None)  # From where the run's relative paths count.
    if directory is not None and directory != Path.cwd():
        given = {os.path.abspath(file): file for file in given}
    words = option_words(step=step, ranks=ranks, ema=ema, device=device, context=context, choices=list(given))
    result = _read_evaluation(call(["eval", path, *words], directory))
    return {given.get(name, name): value for name, value in result.items()}


def _read_evaluation(text: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for line in text.split("\n"):
        if line.startswith("eval "):
            for word in line.split()[1:]:
                name, equals, value = word.partition("=")
                if equals:
                    result[name] = _number(value)
        elif found := re.match(r"choices (.+): (\d+) questions, (.*)", line):
            scores: dict[str, Any] = {"questions": int(found[2])}
            for part in found[3].split(", "):
                name, value = part.rsplit(" ", 1)
                scores[name] = _number(value)
            result[found[1]] = scores
    return result


def _number(text: str) -> Union[int, float, str]:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _path(target: Target) -> str:
    """A run's directory, of a Run or a path."""
    return os.fspath(target if isinstance(target, (str, os.PathLike)) else target.directory)


@dataclass(frozen=True)
class Generation:
    """A prompt and what follows it. tokens, logprobs: of what was written, with logprobs=True."""

    prompt: Union[str, Sequence[Message]]
    text: str
    tokens: Optional[list[int]] = None
    logprobs: Optional[list[float]] = None


def generate(target: Target, prompts: Union[str, Sequence[Union[str, Sequence[Message]]]] = "", *,
             logprobs: bool = False, chat: bool = False, system: Optional[str] = None,
             **options: Any) -> list[Generation]:
    """Continues prompts with a run's checkpoint or a published model; one result for each.

    chat: prompts are user messages, or lists of messages. A prompt of several lines needs chat.
    options: those of `generate`, with underscores: tokens, temperature, top_k, top_p, seed, stop,
    step, context, batch, template, date."""
    if system is not None and not chat:
        raise ValueError("system is a message of a conversation; pass chat=True, or leave it out")
    several = [prompts] if isinstance(prompts, str) else list(prompts)
    lines: list[str] = []
    for number, prompt in enumerate(several):
        if chat and (isinstance(prompt, Mapping) or not isinstance(prompt, Iterable)):
            raise TypeError(f"prompt {number} is {_kind(prompt)}, not a text or a list of messages; give a conversation in a list "
                            "of prompts, as [conversation]")
        if chat:
            lines.append(json.dumps(_conversation(prompt, system), ensure_ascii=False))
        elif not isinstance(prompt, str):
            raise TypeError(f"prompt {number} is {_kind(prompt)}, not a text; pass chat=True for a conversation")
        elif "\n" in prompt or "\r" in prompt:
            raise ValueError(f"prompt {number} has a line break, which a file of prompts cannot hold; pass chat=True, "
                             "or only its last line")
        else:
            lines.append(prompt)
    if not lines:
        return []
    with tempfile.TemporaryDirectory(prefix="actortrain-") as folder:
        file = Path(folder) / "prompts.txt"
        file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        said = call(["generate", _path(target), "--prompts", str(file),
                     *option_words(logprobs=logprobs, chat=chat, **options)], stands_for={str(file): "prompt"})
    written = [json.loads(line) for line in said.split("\n") if line]
    return [Generation(prompt, one["text"], one.get("tokens"), one.get("logprobs"))
            for prompt, one in zip(several, written)]


def _conversation(prompt: Union[str, Sequence[Message]], system: Optional[str]) -> list[Message]:
    first: list[Message] = [] if system is None else [{"role": "system", "content": system}]
    return first + ([{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt))


def export(target: Target, out: PathLike, *, format: str = "hf", **options: Any) -> Path:
    """Writes a checkpoint's weights for other programs; returns `out`. options: those of `export`."""
    call(["export", _path(target), *option_words(out=os.fspath(out), format=format, **options)])
    return Path(out)


@dataclass(frozen=True)
class RunInfo:
    """A run's directory and what `actortrain status --json` says of it; None: it has no status."""

    name: str
    directory: Path
    status: Optional[dict[str, Any]]


def runs(directory: PathLike = "runs") -> list[RunInfo]:
    """All runs of a directory, by name; of a run's own directory, that run."""
    if not Path(directory).is_dir():
        raise Mistake(f"{directory}: no such directory; give the one that holds runs", 2)
    whole = Path(os.path.abspath(directory))
    alone = (whole / "config.toml").is_file()
    found: list[RunInfo] = []
    for path in [Path(directory)] if alone else sorted(Path(directory).iterdir()):
        if not (path / "config.toml").is_file():
            continue
        try:
            status = json.loads(call(["status", str(path), "--json"]))
        except ActorTrainError:
            status = None
        found.append(RunInfo(whole.name if alone else path.name, path, status))
    return found
