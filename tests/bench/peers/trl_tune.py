#!/usr/bin/env python3
"""SFT (and DPO) of SmolLM2-135M beside TRL: trained tokens a second.

    ACTORTRAIN_PYTHON=PYTHON PYTHON tests/bench/peers/trl_tune.py PROGRAM MODEL_DIR [sft|dpo ...]

Makes prompts with answers of the quickstart text (log-normal lengths, median 150 tokens) or pairs of them, trains both programs some steps of as many tokens in fp32 on the same threads, and prints the median of
the steps' trained tokens a second: ours packed; TRL's packed and padded, the better of which counts. DPO:
both with the reference's log-probabilities computed before. Needs torch and trl; runs alone.
"""
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROW, ROWS_A_STEP, STEPS, WARM = 1024, 1, 5, 1
THREADS = 2


def words_of_the_bible():
    text = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], capture_output=True, text=True, check=True)
    return text.stdout.split()


def examples(count, pairs):
    random.seed(7)
    words = words_of_the_bible()
    lines = []
    for _ in range(count):
        at = random.randrange(len(words) - 2000)
        answer = max(5, min(700, round(math.exp(random.gauss(math.log(110), 0.7)))))
        prompt = " ".join(words[at:at + 20])
        if pairs:
            lines.append({"prompt": prompt, "chosen": " ".join(words[at + 20:at + 20 + answer]),
                          "rejected": " ".join(words[at + 1000:at + 1000 + answer])})
        else:
            lines.append({"prompt": prompt, "completion": " " + " ".join(words[at + 20:at + 20 + answer])})
    return lines


def ours(program, model, site, lines, objective):
    (site / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    subprocess.run([program, "data", "prepare", "--input", "data.jsonl", "--out", "rows", "--tokenizer", model,
                    "--row-length", str(ROW), "--force"], cwd=site, check=True, stderr=subprocess.DEVNULL)
    (site / "run.toml").write_text(f"""
[run]
name = "{objective}"
steps = {STEPS + WARM}
[model]
from = "{model}"
[data]
dir = "rows"
sequence_length = {ROW}
[objective]
name = "{objective}"
[batch]
lanes = {ROWS_A_STEP}
micro_batch = 1
[optimizer]
name = "adamw"
lr = 1e-5
[schedule]
warmup_steps = 0
[eval]
interval_steps = 0
[checkpoint]
interval_steps = 0
[runtime]
threads = {THREADS}
""")
    subprocess.run([program, "run", "run.toml"], cwd=site, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    metrics = [json.loads(line) for line in (site / "runs" / objective / "metrics.jsonl").read_text().splitlines()]
    return statistics.median([line["trained_tokens_per_second"] for line in metrics if "grad_norm" in line][WARM:])


class Clock:
    """Seconds of each step, and how many trained tokens it had."""

    def __init__(self, base):
        self.speeds, self.trained, self.began = [], 0, None
        clock = self

        class Callback(base):
            def on_step_begin(self, *_, **__):
                clock.began, clock.trained = time.monotonic(), 0

            def on_step_end(self, *_, **__):
                clock.speeds.append(clock.trained / (time.monotonic() - clock.began))

        self.callback = Callback()


def trl_sft(model, site, lines, packed):
    import datasets, torch, transformers, trl
    torch.set_num_threads(THREADS)
    data = datasets.Dataset.from_list(lines)
    clock = Clock(transformers.TrainerCallback)
    # Padded: as many answers a step as a step of packed rows holds.
    batch = ROWS_A_STEP if packed else max(1, round(ROWS_A_STEP * ROW / 190))
    config = trl.SFTConfig(
        output_dir=str(site / "trl"), max_length=ROW, packing=packed, packing_strategy="wrapped" if packed else "bfd",
        per_device_train_batch_size=batch, max_steps=STEPS + WARM, learning_rate=1e-5, logging_steps=1000,
        report_to=[], save_strategy="no", use_cpu=True, bf16=False, gradient_checkpointing=False,
        optim="adamw_torch_fused", dataloader_num_workers=0)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    trainer = trl.SFTTrainer(model=loaded, args=config, train_dataset=data, callbacks=[clock.callback],
                             processing_class=transformers.AutoTokenizer.from_pretrained(model))
    counted = trainer.compute_loss

    def count(loaded, inputs, *arguments, **named):
        clock.trained += int((inputs["labels"] != -100).sum())
        return counted(loaded, inputs, *arguments, **named)

    trainer.compute_loss = count
    trainer.train()
    return statistics.median(clock.speeds[WARM:])


def trl_dpo(model, site, lines):
    import datasets, torch, transformers, trl
    torch.set_num_threads(THREADS)
    clock = Clock(transformers.TrainerCallback)
    config = trl.DPOConfig(
        output_dir=str(site / "trl"), max_length=ROW, precompute_ref_log_probs=True,
        per_device_train_batch_size=max(1, round(ROWS_A_STEP * ROW / 2 / 190)), max_steps=STEPS + WARM,
        learning_rate=1e-6, logging_steps=1000, report_to=[], save_strategy="no", use_cpu=True, bf16=False,
        gradient_checkpointing=False, optim="adamw_torch_fused")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    trainer = trl.DPOTrainer(model=loaded, args=config, train_dataset=datasets.Dataset.from_list(lines),
                             callbacks=[clock.callback],
                             processing_class=transformers.AutoTokenizer.from_pretrained(model))
    counted = trainer.compute_loss

    def count(loaded, inputs, *arguments, **named):
        clock.trained += int(inputs["completion_mask"].sum())
        return counted(loaded, inputs, *arguments, **named)

    trainer.compute_loss = count
    trainer.train()
    return statistics.median(clock.speeds[WARM:])


def main():
    program, model = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:3])
    wanted = sys.argv[3:] or ["sft", "dpo"]
    os.environ["OMP_NUM_THREADS"] = str(THREADS)
    with tempfile.TemporaryDirectory() as directory:
        site = pathlib.Path(directory)
        if "sft" in wanted:
            lines = examples(400, False)
            mine = ours(program, model, site, lines, "sft")
            peers = {"packed": trl_sft(model, site, lines, True), "padded": trl_sft(model, site, lines, False)}
            best = max(peers.values())
            print(f"sft: {mine:.0f} trained tokens/s; TRL packed {peers['packed']:.0f}, padded "
                  f"{peers['padded']:.0f}: {mine / best:.2f} of the better", flush=True)
        if "dpo" in wanted:
            lines = examples(200, True)
            mine = ours(program, model, site, lines, "dpo")
            peer = trl_dpo(model, site, lines[:60])
            print(f"dpo: {mine:.0f} trained tokens/s; TRL {peer:.0f}: {mine / peer:.2f} of it", flush=True)


if __name__ == "__main__":
    main()
