#!/usr/bin/env python3
"""SFT and DPO of SmolLM2-135M beside TRL: trained tokens a second.

    PYTHON bench/peers/trl_tune.py PROGRAM MODEL_DIR SITE PART...

Makes prompts with answers of the quickstart text (log-normal lengths, median 150 tokens) and pairs of them, trains
both programs a few steps of about as many tokens in fp32 on the same threads, and prints the median of the steps'
trained tokens a second: ours packed; TRL's packed and padded, the better of which counts. DPO: both with the
reference's log-probabilities computed before. Needs torch and trl.

The parts, so that none holds a machine for long: `prepare` (once), then `sft-ours`, `sft-packed`, `sft-padded`,
`dpo-ours`, `dpo-trl` in any order and as often as wanted, each alone, then `report`. They keep what they found in SITE.
"""
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

ROW, ROWS_A_STEP, STEPS, WARM = 1024, 1, 2, 1
THREADS = 2
PAIRS_A_STEP = max(1, round(ROWS_A_STEP * ROW / 2 / 190))


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


def prepare(program, model, site):
    for objective, count in (("sft", 400), ("dpo", 200)):
        lines = examples(count, objective == "dpo")
        (site / f"{objective}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        subprocess.run([program, "data", "prepare", "--input", f"{objective}.jsonl", "--out", f"rows_{objective}",
                        "--tokenizer", model, "--row-length", str(ROW), "--force"], cwd=site, check=True,
                       stderr=subprocess.DEVNULL)


def lines_of(site, objective):
    return [json.loads(line) for line in (site / f"{objective}.jsonl").read_text().splitlines()]


def ours(program, model, site, objective):
    (site / "run.toml").write_text(f"""
[run]
name = "{objective}"
steps = {STEPS + WARM}
[model]
from = "{model}"
[data]
dir = "rows_{objective}"
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
    subprocess.run([program, "run", "run.toml", "--fresh"], cwd=site, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    metrics = [json.loads(line) for line in (site / "runs" / objective / "metrics.jsonl").read_text().splitlines()]
    speeds = [line["trained_tokens_per_second"] for line in metrics if "grad_norm" in line]
    return statistics.median(speeds[WARM:])


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
        per_device_train_batch_size=PAIRS_A_STEP, max_steps=STEPS + WARM,
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


def measured(program, model, site, part):
    objective, side = part.split("-")
    if side == "ours":
        return ours(program, model, site, objective)
    if objective == "dpo":
        # As many pairs as the steps take: the reference's sweep is over all of them.
        return trl_dpo(model, site, lines_of(site, "dpo")[:(STEPS + WARM) * PAIRS_A_STEP])
    return trl_sft(model, site, lines_of(site, "sft"), side == "packed")


def report(found):
    best = {part: max(values) for part, values in found.items()}
    print(json.dumps(found))
    if {"sft-ours", "sft-packed", "sft-padded"} <= best.keys():
        peer = max(best["sft-packed"], best["sft-padded"])
        print(f"sft: {best['sft-ours']:.0f} trained tokens/s; TRL packed {best['sft-packed']:.0f}, padded "
              f"{best['sft-padded']:.0f}: {best['sft-ours'] / peer:.2f} of the better")
    if {"dpo-ours", "dpo-trl"} <= best.keys():
        print(f"dpo: {best['dpo-ours']:.0f} trained tokens/s; TRL {best['dpo-trl']:.0f}: "
              f"{best['dpo-ours'] / best['dpo-trl']:.2f} of it")


def main():
    program, model, site = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
    os.environ["OMP_NUM_THREADS"] = str(THREADS)
    site.mkdir(parents=True, exist_ok=True)
    kept = site / "found.json"
    for part in sys.argv[4:]:
        found = json.loads(kept.read_text()) if kept.exists() else {}
        if part == "prepare":
            prepare(program, str(model), site)
        elif part == "report":
            report(found)
        else:
            speed = measured(program, str(model), site, part)
            found.setdefault(part, []).append(round(speed, 1))
            kept.write_text(json.dumps(found))
            print(part, round(speed, 1), flush=True)


if __name__ == "__main__":
    main()
