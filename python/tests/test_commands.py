"""Commands that end by themselves, and the errors that they raise."""

from __future__ import annotations

import copy
import datetime
import errno
import fractions
import json
import math
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator

import pytest

import actortrain as at
from actortrain import _commands
from actortrain._commands import _read_evaluation, option_words, set_words
from actortrain._errors import ActorTrainError, error_of

if TYPE_CHECKING:
    import pandas
    import polars

    def checkers_allow_tables(first: pandas.DataFrame, second: polars.DataFrame) -> None:
        at.prepare(first, "out")
        at.prepare(second, "out")


def test_rows_are_prepared_as_from_a_file(data: Path, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"text": f"row {number}"} for number in range(50)]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ours = at.prepare((row for row in rows), tmp_path / "ours")
    theirs = at.prepare(file, tmp_path / "theirs")
    for name in ("train.bin", "val.bin"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes()
    with pytest.raises(ValueError, match="row 1"):
        at.prepare(({"text": text} for text in ("a", math.nan)), tmp_path / "none")
    with pytest.raises(at.Mistake):
        at.prepare(rows, tmp_path / "ours")  # It has data already.
    at.prepare(rows, tmp_path / "ours", force=True)


class Splits(dict[str, Any]):
    """As datasets.DatasetDict is one."""


def test_what_is_no_rows_is_refused_with_the_way_out(tmp_path: Path) -> None:
    rows = [{"text": "x"}] * 1000
    for data, named in [(Splits(test=rows, train=rows), r'data\[\'train\'\]'), ({"text": ["x"] * 1000}, r"data\['text'\]"),
                        (b"x" * 1000, "bytes"), (bytearray(b"x" * 1000), "bytearray")]:
        with pytest.raises(TypeError, match=named):
            at.prepare(data, tmp_path / "none")  # type: ignore[arg-type]
    wrong: list[Any] = [["ab", "cd"], 1, b"x"]
    for row in wrong:
        with pytest.raises(ValueError, match="row 1 is no JSON object"):
            at.prepare([{"text": "x"}, row], tmp_path / "none")
    with pytest.raises(TypeError, match=r"names of files, as .*; give files as Path objects: \[Path"):
        at.prepare([__file__, __file__], tmp_path / "none")  # As texts, their names would be trained.
    assert not (tmp_path / "none").exists()


def test_tables_are_rows(tmp_path: Path) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    rows: list[dict[str, Any]] = [{"text": f"row {number}\u2028"} for number in range(1500)]
    expected = (at.prepare(rows, tmp_path / "rows") / "train.bin").read_bytes()
    for name, table in [("pandas", pandas.DataFrame(rows)), ("polars", polars.DataFrame(rows))]:
        assert (at.prepare(table, tmp_path / name) / "train.bin").read_bytes() == expected
    rows = [{"text": "a", "calls": [{"x": 1}], "score": 0.1}, {"text": None, "calls": [{"y": None}], "score": None}]
    for table in (pandas.DataFrame(rows), polars.DataFrame(rows, infer_schema_length=None)):
        assert list(_commands._rows_of(table)) == [rows[0], {"calls": [{}]}]
    with pytest.raises(TypeError, match="collect"):
        at.prepare(polars.DataFrame(rows, infer_schema_length=None).lazy(), tmp_path / "none")


class DataSet:
    """As datasets.Dataset: rows of one type, whose structs have None where a row has no such member."""

    column_names = ["messages", "tools"]
    features: dict[str, Any] = {}

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)


def test_what_a_row_of_a_data_set_lacks_is_left_out() -> None:
    rows: list[dict[str, Any]] = [
        {"messages": [{"role": "user", "content": "a", "name": None}], "tools": [{"x": {"type": "int"}, "y": None}],
         "label": None},
        {"messages": [], "tools": None, "label": False}]
    assert list(_commands._rows_of(DataSet(rows))) == [
        {"messages": [{"role": "user", "content": "a"}], "tools": [{"x": {"type": "int"}}]}, {"messages": [], "label": False}]


