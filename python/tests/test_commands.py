"""Commands that end by themselves, and the errors that they raise."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import actortrain as at
from actortrain._commands import _read_evaluation, option_words, set_words
from actortrain._errors import ActorTrainError


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


@pytest.mark.parametrize("message, place", [
    ("a b.toml:12: optimizer.lr must be 0 < x <= 1000, found -1", ("a b.toml", 12, "optimizer.lr", None)),
    ('x.toml:3: unknown key "model.layer"; did you mean "model.layers"?',
     ("x.toml", 3, "model.layer", 'did you mean "model.layers"?')),
    ("--set optimizer.lr=-1: optimizer.lr must be above 0", (None, None, "optimizer.lr", None)),
    ("nothing.toml: no such run file", (None, None, None, None)),
    ("rows.jsonl:7: no messages; give one", ("rows.jsonl", 7, None, "give one")),
])
def test_errors_are_read_from_the_line(message: str, place: tuple[object, ...]) -> None:
    error = ActorTrainError(message, 2, ["optimizer.lr", "model.layers"])
    assert (error.file, error.line, error.key, error.fix) == place


def test_an_evaluation_is_read() -> None:
    said = ("eval step=40 digest=ab12\nchoices a b.jsonl: 12 questions, acc 0.2500, acc_norm 0.5000\n"
            "choices all: 24 questions, acc 0.2500, acc_norm 0.5000\n")
    assert _read_evaluation(said) == {
        "step": 40, "digest": "ab12", "a b.jsonl": {"questions": 12, "acc": 0.25, "acc_norm": 0.5},
        "all": {"questions": 24, "acc": 0.25, "acc_norm": 0.5}}
