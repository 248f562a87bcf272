#!/usr/bin/env python3
"""A run watched in a real browser: python3 board_page.py PROGRAM [PICTURES]

Starts a run of two ranks with a board, opens it in headless Chromium, sees the loss fall, compares
what the page says with metrics.jsonl, kills a rank and sees the loss of it and the recovery, and
looks at the finished run with `actortrain board`. PICTURES: a directory for screenshots.
Ends with 77 where there is no Chromium, chromedriver or Selenium.
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.wait import WebDriverWait
except ImportError:
    print("skipped: no python3-selenium here")
    sys.exit(77)

PATIENCE_S = 240  # a hang ends; nothing here measures time

CONFIG = """
[run]
name = "watched"
steps = 1000000
[model]
arch = "enoki"
layers = 3
heads = 2
head_dim = 8
[data]
dir = "data"
sequence_length = 32
[batch]
lanes = 4
micro_batch = 2
[parallel]
ranks = 2
strategy = "full"
[optimizer]
lr = 3e-3
[eval]
interval_steps = 50
lanes = 2
[checkpoint]
interval_steps = 100
[status]
listen = "127.0.0.1:0"
[runtime]
threads = 1
"""


@contextlib.contextmanager
def running(program):
    """A run of two ranks with a board: its launcher, its site, its directory, what it logs."""
    with tempfile.TemporaryDirectory() as directory:
        site = pathlib.Path(directory)
        words = "the river a quiet child the old miller follows remembers waits for paints".split()
        text = "\n".join(" ".join(words[(i * j) % len(words)] for j in range(1, 7)) for i in range(2000))
        (site / "text.txt").write_text(text)
        (site / "run.toml").write_text(CONFIG)
        subprocess.run([program, "data", "prepare", "--input", "text.txt", "--out", "data"], cwd=site,
                       check=True, stdout=subprocess.DEVNULL)
        log = site / "log"
        with open(log, "w") as stderr:
            launcher = subprocess.Popen([program, "run", "run.toml"], cwd=site, stderr=stderr,
                                        stdout=subprocess.DEVNULL)
        try:
            yield launcher, site, site / "runs" / "watched", log
        finally:
            launcher.kill()
            launcher.wait()


def address(launcher, run, log):
    """The board's, which stands in the log before the run's first event."""
    follow = ["tail", "-n", "+1", "-s", "0.1", f"--pid={launcher.pid}", "-F", run / "events.jsonl"]
    with subprocess.Popen(follow, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as events:
        first = events.stdout.readline()  # none: the run has ended before
        events.terminate()
    assert first and json.loads(first)["event"] == "started", first
    return re.search(r"board url=(\S+)", log.read_text()).group(1)


class Page:
    def __init__(self, chromium, driver):
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for argument in ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage",
                         "--disable-gpu", "--window-size=1300,1500"]:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(service=Service(driver), options=options)

    def until(self, condition, what):
        wait = WebDriverWait(self.driver, PATIENCE_S, poll_frequency=0.05)
        return wait.until(lambda driver: condition(), f"never came: {what}")

    def text(self, name):
        return self.driver.find_element(By.ID, name).text

    def number(self, name, quantity):
        found = re.search(rf"(?:^|· ){quantity} ([-+.e0-9]+)", self.text(name))
        return float(found.group(1)) if found else None

    def events(self, kind):
        return self.driver.find_elements(By.CSS_SELECTOR, f"#events li[data-event={kind}]")

    def no_complaints(self):
        bad = [line for line in self.driver.get_log("browser") if line["level"] == "SEVERE"
               and "/events" not in line["message"]]  # a stream that ends with its server
        assert not bad, bad

    def picture(self, directory, name):
        if directory:
            self.driver.save_screenshot(str(pathlib.Path(directory) / name))


def metrics_of(run):
    lines = []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError:
            pass  # being written
    return lines


def agree(shown, said):
    return abs(shown - said) <= 1e-4 * abs(said)


def shows(page, quantity, value):
    shown = page.number(f"{quantity}-newest", quantity)
    return shown is not None and agree(shown, value)


def watch_the_run(page, run, url, pictures):
    page.driver.get(url)
    first = page.until(lambda: page.number("loss-newest", "loss"), "a loss")
    page.until(lambda: page.number("loss-newest", "loss") < first, "a smaller loss")
    canvas = page.driver.find_element(By.CSS_SELECTOR, "#loss canvas")
    assert canvas.size["width"] > 300, "the chart is drawn"
    page.until(lambda: page.driver.find_elements(By.CSS_SELECTOR, ".rank"), "ranks")
    page.until(lambda: page.events("evaluation"), "an evaluation")
    shown = page.until(lambda: page.number("loss-newest", "val_loss"), "a validation loss")
    assert any(agree(shown, line["val_loss"]) for line in metrics_of(run) if "val_loss" in line)
    page.until(lambda: "resident" in page.text("memory") and "planned" in page.text("memory"), "memory")
    page.until(lambda: page.events("checkpoint_published"), "a checkpoint")
    look_at_the_rate(page, run)
    look_at_the_axes(page)
    page.picture(pictures, "board.png")
    page.no_complaints()


def count(text):
    """Of "1.23 k": 1230."""
    number, prefix = re.fullmatch(r"([-+.e0-9]+)(?: ([kMGT]))?", text).groups()
    return float(number) * {None: 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[prefix]


def rate_of_lines(lines, step, window_s):
    """Tokens over time up to the step, of so many seconds."""
    lines = [line for line in lines if "grad_norm" in line and 1 < line["step"] <= step]
    tokens_of_step = lines[0]["tokens"] / lines[0]["step"]
    tokens = seconds = 0
    for line in reversed(lines):
        took = tokens_of_step / line["tokens_per_second"]
        if seconds + took / 2 > window_s:
            break
        tokens += tokens_of_step
        seconds += took
    return tokens / seconds


def look_at_the_rate(page, run):
    """What the head of the page says is tokens over the time that it says, of its step."""
    head = re.compile(r"step (\d+) of \d+ · (\S+(?: [kMGT])?) tokens/s over the last ([.0-9]+) s of training · "
                      r"about .* left")

    def seen():
        found = head.search(page.text("summary"))
        return found if found and float(found.group(3)) >= 2 else None

    step, rate, window_s = page.until(seen, "a rate over two seconds").groups()
    of_lines = rate_of_lines(metrics_of(run), int(step), float(window_s))
    half_of_last_digit = 0.5 if float(window_s) >= 10 else 0.05
    error = 0.01 + half_of_last_digit / float(window_s) + 0.02
    assert abs(count(rate) - of_lines) <= error * of_lines, (rate, window_s, of_lines)


# Marks as dygraphs sets them, of ranges of every size and as narrow as one likes.
MARKS = """
let seed = arguments[0];
const random = () => (seed = (1103515245 * seed + 12345) % 2147483648) / 2147483648;
const units = { k: 1e3, M: 1e6, G: 1e9, T: 1e12 };
const read = (label) => { const [number, unit] = label.split(" "); return Number(number) * (unit ? units[unit] : 1); };
const bad = [];
for (let round = 0; round < 5000; ++round) {
  const low = (random() < 0.5 ? -1 : 1) * 10 ** (24 * random() - 12);
  const high = low + Math.abs(low) * 10 ** (-9 * random());
  const option = (name) => ({ pixelsPerLabel: 30, axisLabelFormatter: String })[name];
  const marks = axisTicks(low, high, 200, option, null, null);
  const labels = marks.map((mark) => mark.label);
  const gap = marks[1].v - marks[0].v;
  const near = marks.every((mark) => Math.abs(read(mark.label) - mark.v) <= 0.1 * gap);
  if (!near || new Set(labels).size !== labels.length) bad.push([low, high, labels]);
}
return bad;
"""


def look_at_the_axes(page):
    """No two marks of an axis say the same."""
    seed = int.from_bytes(os.urandom(4), "little") % 2**31
    bad = page.driver.execute_script(MARKS, seed)
    assert not bad, (seed, bad[:3])
    for chart in ("loss", "grad_norm", "lr", "tokens_per_second"):
        for axis in "xy":
            marks = marks_of(page, chart, axis)
            assert marks and len(set(marks)) == len(marks), (chart, axis, marks)


def marks_of(page, chart, axis):
    return page.driver.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((mark) => mark.textContent);",
        f"#{chart} .dygraph-axis-label-{axis}")


def make_narrow_run(run):
    """A run whose numbers hardly differ, or not at all."""
    run.mkdir()
    (run / "config.toml").write_text("")
    with open(run / "metrics.jsonl", "w") as metrics:
        for step in range(1, 101):
            metrics.write(json.dumps({"step": step, "loss": 1.0001 + 1e-4 * (step % 2), "grad_norm": 0.25,
                                      "lr": 0.003 - 1e-11 * step ** 2, "tokens": 256 * step,
                                      "tokens_per_second": 56500 + step % 7}) + "\n")


def make_long_run(run):
    """More steps than a chart has bins; no bin's mean is the newest loss."""
    run.mkdir()
    (run / "config.toml").write_text("")
    with open(run / "metrics.jsonl", "w") as metrics:
        for step in range(1, 4097):
            metrics.write(json.dumps({"step": step, "loss": 2.0 + step % 2, "grad_norm": 1.0, "lr": 0.01}) + "\n")