class Number:
    """As numpy or torch has one."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def tolist(self) -> Any:
        return self._value


def test_rows_hold_what_libraries_have(data: Path, tmp_path: Path) -> None:
    row = {"text": "x" * 50, "label": Number(True), "date": datetime.date(2026, 1, 2), "from": Path("a/b")}
    assert json.loads(_commands._json(row)) == {"text": "x" * 50, "label": True, "date": "2026-01-02", "from": "a/b"}
    for value, said in [(object(), "it is, or has, an object"), ([math.nan], "Out of range"), ("\ud800", "surrogates"),
                        (b"x", "it is, or has, a bytes")]:
        with pytest.raises(ValueError, match=f"^row 1 is no JSON object: its member 'image': .*{said}.*leave the member out$"):
            at.prepare([row, {"text": "x", "image": value}], tmp_path / "none")


def test_a_disk_that_rows_fill_is_named_with_the_way_out() -> None:
    with pytest.raises(OSError, match="TMPDIR") as raised:
        _commands._write_rows(["x" * 100_000], "/dev/full")
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, "/dev/full")


def test_what_the_program_warns_of_is_warned_of(run_file: Path, tmp_path: Path) -> None:
    run = at.run(run_file).wait()
    with pytest.warns(UserWarning, match="prompt_cut prompt 1: it has 50 tokens") as warned:
        at.generate(run, ["a", "b" * 50], tokens=1)
    assert [one.filename for one in warned] == [__file__]
    rows: list[dict[str, Any]] = [{"text": f"row {number}"} for number in range(50)]
    rows[7] = {"text": 3}
    with pytest.warns(UserWarning, match="^1 dropped: .*, the first at row 7$") as warned:
        at.prepare(rows, tmp_path / "data")
    assert [one.filename for one in warned] == [__file__]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.warns(UserWarning, match=f"^1 dropped: .*, the first at {file}:8$"):
        at.prepare(file, tmp_path / "data", force=True)


def test_a_conversation_that_is_no_list_of_prompts_is_refused(tmp_path: Path) -> None:
    conversation = [{"role": "user", "content": "a"}]
    wrong: list[Any] = [(conversation, True, "a dict"), ([1], True, "an int"), ([1], False, "an int"), ([conversation], False, "a list")]
    for prompts, chat, kind in wrong:
        with pytest.raises(TypeError, match=f"^prompt 0 is {kind}, not a text.*; .*conversation"):
            at.generate(tmp_path, prompts, chat=chat)
    with pytest.raises(ValueError, match="^system is .*chat=True"):
        at.generate(tmp_path, "a", system="Be brief.")


def test_the_tokenizer_may_stand_before_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []

    def call(words: list[str], **_: Any) -> str:
        said.append(words)
        return ""

    monkeypatch.setattr(_commands, "call", call)
    words = ["data", "prepare", "--input", "a.txt", "--tokenizer", "model", "--out", "made"]
    at.prepare("a.txt", "model", "made")
    at.prepare("a.txt", "made", tokenizer="model")
    assert [sorted(one) for one in said] == [sorted(words)] * 2
    prepare: Any = at.prepare
    for places, options in [((), {}), (("a", "b", "c"), {}), (("a", "b"), {"tokenizer": "c"}), (("a", "b"), {"out": "c"})]:
        with pytest.raises(TypeError, match="out"):
            prepare("a.txt", *places, **options)


def test_lines_end_at_line_feeds_alone(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = json.dumps({"text": "a\u2028b\u2029c\u0085d"}, ensure_ascii=False) + "\n"
    monkeypatch.setattr(_commands, "call", lambda words, **options: line)
    assert [one.text for one in at.generate("model", "x")] == ["a\u2028b\u2029c\u0085d"]
    assert error_of(1, "error a\u2028error b\n").message == "a\u2028error b"
    assert _read_evaluation("choices a\u2028b.jsonl: 1 questions, acc 0.5\n") == {
        "a\u2028b.jsonl": {"questions": 1, "acc": 0.5}}


def test_a_trained_model_is_evaluated_continued_and_exported(run_file: Path, tmp_path: Path) -> None:
    run = at.run(run_file).wait()
    result = at.evaluate(run)
    last = [line for line in run.metrics("list") if line.get("event") == "evaluation"][-1]
    assert result["step"] == 6
    assert result["loss"] == pytest.approx(last["val_loss"], abs=1e-6)
    texts = at.generate(run, ["one two", "three \"four\" "], tokens=5, temperature=0.0, logprobs=True)
    assert [one.prompt for one in texts] == ["one two", "three \"four\" "]
    for one in texts:
        assert one.tokens is not None and one.logprobs is not None
        assert len(one.tokens) == len(one.logprobs) <= 5
        assert all(value <= 0 for value in one.logprobs)
    assert at.generate(run, "one two", tokens=5, temperature=0.0)[0].text == texts[0].text
    assert at.generate(run, []) == []
    with pytest.raises(ValueError, match="prompt 1 has a line break"):
        at.generate(run, ["a", "b\nc"])
    with pytest.raises(at.Mistake):
        at.export(run, tmp_path / "model", format="none")
    assert (at.export(run, tmp_path / "model", dtype="bf16") / "model.safetensors").is_file()
    assert [(one.name, one.status is not None) for one in at.runs(tmp_path / "runs")] == [("tiny", True)]
    assert [one.name for one in at.runs(tmp_path / "runs" / "tiny")] == ["tiny"]


def test_a_plan_needs_no_data(run_file: Path) -> None:
    assert "memory" in at.plan(run_file, set={"parallel.ranks": 2}, vocab=257)


def test_the_schema_has_every_section() -> None:
    assert {"run", "model", "data", "optimizer"} <= set(at.schema()["properties"])


def test_options_are_words() -> None:
    assert option_words(row_length=None, force=True, ema=False, stop=["a", "b"], temperature=0.0) == [
        "--force", "--stop", "a", "--stop", "b", "--temperature", "0.0"]
    assert set_words({"a.b": True, "c": {"d": [1, 2], "e": "x"}}) == [
        "--set", "a.b=true", "--set", "c.d=[1, 2]", "--set", "c.e=x"]
    assert set_words({"data": {"sources": [{"dir": 'a "b"', "weight": 5}]}, "train.stop_after": {"patience": 3}}) == [
        "--set", 'data.sources=[{dir = "a \\"b\\"", weight = 5}]', "--set", "train.stop_after={patience = 3}"]


def test_values_of_other_types_are_those_of_python() -> None:
    assert set_words({"data.dir": Path("data/text"), "optimizer.lr": fractions.Fraction(1, 4),
                      "train": {"files": (Path("a"), "b")}}) == [
        "--set", "data.dir=data/text", "--set", "optimizer.lr=0.25", "--set", 'train.files=["a", "b"]']
    assert option_words(out=Path("a"), choices=[Path("b")], temperature=fractions.Fraction(1, 2)) == [
        "--out", "a", "--choices", "b", "--temperature", "0.5"]
    values: Any
    for values, named in [({"model.from": None}, r"model\.from is None"), ({"run": {"name": None}}, r"run\.name is None"),
                          ({"a.b": b"x"}, r"a\.b is a bytes"), ({"a.b": [1, None]}, r"a\.b\[1\] is None"),
                          ({"a.b": {"c": object()}}, r"a\.b\.c is a object")]:
        with pytest.raises(TypeError, match=named):
            set_words(values)
    options: Any
    for options, named in [({"stop": ["a", None]}, r"stop\[1\] is None"), ({"seed": {"a": 1}}, "seed has a dict"),
                           ({"stop": b"a"}, "stop is a bytes")]:
        with pytest.raises(TypeError, match=named):
            option_words(**options)


def test_numbers_of_numpy_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    assert set_words({"a.b": numpy.float64(1e-3), "a.c": numpy.int64(3), "a.d": numpy.bool_(True),
                      "a.e": numpy.array([1, 2])}) == [
        "--set", "a.b=0.001", "--set", "a.c=3", "--set", "a.d=true", "--set", "a.e=[1, 2]"]
    assert option_words(a=numpy.float64(0.5), b=numpy.int64(3), c=numpy.bool_(True), d=numpy.bool_(False)) == [
        "--a", "0.5", "--b", "3", "--c"]


def test_one_text_is_not_several(run_file: Path) -> None:
    with pytest.raises(at.Mistake, match="nothing.jsonl"):
        at.evaluate(at.run(run_file).wait(), choices="nothing.jsonl")
    with pytest.raises(at.Mistake, match="a.key"):
        at.run(run_file, accept_config="a.key").wait()


def test_what_follows_no_word_of_an_error_is_no_way_out() -> None:
    error = error_of(1, "info a; b\ninfo optimizer.lr; c\n")
    assert (error.file, error.line, error.key, error.fix) == (None, None, None, None)
    assert error.message == "the program ended with exit code 1: info a; b; info optimizer.lr; c"
    error = error_of(-11, "info a; b\n")
    assert (error.message, error.fix) == ("the program was killed by signal 11", None)
    error = error_of(2, "info a; b\nerror x.toml:3: wrong; mend it\n")
    assert (error.file, error.line, error.fix) == ("x.toml", 3, "mend it")


def test_a_run_file_that_is_missing_is_named_with_the_way_out(tmp_path: Path) -> None:
    for name in ("nothing.toml", "none/nothing.toml"):
        with pytest.raises(at.Mistake) as raised:
            at.run(name, directory=tmp_path).wait()
        assert (raised.value.file, raised.value.line) == (name, None)
        assert raised.value.fix is not None and "quickstart" in raised.value.fix


@pytest.mark.parametrize("message, place", [
    ("a b.toml:12: optimizer.lr must be 0 < x <= 1000, found -1", ("a b.toml", 12, "optimizer.lr", None)),
    ('x.toml:3: unknown key "model.layer"; did you mean "model.layers"?',
     ("x.toml", 3, "model.layer", 'did you mean "model.layers"?')),
    ("--set optimizer.lr=-1: optimizer.lr must be above 0", (None, None, "optimizer.lr", None)),
    ("nothing.toml: no such run file", ("nothing.toml", None, None, None)),
    ("nothing: no such run file; did you mean \"nothing.toml\"?", ("nothing", None, None, 'did you mean "nothing.toml"?')),
    ("a/b.toml: no such run file: there is no directory a; look", ("a/b.toml", None, None, "look")),
    ("rows.jsonl:7: no messages; give one", ("rows.jsonl", 7, None, "give one")),
    ("cannot read file.txt: No such file or directory; check the path", ("file.txt", None, None, "check the path")),
    ("cannot create directory a file: a file has that name; move it", ("a file", None, None, "move it")),
    ("a:b.toml:1: not valid TOML: Error", ("a:b.toml", 1, None, None)),
    ("x.toml:19: data/x.txt: 3 tokens", ("x.toml", 19, None, None)),
    ('no text: 1 dropped: "text" is no string, the first at rows.jsonl:1; fix the data',
     ("rows.jsonl", 1, None, "fix the data")),
    ("the text of rows.jsonl; give another", (None, None, None, "give another")),
    ("--set optimizer.lr=x.toml: wrong", (None, None, "optimizer.lr", None)),
])
def test_errors_are_read_from_the_line(message: str, place: tuple[object, ...]) -> None:
    error = ActorTrainError(message, 2, ["optimizer.lr", "model.layers"])
    assert (error.file, error.line, error.key, error.fix) == place


def test_an_error_is_the_same_behind_a_pool_of_processes() -> None:
    error = error_of(2, "error x.toml:3: optimizer.lr must be above 0; use --force\n")
    for again in (copy.copy(error), *(pickle.loads(pickle.dumps(error, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1))):
        assert type(again) is at.Mistake and again.args == error.args == (again.message,)
        assert vars(again) == vars(error) and (again.file, again.line, again.fix) == ("x.toml", 3, "use force=True")


def test_an_evaluation_is_read() -> None:
    said = ("eval step=40 digest=ab12\nchoices a b.jsonl: 12 questions, acc 0.2500, acc_norm 0.5000\n"
            "choices all: 24 questions, acc 0.2500, acc_norm 0.5000\n")
    assert _read_evaluation(said) == {
        "step": 40, "digest": "ab12", "a b.jsonl": {"questions": 12, "acc": 0.25, "acc_norm": 0.5},
        "all": {"questions": 24, "acc": 0.25, "acc_norm": 0.5}}


@pytest.mark.parametrize("said, ours", [
    ("d already holds data; use --force to replace it, or another --out",
     "d already holds data; use force=True to replace it, or another out"),
    ("fix the data, or raise --max-dropped", "fix the data, or raise max_dropped"),
    ("--row-length makes rows: give its directory by --tokenizer DIR", "row_length makes rows: give its directory by tokenizer=DIR"),
    ("prepare the data with --row-length 512", "prepare the data with row_length=512"),
    ("use --input-format text to take its bytes as they are", 'use input_format="text" to take its bytes as they are'),
    ("as with --template chatml", 'as with template="chatml"'),
    ("use a --template that does, or --kind text", 'use a template that does, or kind="text"'),
    ("by --accept-config optimizer.lr, or start anew with --fresh", 'by accept_config="optimizer.lr", or start anew with fresh=True'),
    ("run x keeps no average: leave --ema out", "run x keeps no average: leave ema out"),
    ("--set run.dir=a/b: a is a file", 'set={"run.dir": "a/b"}: a is a file'),
    ('did you mean "--set run.steps=3"?', 'did you mean set={"run.steps": 3}?'),
    ('unknown option "--forse"; did you mean "--force"?', 'unknown option "forse"; did you mean "force"?'),
    ("make it with `actortrain data prepare --input FILE --out DIR`", "make it with `actortrain data prepare --input FILE --out DIR`"),
    ('"actortrain data prepare --help" explains', '"actortrain data prepare --help" explains'),
    ("--formatting and --outer are none", "--formatting and --outer are none"),
])
def test_options_are_named_as_keywords(said: str, ours: str) -> None:
    assert ActorTrainError(said, 2).message == ours


def test_rows_and_prompts_are_named_by_their_number(tmp_path: Path, run_file: Path) -> None:
    with pytest.raises(at.Mistake, match="^data has no rows; give at least one$"):
        at.prepare([], tmp_path / "none")
    tried: list[Any] = [([{"text": 1}], "the first at row 0;"), ([{"text": "a"}, {"text": 2}], "the first at row 1;")]
    for rows, named in tried:
        with pytest.raises(at.Mistake, match=named) as raised:
            at.prepare(rows, tmp_path / "none")
        assert "rows.jsonl" not in str(raised.value) and raised.value.file is None
    error = error_of(2, "error /tmp/x/p.txt:2: no text; look at /tmp/x/p.txt\n", {"/tmp/x/p.txt": "prompt"})
    assert error.message == "prompt 1: no text; look at the prompts"
    error = error_of(2, "error /tmp/x/r.jsonl: no text in the input; give a file that is not empty\n", {"/tmp/x/r.jsonl": "row"})
    assert error.message == "the rows: no text in the input; give rows that are not empty"


def test_what_has_the_wrong_type_is_refused_with_the_way_out(run_file: Path, tmp_path: Path) -> None:
    wrong: list[Any] = [5, None]
    for data in wrong:
        with pytest.raises(TypeError, match="^data is (an int|None); give a path, "):
            at.prepare(data, tmp_path / "none")
    for values, meant in [(["run.steps=3"], 'set={"run.steps": 3}'), ("run.name=a", 'set={"run.name": "a"}'),
                          (["run.steps"], 'set={"run.steps": 100}'), (3, 'set={"run.steps": 100}')]:
        with pytest.raises(TypeError) as raised:
            at.run(run_file, set=values)  # type: ignore[arg-type]
        assert str(raised.value).startswith("set is a") and str(raised.value).endswith(f"give it as {meant}")


def test_a_directory_that_is_missing_is_a_mistake(run_file: Path, tmp_path: Path) -> None:
    missing = tmp_path / "none"
    calls: list[Any] = [lambda: at.runs(missing), lambda: at.run(run_file, directory=missing),
                        lambda: at.log(missing, "wandb"), lambda: at.generate(missing, "a")]
    for call in calls:
        with pytest.raises(at.Mistake, match=str(missing)) as raised:
            call()
        assert raised.value.exit_code == 2


def test_a_run_is_evaluated_from_another_directory(data: Path, run_file: Path, tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    run_file.write_text(run_file.read_text().replace(str(data), "tokens").replace(f"{tmp_path}/runs", "runs"))
    (tmp_path / "tokens").symlink_to(data)
    run = at.run(run_file.name, directory=tmp_path).wait()
    for folder in ("a", "b"):
        (tmp_path / "elsewhere" / folder).mkdir(parents=True)
        (tmp_path / "elsewhere" / folder / "q.jsonl").write_text(
            '{"question": "one", "choices": [" two", " three"], "answer": 0}\n')
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert at.evaluate(run)["step"] == 6
    assert at.evaluate(run, choices="a/q.jsonl").keys() >= {"q.jsonl"}
    assert at.evaluate(run, choices=["a/q.jsonl", Path("b/q.jsonl")]).keys() >= {"a/q.jsonl", "b/q.jsonl", "all"}
