#!/usr/bin/python3
"""The speed of one actortrain against another: two_programs.py PROGRAM OTHER DATA [SLICES]

Both train the quickstart side by side and take turns of two seconds: one is stopped (SIGSTOP) while the other
computes, so that a drift of the machine, which is larger than the difference of two builds, meets both. Prints, over
the slices (60), PROGRAM's tokens a second and steps per second of processor time divided by OTHER's: the median, the
95 % interval of the median (of its ranks, as no distribution is assumed) and the quartiles. A turn's speed is the
median of its steps but the first, which began in an earlier turn. DATA: the bytes that configs/quickstart.toml reads.
Runs alone; takes about five minutes.
"""
import json
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

CONFIG = pathlib.Path(__file__).resolve().parents[2] / "configs" / "quickstart.toml"
TURN = 2.0


class Run:
    """A run that computes in its turns alone."""

    def __init__(self, program, data, site):
        self.site = pathlib.Path(site)
        never = str(10**6)
        settings = {"data.dir": data, "run.dir": site, "run.name": "run", "run.steps": never,
                    "eval.interval_steps": never, "checkpoint.interval_steps": never, "run.sample_tokens": "0"}
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        self.process = subprocess.Popen([program, "run", str(CONFIG), *words], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, start_new_session=True)
        while len(self.speeds()) < 10:
            if self.process.poll() is not None:
                raise SystemExit(f"{program} run ended with {self.process.returncode}")
            time.sleep(0.2)
        self.signal(signal.SIGSTOP)

    def signal(self, number):
        os.killpg(self.process.pid, number)

    def speeds(self):
        """Tokens a second of the steps so far."""
        found = []
        for file in self.site.glob("**/metrics*.jsonl"):
            for line in file.read_text().splitlines(keepends=True):
                if line.endswith("\n") and (speed := json.loads(line).get("tokens_per_second")):
                    found.append(speed)
        return found

    def processor_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def turn(self):
        """Tokens a second, and steps per second of processor time."""
        steps, seconds = len(self.speeds()), self.processor_seconds()
        self.signal(signal.SIGCONT)
        time.sleep(TURN)
        self.signal(signal.SIGSTOP)
        time.sleep(0.05)
        speeds = self.speeds()[steps + 1:]
        return statistics.median(speeds), len(speeds) / (self.processor_seconds() - seconds)


def show(name, ratios):
    ratios, count = sorted(ratios), len(ratios)
    low = max(0, int(count / 2 - 0.98 * math.sqrt(count)))
    print(f"{name}: {statistics.median(ratios):.4f} (95 %: {ratios[low]:.4f} to {ratios[count - 1 - low]:.4f}; "
          f"quartiles {ratios[count // 4]:.4f}, {ratios[3 * count // 4]:.4f})")


def main():
    if len(sys.argv) not in (4, 5):
        raise SystemExit(__doc__)
    slices = int(sys.argv[4]) if len(sys.argv) == 5 else 60
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        runs = []
        try:
            for program, site in zip(sys.argv[1:3], (one, two)):
                runs.append(Run(program, os.path.abspath(sys.argv[3]), site))
            speed, cost = [], []
            for index in range(slices):
                order = (0, 1) if index % 2 == 0 else (1, 0)
                turns = {which: runs[which].turn() for which in order}
                speed.append(turns[0][0] / turns[1][0])
                cost.append(turns[0][1] / turns[1][1])
            show("tokens a second", speed)
            show("steps per second of processor time", cost)
        finally:
            for run in runs:
                run.signal(signal.SIGKILL)
                run.process.wait()


main()
