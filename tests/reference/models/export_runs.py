"""Trains small runs with the program, exports them, and has the exports checked.

    python3 tests/reference/models/export_runs.py PROGRAM weights|adapters

weights: export_check.py reads exports in fp32 and bf16, in one file and in several, of two ranks that
split everything and of tied embeddings. adapters: lora_export_check.py loads what a run with [lora] on a
tiny published model exports. Needs what those need. Exit code 1 if anything differs.
"""

import pathlib
import random
import subprocess
import sys
import tempfile

import torch
import transformers

FOLDER = pathlib.Path(__file__).resolve().parent
RUN_FILE = """
[run]
name = "tiny"
steps = 20
[model]
{model}
[data]
dir = "data"
sequence_length = 32
[batch]
lanes = 2
[optimizer]
lr = 3e-3
[schedule]
warmup_steps = 2
[eval]
interval_steps = 0
[checkpoint]
interval_steps = 20
[runtime]
threads = 1
"""
ENOKI = 'arch = "enoki"\nlayers = 2\nheads = 2\nhead_dim = 8'
FAMILIES = {
    "llama": transformers.LlamaConfig(
        vocab_size=300, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False),
    "gpt2": transformers.GPT2Config(vocab_size=300, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=0,
                                    eos_token_id=0, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0),
    "gpt_neox": transformers.GPTNeoXConfig(
        vocab_size=300, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=64, classifier_dropout=0.0),
}


class Site:
    """A directory with data, in which the program runs."""

    def __init__(self, program, folder):
        self.program, self.path = program, pathlib.Path(folder)
        draw = random.Random(7)
        nouns, verbs = ["the river", "a quiet child", "the old miller"], ["follows", "remembers", "paints"]
        (self.path / "text.txt").write_text("".join(
            f"{draw.choice(nouns)} {draw.choice(verbs)} {draw.choice(nouns)}.\n" for _ in range(1500)))
        self.call("data", "prepare", "--input", "text.txt", "--out", "data")

    def call(self, *words):
        done = subprocess.run([str(self.program), *words], cwd=self.path, capture_output=True)
        if done.returncode:
            raise SystemExit(f"actortrain {' '.join(words)}: {done.stderr.decode()}")
        return done.stdout

    def train(self, model, *keys):
        (self.path / "tiny.toml").write_text(RUN_FILE.format(model=model))
        self.call("run", "tiny.toml", *[word for key in keys for word in ("--set", key)])

    def checked(self, script, *words):
        """Whether the script of this folder found nothing wrong."""
        sys.stdout.flush()
        return subprocess.run([sys.executable, FOLDER / script, *words], cwd=self.path).returncode == 0


def weights(site):
    site.train(ENOKI, "run.name=two", "parallel.ranks=2", 'parallel.strategy="full"')
    site.train(ENOKI, "run.name=tied", "model.tie_embeddings=true")
    prompt = "the river "
    greedy = site.call("generate", "runs/two", "--prompt", prompt, "--tokens", "48", "--temperature", "0")
    (site.path / "greedy.txt").write_bytes(greedy)
    results = []
    for run, out, options, more in (
            ("two", "plain", [], ["--continues", prompt, "greedy.txt"]),
            ("two", "bf16", ["--dtype", "bf16", "--max-file-bytes", "4KiB"], []),
            ("tied", "tied", ["--max-file-bytes", "10KB"], [])):
        site.call("export", f"runs/{run}", "--out", out, *options)
        results.append(site.checked("export_check.py", f"runs/{run}", out, *more))
    return results


def adapters(site):
    results = []
    for name, config in FAMILIES.items():
        torch.manual_seed(3)
        base = f"{name}-base"
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(site.path / base)
        site.train(f'from = "{base}"', f"run.name={name}", "lora.rank=3", "lora.alpha=6.0")
        site.call("export", f"runs/{name}", "--format", "peft", "--out", f"{name}-adapter")
        site.call("export", f"runs/{name}", "--format", "hf", "--out", f"{name}-merged")
        results.append(site.checked("lora_export_check.py", base, f"{name}-adapter", f"{name}-merged"))
    return results


def main():
    program, kind = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    with tempfile.TemporaryDirectory() as folder:
        results = {"weights": weights, "adapters": adapters}[kind](Site(program, folder))
    print(f"{len(results)} exports of {kind}, {results.count(False)} different")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
