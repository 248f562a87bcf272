"""SmolLM2-135M trained on the quickstart text by this program and by transformers, side by side.

    ./dev oracle training, or
    ACTORTRAIN_PYTHON=python3 python3 tests/reference/training/compare_smollm2.py [WORK_DIR [STEPS]]

Both start from the same weights and read the same rows of the same tokens in fp32, with the same
AdamW and the same learning rates; the script prints the loss of held-out text before and after
(and its perplexity) of each, and how far they are apart. Needs torch and transformers, the built
program, the Debian package bible-kjv, and the weights (scripts/smollm2.sh). Takes some minutes.
Exits with 1 where the first losses differ by more than 1e-4, or the last by more than 0.5 %.
"""

import json
import math
import os
import pathlib
import shutil
import subprocess
import sys

import numpy
import torch
import transformers
from make_order_fixtures import OneFile

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = pathlib.Path(os.environ.get("ACTORTRAIN_PROGRAM", ROOT / "build/release/actortrain"))
LENGTH, HELD_OUT, SEED = 256, 32, 1337
PEAK, WARMUP, BETAS, EPS, DECAY, CLIP = 1e-4, 10, (0.9, 0.95), 1e-8, 0.1, 1.0

RUN_FILE = """
[run]
name = "{name}"
dir = "{work}/runs"
steps = {steps}
tensorboard = false
[model]
from = "{work}/model"
z_loss_coeff = 0.0
[data]
dir = "{work}/tokens"
sequence_length = {length}
order = "dstar"
seed = {seed}
[batch]
lanes = 1
micro_batch = 1
[optimizer]
name = "adamw"
lr = {peak}
beta1 = {beta1}
beta2 = {beta2}
eps = {eps}
weight_decay = {decay}
grad_clip = {clip}
[schedule]
name = "cos_inf"
warmup_steps = {warmup}
[eval]
interval_steps = {steps}
lanes = {held_out}
[checkpoint]
interval_steps = 0
"""


def run(*words):
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)


def prepare(work):
    work.mkdir(parents=True, exist_ok=True)
    run(ROOT / "scripts/smollm2.sh", work / "model")
    if not (work / "tokens/meta.json").exists():
        run(ROOT / "scripts/quickstart_text.sh", work / "text.txt")
        run(PROGRAM, "data", "prepare", "--input", work / "text.txt", "--tokenizer", work / "model",
            "--out", work / "tokens", "--document-separator", "\n\n\n", "--force")


def ours(work, steps):
    file = work / "compare.toml"
    file.write_text(RUN_FILE.format(
        name="compare", work=work, steps=steps, length=LENGTH, seed=SEED, peak=PEAK,
        beta1=BETAS[0], beta2=BETAS[1], eps=EPS, decay=DECAY, clip=CLIP, warmup=WARMUP,
        held_out=HELD_OUT))
    shutil.rmtree(work / "runs", ignore_errors=True)  # --fresh would take another name beside it
    run(PROGRAM, "run", file)
    lines = [json.loads(line) for line in (work / "runs/compare/metrics.jsonl").open()]
    rates = [line["lr"] for line in lines if "lr" in line]
    losses = [line["loss"] for line in lines if "loss" in line]
    held_out = [line["val_loss"] for line in lines if "val_loss" in line]
    return rates, losses, held_out[0], held_out[-1]


def tokens_of(file):
    return torch.from_numpy(numpy.fromfile(file, dtype="<u2").astype(numpy.int64))


def is_decayed(name, weight):
    return weight.dim() > 1 and "embed" not in name


class Reference:
    """transformers' model and torch's AdamW."""

    def __init__(self, directory):
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            directory, dtype=torch.float32)
        self.model.eval()
        named = list(self.model.named_parameters())
        groups = [{"params": [w for n, w in named if is_decayed(n, w) == decayed],
                   "weight_decay": DECAY if decayed else 0.0} for decayed in (True, False)]
        self.optimizer = torch.optim.AdamW(groups, lr=PEAK, betas=BETAS, eps=EPS)

    def loss(self, piece):
        logits = self.model(input_ids=piece[:-1][None], use_cache=False).logits[0]
        return torch.nn.functional.cross_entropy(logits, piece[1:])

    def held_out_loss(self, tokens):
        with torch.no_grad():
            return sum(self.loss(tokens[i * LENGTH : (i + 1) * LENGTH + 1]).item()
                       for i in range(HELD_OUT)) / HELD_OUT

    def step(self, piece, rate):
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        loss = self.loss(piece)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
        return loss.item()


def theirs(work, rates):
    train, val = tokens_of(work / "tokens/train.bin"), tokens_of(work / "tokens/val.bin")
    reference = Reference(work / "model")
    first = reference.held_out_loss(val)
    order = OneFile(len(train), LENGTH, 1, SEED)
    losses = []
    for number, rate in enumerate(rates):
        start = int(order.batch(number)[0])
        losses.append(reference.step(train[start : start + LENGTH + 1], rate))
    return losses, first, reference.held_out_loss(val)


def main():
    work = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/smollm2").resolve()
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    prepare(work)
    rates, losses, first, last = ours(work, steps)
    other_losses, other_first, other_last = theirs(work, rates)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {steps} steps")
    for name, a, b in (("first held-out loss", first, other_first),
                       ("its perplexity", math.exp(first), math.exp(other_first)),
                       ("last held-out loss", last, other_last),
                       ("first training loss", losses[0], other_losses[0]),
                       ("last training loss", losses[-1], other_losses[-1])):
        print(f"{name}: {a:.6f} here, {b:.6f} there, {abs(a / b - 1):.2e} apart")
    apart = abs(math.exp(first - other_first) - 1) > 1e-4 or abs(last / other_last - 1) > 5e-3
    print(f"{steps} steps, held-out losses {abs(first / other_first - 1):.1e} and "
          f"{abs(last / other_last - 1):.1e} apart{': too far' if apart else ''}")
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
