"""Writes fixtures/lr_schedules.json: the learning rate of every update of small runs.

OneCycle values are torch's own, up to the step after the last update, which it still answers. The
others are its LambdaLR around the formulas written out below, update by update.
"""

import json
import math
import pathlib

import torch

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"


def values_of(make_schedule, peak, steps):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=peak)
    schedule = make_schedule(optimizer)
    values = [schedule.get_last_lr()[0]]
    for _ in range(steps):
        optimizer.step()
        schedule.step()
        values.append(schedule.get_last_lr()[0])
    return values


def one_cycle(name, total, warmup, peak, div, final_div):
    def make(optimizer):
        return torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=peak, total_steps=total, pct_start=warmup / total,
            anneal_strategy=name, cycle_momentum=False, div_factor=div,
            final_div_factor=final_div,
        )

    return dict(name=name, total=total, warmup=warmup, peak=peak, div=div, final_div=final_div,
                lr=values_of(make, peak, total))


def by_multiplier(case, multiplier):
    def make(optimizer):
        return torch.optim.lr_scheduler.LambdaLR(optimizer, multiplier)

    # Two steps past the last update: these schedules stay where they are.
    return dict(case, lr=values_of(make, case["peak"], case["total"] + 2))


def warming(step, warmup, div):
    return step / warmup + (1 - step / warmup) / div


def cos_inf(total, warmup, peak, div, final_div, tail):
    floor = 1 / div / final_div

    def multiplier(step):
        if step < warmup:
            return warming(step, warmup, div)
        if step < total - tail:
            x = (step - warmup) / (total - tail - warmup)
            return floor + 0.5 * (1 - floor) * (1 + math.cos(math.pi * x))
        return floor

    return by_multiplier(dict(name="cos_inf", total=total, warmup=warmup, peak=peak, div=div,
                              final_div=final_div, tail=tail), multiplier)


SHAPES = {
    "linear": lambda floor, x: floor + (1 - floor) * (1 - x),
    "cosine": lambda floor, x: floor + (1 - floor) * (1 + math.cos(math.pi * x)) / 2,
    "mirror_cosine": lambda floor, x: 2 * SHAPES["linear"](floor, x) - SHAPES["cosine"](floor, x),
    "exp": lambda floor, x: floor ** x,
    "square": lambda floor, x: floor + (1 - floor) * (1 - x**2),
    "sqrt": lambda floor, x: floor + (1 - floor) * (1 - math.sqrt(x)),
}


def wsd(total, warmup, peak, div, fraction, shape, floor):
    decay = int(fraction * total)

    def multiplier(step):
        if step < warmup:
            return warming(step, warmup, div)
        if step < total - decay:
            return 1.0
        if step < total:
            return SHAPES[shape](floor, (step - (total - decay)) / decay)
        return floor

    return by_multiplier(dict(name="wsd", total=total, warmup=warmup, peak=peak, div=div,
                              decay_fraction=fraction, decay_shape=shape, decay_floor=floor),
                         multiplier)


def constant(total, warmup, peak, div):
    def multiplier(step):
        return warming(step, warmup, div) if step < warmup else 1.0

    return by_multiplier(dict(name="constant", total=total, warmup=warmup, peak=peak, div=div),
                         multiplier)


def main():
    cases = []
    for name in ("cos", "linear"):
        for arguments in (
            (100, 10, 0.01, 100.0, 1.0),
            (50, 0, 3e-4, 25.0, 1e4),
            (37, 36, 0.1, 10.0, 2.0),
            (64, 7, 0.02, 100.0, 1.0),
            (49, 1, 0.02, 100.0, 1.0),  # 1 / 49 * 49 is below 1, so that torch does not divide 0/0
            (93, 29, 1e-3, 100.0, 3.0),  # here the end of the warm-up is not a whole number
            (2, 0, 0.5, 100.0, 1.0),
        ):
            cases.append(one_cycle(name, *arguments))
    for arguments in ((100, 10, 0.01, 100.0, 0.1, 0), (60, 0, 0.02, 100.0, 0.1, 10),
                      (40, 1, 0.01, 100.0, 0.1, 5), (30, 12, 0.3, 7.0, 3.0, 18)):
        cases.append(cos_inf(*arguments))
    for arguments in ((100, 10, 0.01, 100.0, 0.1, "linear", 0.0),
                      (45, 0, 0.02, 100.0, 0.3, "linear", 0.05),
                      (40, 1, 0.01, 10.0, 1.0 / 3.0, "cosine", 0.0),
                      (31, 5, 0.01, 100.0, 0.29, "mirror_cosine", 0.1),
                      (50, 2, 0.01, 100.0, 0.58, "exp", 0.01),
                      (50, 2, 0.01, 100.0, 0.96, "square", 0.0),
                      (50, 2, 0.01, 100.0, 0.2, "sqrt", 0.02),
                      (12, 12 - 1, 0.01, 100.0, 0.05, "linear", 0.0),
                      (20, 0, 0.01, 100.0, 1.0, "linear", 0.0)):
        cases.append(wsd(*arguments))
    for arguments in ((12, 0, 0.5, 100.0), (12, 1, 0.5, 100.0), (12, 5, 0.5, 30.0)):
        cases.append(constant(*arguments))
    (FIXTURES / "lr_schedules.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