def look_at_narrow_numbers(page, url):
    page.driver.get(url + "?run=narrow")
    page.until(lambda: {"1.0001", "1.0002"} <= set(marks_of(page, "loss", "y")), "the marks of the loss")
    page.until(lambda: "0.25" in marks_of(page, "grad_norm", "y"), "the mark of the gradient")
    page.until(lambda: marks_of(page, "lr", "y"), "the chart of the learning rate")
    look_at_the_axes(page)
    # Labels end where the curves begin.
    over = page.driver.execute_script("""
        const chart = charts.find((each) => each.id === "lr").graph;
        const begin = chart.canvas_.getBoundingClientRect().left + chart.getArea().x;
        return [...document.querySelectorAll("#lr .dygraph-axis-label-y")].map((mark) => mark.parentElement)
          .map((mark) => mark.getBoundingClientRect().right - begin).filter((pixels) => pixels > 0);""")
    assert not over, over


def kill_a_rank(page, run, launcher, pictures):
    status = json.loads((run / "status.json").read_text())
    victim = next(rank["pid"] for rank in status["ranks"] if rank.get("pid") != launcher.pid)
    os.kill(victim, signal.SIGKILL)
    page.until(lambda: page.events("rank_lost"), "the loss of a rank")
    page.until(lambda: page.events("respawned"), "the recovery")
    page.until(lambda: "generation 1" in page.text("summary"), "the new generation")
    step = int(re.search(r"step (\d+)", page.text("summary")).group(1))
    page.until(lambda: int(re.search(r"step (\d+)", page.text("summary")).group(1)) > step, "more steps")
    page.picture(pictures, "board-recovered.png")
    page.no_complaints()


