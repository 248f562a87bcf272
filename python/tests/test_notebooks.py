"""The notebooks run from their first cell to the last, with a text and a tiny model in the place of theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import actortrain as at

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))

MODEL = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 320, "hidden_size": 32,
         "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
         "head_dim": 16, "rms_norm_eps": 1e-5, "max_position_embeddings": 512, "rope_theta": 10000.0,
         "tie_word_embeddings": True}

# Numbers in the place of those that take minutes.
SHORTER = {"steps = 1600": "steps = 8", "steps = 40": "steps = 4", "steps = 30": "steps = 4",
           "warmup_steps = 80": "warmup_steps = 1", "warmup_steps = 4": "warmup_steps = 1",
           "warmup_steps = 3": "warmup_steps = 1", "interval_steps = 100": "interval_steps = 4",
           "interval_steps = 200": "interval_steps = 4", "interval_steps = 20": "interval_steps = 2",
           "interval_steps = 10": "interval_steps = 2", "interval_steps = 15": "interval_steps = 2"}


def byte_letters() -> list[str]:
    """The letters that stand for bytes in byte-level BPE, as GPT-2 has them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


def tokenizer() -> dict[str, Any]:
    def special(number: int, content: str) -> dict[str, Any]:
        return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True}

    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [special(256, "<|im_start|>"), special(257, "<|im_end|>")], "normalizer": None,
            "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "vocab": {letter: number for number, letter in enumerate(byte_letters())}, "merges": []}}


@pytest.fixture(scope="session")
def model(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(MODEL))
    (folder / "made.toml").write_text(
        f'[run]\nname = "made"\nsteps = 1\n[model]\nconfig = "config.json"\n[data]\ndir = "{data}"\nsequence_length = 32\n'
        "[schedule]\nwarmup_steps = 0\n")
    run = at.run("made.toml", directory=folder).wait()
    made = at.export(run, folder / "SmolLM2")
    (made / "tokenizer.json").write_text(json.dumps(tokenizer()))
    (made / "tokenizer_config.json").write_text(json.dumps({
        "eos_token": "<|im_end|>", "chat_template":
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"}))
    return made


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["lora", "prefer", "pretrain"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: str(path.stem))
def test_a_notebook_runs_to_its_end(path: Path, model: Path, tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    text = path.read_text(encoding="utf-8")
    for number, shorter in SHORTER.items():
        text = text.replace(f"\n{number}\\n", f"\n{shorter}\\n").replace(f'"{number}\\n"', f'"{shorter}\\n"')
    (tmp_path / "SmolLM2").symlink_to(model)
    (tmp_path / "text.txt").write_text("".join(f"Line {i} says {i * 7919 % 1000}.\n" for i in range(20000)))
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    assert all(cell.get("outputs", []) == [] for cell in notebook.cells)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3",
                            resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert list((tmp_path / "runs").iterdir())