def use_keyboard_and_phone(page):
    body = page.driver.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.TAB)
    assert page.driver.switch_to.active_element.get_attribute("class") == "skip"
    reached = set()
    for _ in range(12):
        page.driver.switch_to.active_element.send_keys(Keys.TAB)
        reached.add(page.driver.switch_to.active_element.get_attribute("id"))
    assert {"run", "theme", "smoothing", "log-x", "log-y", "zoom-out"} <= reached, reached
    page.driver.find_element(By.ID, "theme").click()
    theme = page.driver.find_element(By.TAG_NAME, "html").get_attribute("data-theme")
    assert theme in ("dark", "light")
    for name in ("log-y", "log-x"):
        page.driver.find_element(By.ID, name).click()
    page.driver.execute_script("const s = byId('smoothing'); s.value = 80; "
                               "s.dispatchEvent(new Event('input'));")
    page.driver.set_window_size(500, 900)  # the narrowest that a window of Chromium can be
    wider = "const page = document.documentElement; return page.scrollWidth - page.clientWidth;"
    page.until(lambda: page.driver.execute_script(wider) <= 0, "a page as narrow as a phone")
    page.no_complaints()


def watch_what_is_over(page, program, site, run):
    make_narrow_run(run.parent / "narrow")
    make_long_run(run.parent / "long")
    board = subprocess.Popen([program, "board", "runs"], cwd=site, stdout=subprocess.PIPE, text=True)
    try:
        page.driver.set_window_size(1300, 1500)
        page.driver.get("about:blank")
        page.driver.get_log("browser")  # what the page said when the run's own board had ended
        url = board.stdout.readline().strip()
        page.driver.get(url)
        page.until(lambda: page.text("condition") in ("over", "failed"), "the end")
        last = [line for line in metrics_of(run) if "grad_norm" in line][-1]
        for quantity in ("loss", "grad_norm", "lr"):  # the past comes in pieces, so some last ones pass by
            page.until(lambda: shows(page, quantity, last[quantity]), f"the last {quantity} of {last}")
        page.no_complaints()
        page.driver.get(url + "?run=long")
        page.until(lambda: shows(page, "loss", 2.0), "the last loss of many steps")
        look_at_narrow_numbers(page, url)
        page.no_complaints()
    finally:
        board.send_signal(signal.SIGINT)
        assert board.wait(PATIENCE_S) == 0


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    pictures = sys.argv[2] if len(sys.argv) > 2 else None
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        print("skipped: no chromium and chromedriver here")
        return 77
    with running(program) as (launcher, site, run, log):
        page = None
        try:
            page = Page(chromium, driver)
            watch_the_run(page, run, address(launcher, run, log), pictures)
            kill_a_rank(page, run, launcher, pictures)
            use_keyboard_and_phone(page)
            launcher.send_signal(signal.SIGTERM)
            assert launcher.wait(PATIENCE_S) == 75, log.read_text()
            watch_what_is_over(page, program, site, run)
        except BaseException:
            print(log.read_text()[-4000:])
            raise
        finally:
            if page:
                page.driver.quit()
    return 0


if __name__ == "__main__":
    sys.exit(main())
