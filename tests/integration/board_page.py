#!/usr/bin/env python3
"""A run watched in a real browser: python3 board_page.py PROGRAM [PICTURES]

Starts a run of two ranks with a board, opens it in headless Chromium, sees the loss fall, compares
what the page says with metrics.jsonl, kills a rank and sees the loss of it and the recovery, and
looks at the finished run, and at others, with `actortrain board`: what is said of each, how it is
drawn, loads of experts, contrast, names, headings and keyboard, what new data leave of what is read (board_updates.py),
and a frame in another page. PICTURES: a directory for screenshots.
Ends with 77 where there is no Chromium, chromedriver or Selenium.
"""
import contextlib
import http.server
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.actions.action_builder import ActionBuilder
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.wait import WebDriverWait
except ImportError:
    print("skipped: no python3-selenium here")
    sys.exit(77)

WORDS = {"loss": "training loss", "val_loss": "validation loss", "grad_norm": "gradient norm", "lr": "learning rate"}
PATIENCE_S = 240  # a hang ends; nothing here measures time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from board_updates import board_comes_back, look_at_updates  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from actortrain._board import FRAME_ANCESTORS  # noqa: E402

CONFIG = """
[run]
name = "watched"
steps = 1000000
sample_interval_steps = 50
sample_tokens = 8
sample_prompts = ["the river ", "a <b>quiet</b>\\nchild", "the river "]
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
    """A run of two ranks with a board: its launcher, its site, its directory, the file of its log, which is complete
    when the launcher has ended, and the board's address."""
    with tempfile.TemporaryDirectory() as directory:
        site = pathlib.Path(directory)
        words = "the river a quiet child the old miller follows remembers waits for paints".split()
        text = "\n".join(" ".join(words[(i * j) % len(words)] for j in range(1, 7)) for i in range(2000))
        (site / "text.txt").write_text(text)
        (site / "run.toml").write_text(CONFIG)
        subprocess.run([program, "data", "prepare", "--input", "text.txt", "--out", "data"], cwd=site,
                       check=True, stdout=subprocess.DEVNULL)
        launcher = subprocess.Popen([program, "run", "run.toml"], cwd=site, stderr=subprocess.PIPE,
                                    stdout=subprocess.DEVNULL, text=True)
        log = site / "log"
        address = queue.Queue()
        logging = threading.Thread(target=keep_log, args=(launcher.stderr, log, address))
        logging.start()
        try:
            url = address.get(timeout=PATIENCE_S)
            assert url, log.read_text()
            yield launcher, site, site / "runs" / "watched", log, url
        finally:
            launcher.kill()
            launcher.wait()
            logging.join()


def keep_log(stderr, path, address):
    """Writes the log of a run to a file. Into `address` comes the board's, or None if it never had one."""
    found = None
    with open(path, "w", buffering=1) as log:
        for line in stderr:
            log.write(line)
            if not found and (found := re.search(r"board url=(\S+)", line)):
                address.put(found.group(1))
    address.put(None)


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

    def number(self, chart, quantity):
        """What is written beside a chart of a quantity of metrics.jsonl."""
        found = re.search(rf"(?:^|\s){WORDS[quantity]} ([-+.e0-9]+)", self.text(f"{chart}-values"))
        return float(found.group(1)) if found else None

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def open(self, url):
        """Opens a page and waits until it has asked for the runs."""
        self.driver.get(url)
        # Where a click left the pointer, a chart that scrolls there would read its step.
        self.point(1, 1)
        self.until(lambda: self.script("return state.run || byId('notice').textContent;"), "the runs")

    def point(self, x, y):
        """Moves the pointer to a place in the window."""
        action = ActionBuilder(self.driver)
        action.pointer_action.move_to_location(x, y)
        action.perform()

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
    shown = page.number(quantity, quantity)
    return shown is not None and agree(shown, value)


def watch_the_run(page, run, url, pictures):
    page.driver.get(url)
    first = page.until(lambda: page.number("loss", "loss"), "a loss")
    page.until(lambda: page.number("loss", "loss") < first, "a smaller loss")
    canvas = page.driver.find_element(By.CSS_SELECTOR, "#loss canvas")
    assert canvas.size["width"] > 300, "the chart is drawn"
    page.until(lambda: page.driver.find_elements(By.CSS_SELECTOR, ".rank"), "ranks")
    page.until(lambda: page.events("evaluation"), "an evaluation")
    shown = page.until(lambda: page.number("loss", "val_loss"), "a validation loss")
    assert any(agree(shown, line["val_loss"]) for line in metrics_of(run) if "val_loss" in line)
    page.until(lambda: "resident" in page.text("memory") and "as planned" in page.text("memory"), "memory")
    page.until(lambda: page.events("checkpoint_published"), "a checkpoint")
    look_at_the_samples(page, run)
    look_at_the_rate(page, run)
    look_at_the_axes(page)
    page.picture(pictures, "board.png")
    page.no_complaints()


def look_at_the_samples(page, run):
    """Texts of a step, as they are in the events, markup and all; the slider goes back to the first."""
    page.until(lambda: len(sampled(run)) >= 6, "two steps with samples")
    page.until(lambda: page.text("samples-at").endswith(", the newest"), "samples")
    page.script("byId('samples-step').value = 0; byId('samples-step').dispatchEvent(new Event('input'));")
    page.until(lambda: page.text("samples-at") == "step 0", "the first samples")
    first = [event for event in sampled(run) if event["step"] == 0]
    shown = page.script("return [...document.querySelectorAll('#samples dt, #samples dd')].map((one) => one.textContent);")
    assert shown == [part for event in first for part in (event["prompt"], event["text"])], (shown, first)
    assert not page.events("sampled"), "texts have a place of their own"
    page.script("const step = byId('samples-step'); step.value = step.max; step.dispatchEvent(new Event('input'));")
    page.until(lambda: page.text("samples-at").endswith(", the newest"), "the newest samples")


def sampled(run):
    text = (run / "events.jsonl").read_text()
    lines = text[:text.rfind("\n") + 1].splitlines()  # the last may be half of one
    return [event for event in map(json.loads, lines) if event["event"] == "sampled"]


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
            # Between the numbers of a logarithmic axis there are marks without any.
            marks = [mark for mark in marks_of(page, chart, axis) if mark]
            assert marks and len(set(marks)) == len(marks), (chart, axis, marks)


def marks_of(page, chart, axis):
    return page.driver.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((mark) => mark.textContent);",
        f"#{chart} .dygraph-axis-label-{axis}")


def make_run(run, lines, status=None):
    """A run's directory, with a status unless None."""
    run.mkdir()
    (run / "config.toml").write_text("")
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if status:
        (run / "status.json").write_text(json.dumps(status))


def make_runs(runs, status):
    """Runs beside one that is over, whose status is given."""
    # Numbers that hardly differ, or not at all.
    make_run(runs / "narrow", [
        {"step": step, "loss": 1.0001 + 1e-4 * (step % 2), "grad_norm": 0.25, "lr": 0.003 - 1e-11 * step ** 2,
         "tokens": 256 * step, "tokens_per_second": 56500 + step % 7} for step in range(1, 101)])
    # More steps than a chart has bins; no bin's mean is the newest loss.
    make_run(runs / "long", [{"step": step, "loss": 2.0 + step % 2, "grad_norm": 1.0, "lr": 0.01}
                             for step in range(1, 4097)])
    # Three steps and an evaluation; its process is gone. Steps of 1 and 3 s: 2 s a step of 100 tokens.
    died = {key: value for key, value in status.items() if key != "outcome"}
    died |= {"run": "short", "process_start": 1, "phase": "running", "remaining_s": 60, "ranks_count": 1,
             "written_unix_s": status["written_unix_s"] - 60}
    make_run(runs / "short", [
        {"step": 1, "loss": 3.0, "grad_norm": 100.0, "lr": 0.01, "tokens": 100, "tokens_per_second": 100.0},
        {"step": 2, "loss": 2.0, "grad_norm": 1.0, "lr": 0.01, "tokens": 200, "tokens_per_second": 100.0 / 3},
        {"event": "evaluation", "step": 2, "val_loss": 2.5, "val_perplexity": 12.2}], died)
    make_run(runs / "experts", [line_with_experts(step) for step in range(1, 31)])
    # 48 layers of 128 experts, and as many steps as the board keeps of them at most.
    make_run(runs / "many-experts", [line_with_experts(step, 48, 128) for step in range(1, 401)])
    (runs / "unstarted").mkdir()
    (runs / "unstarted" / "config.toml").write_text("")


def line_with_experts(step, layers=2, experts=4):
    """A line of a run whose loads become equal; from step 20 on no row chooses expert 2 of layer 1."""
    loads = [[round(1 + (-1) ** expert * 0.9 / step, 3) for expert in range(experts)] for _ in range(layers)]
    loads[0][1] = 2.5
    if step >= 20:
        loads[1][2] = 0
    flat = [load for layer in loads for load in layer]
    return {"step": step, "loss": 3.0 - 0.01 * step, "grad_norm": 1.0, "lr": 0.01, "expert_load_max": max(flat),
            "expert_load_min": min(flat), "dead_experts": flat.count(0), "expert_entropy": 1 - 0.1 / step,
            "expert_bias_min": -0.01 * step, "expert_bias_max": 0.02 * step,
            "balance/switch_previous_step": 1 + 1 / step, "balance/z_lane": 2 + 1 / step, "expert_load": loads}


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
    def victim():
        ranks = json.loads((run / "status.json").read_text())["ranks"]
        return next((rank["pid"] for rank in ranks if rank.get("pid", launcher.pid) != launcher.pid), None)

    page.until(victim, "a rank that the run has heard of")
    os.kill(victim(), signal.SIGKILL)
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
        assert page.script("return getComputedStyle(document.activeElement).outlineStyle;") != "none", reached
    assert {"theme", "smoothing", "log-x", "log-y", "zoom-out", "loss", "grad_norm"} <= reached, reached
    page.driver.find_element(By.ID, "theme").click()
    theme = page.driver.find_element(By.TAG_NAME, "html").get_attribute("data-theme")
    assert theme in ("dark", "light")
    for name in ("log-y", "log-x"):
        page.driver.find_element(By.ID, name).click()
    page.script("const s = byId('smoothing'); s.value = 80; s.dispatchEvent(new Event('input'));")
    look_at_a_phone(page)
    page.no_complaints()


def look_at_a_phone(page):
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True})
    wider = "const page = document.documentElement; return page.scrollWidth - page.clientWidth;"
    page.until(lambda: page.script(wider) <= 0, "a page as narrow as a phone")
    table = page.driver.find_element(By.CSS_SELECTOR, "#all-runs .scroll")
    if table.is_displayed():
        hidden = page.script("return arguments[0].scrollWidth > arguments[0].clientWidth;", table)
        assert hidden == page.driver.find_element(By.ID, "runs-more").is_displayed(), "whether the table scrolls"
        assert hidden, "a table of seven columns on a phone"
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def read_with_arrows(page, chart, last):
    """Arrow keys read values of a chart and select a part of its steps."""
    box = page.driver.find_element(By.ID, chart)
    now = lambda: float(box.get_attribute("aria-valuenow"))
    shown = lambda: page.script("return charts.find((one) => one.id === arguments[0]).graph.xAxisRange();", chart)
    whole = shown()
    box.send_keys(Keys.HOME)
    first = now()
    box.send_keys(Keys.ARROW_RIGHT)
    assert first < now() < last, (first, now(), last)
    assert f"step {now():g}:" in page.text(f"{chart}-values"), page.text(f"{chart}-values")
    assert box.get_attribute("aria-valuetext").startswith(f"step {now():g}:")
    left = now()
    box.send_keys(Keys.SHIFT + Keys.ARROW_RIGHT * 5)
    right = now()
    box.send_keys(Keys.ENTER)
    page.until(lambda: shown() == [left, right], f"steps {left} to {right}, not {shown()}")
    box.send_keys(Keys.ESCAPE)
    page.until(lambda: shown() == whole, f"the whole run {whole}, not {shown()}")


def look_at_the_end(page, url, run):
    """Of a run that is over: when it ended, by a clock that goes on, the mean rate, its checkpoints."""
    page.open(f"{url}?run={run.name}")
    page.until(lambda: re.search(r"^Ended .* ago: .*exit code 75", page.text("outcome")), "the end")
    page.script("const now = Date.now; Date.now = () => now() + 7.2e6; drawSummary();")
    assert re.search(r", 2 h \d+ min ago", page.text("outcome")), page.text("outcome")
    page.until(lambda: "tokens/s on average" in page.text("summary"), "the mean rate")
    assert not re.search(" left|over the last", page.text("summary")), page.text("summary")
    evaluations = {line["step"]: line["val_loss"] for line in metrics_of(run) if "val_loss" in line}
    placed = sorted((int(one.name[5:]) for one in (run / "checkpoints").glob("step-*")), reverse=True)
    page.until(lambda: page.driver.find_elements(By.CSS_SELECTOR, "#checkpoints .best"), "the best checkpoint")
    items = page.text("checkpoints").splitlines()
    assert [int(re.match(r"step (\d+)", item).group(1)) for item in items] == placed, items
    best = [int(re.match(r"step (\d+) .*the best", item.text).group(1))
            for item in page.driver.find_elements(By.CSS_SELECTOR, "#checkpoints .best")]
    evaluated = [step for step in placed if step in evaluations]
    assert best == [min(evaluated, key=lambda step: (evaluations[step], step))], (best, evaluations)
    scale = [mark.text for mark in page.driver.find_elements(By.CSS_SELECTOR, "#memory .scale span")]
    assert len(scale) == 5 and scale[0] == "0 B", scale
    look_at_the_form(page)
    read_with_arrows(page, "loss", metrics_of(run)[-1]["step"])


def look_at_what_died(page, url):
    page.open(f"{url}?run=short")
    page.until(lambda: page.text("condition") == "died", "the death")
    page.until(lambda: "50.0 tokens/s on average · 1 rank ·" in page.text("summary"), "the mean of two steps")
    assert " left" not in page.text("summary") and "resumes" in page.text("outcome"), page.text("outcome")
    assert "There is none yet" in page.text("checkpoints")
    for chart in ("loss", "grad_norm", "lr"):
        marks = marks_of(page, chart, "x")
        assert marks and all(mark.isdigit() for mark in marks), (chart, marks)
    logarithmic = "return [charts[1], otherChart, charts[2]].map((one) => !!one.graph.getOption('logscale'));"
    assert page.script(logarithmic) == [True, True, False]


def look_at_what_is_missing(page, url, site, program):
    """A sentence each for no run, no run of that name, and a run that has not begun."""
    page.open(f"{url}?run=unknown")
    assert "No run of this folder is named “unknown”" in page.text("notice"), page.text("notice")
    assert not page.driver.find_element(By.ID, "of-run").is_displayed()
    page.driver.find_element(By.LINK_TEXT, "unstarted").click()
    page.until(lambda: "no status yet; the run has not started" in page.text("stall"), "that it has not begun")
    assert not page.driver.find_element(By.ID, "charts").is_displayed(), "charts of nothing"
    (site / "none").mkdir()
    with board_of(program, site, "none") as empty:
        page.open(empty)
        assert "No run is in this folder yet" in page.text("notice"), page.text("notice")


CURVES = """
return [...charts, otherChart].filter((chart) => chart.graph).map((chart) => chart.curves.map((curve, at) => {
  const option = (name) => chart.graph.getOption(name, `${curve.series.run}\\n${curve.quantity}`);
  return { run: curve.series.run, quantity: curve.quantity, color: option("color"), points: option("drawPoints"),
    dashed: !!option("strokePattern") };
}));
"""


# The colour in the middle of a cell of the map of loads, of a point where its cross has no line.
CELL = """
const [row, column] = arguments;
const scale = window.devicePixelRatio;
const x = expertMap.left + (column + 0.5) * expertMap.width, y = (row + 0.2) * expertMap.height;
return [...byId("loads").getContext("2d").getImageData(Math.round(scale * x), Math.round(scale * y), 1, 1).data];
"""


def look_at_experts(page, url, pictures):
    """The map of loads: its colours, its words by keyboard and pointer, and the slider over steps."""
    page.open(f"{url}?run=experts")
    page.until(lambda: page.text("loads-at") == "step 30, the newest", "the newest loads")
    assert page.text("loads-summary") == ("2 layers of 4 experts. Largest load 2.5 (layer 0, expert 1). "
                                          "1 dead: layer 1, expert 2."), page.text("loads-summary")
    red, _, blue, _ = page.script(CELL, 0, 1)
    assert red > blue, "a load above 1 has the colour of the upper end"
    assert page.script(CELL, 1, 2)[3] == 0, "a dead expert has no colour, but a cross"
    assert page.script("let other = 0; for (const byte of byId('loads').getContext('2d').getImageData("
                       "...[expertMap.left + 2 * expertMap.width, expertMap.height, expertMap.width - 1, "
                       "expertMap.height - 1].map((one) => one * window.devicePixelRatio)).data) other += byte; "
                       "return other;") > 0, "the cross"
    canvas = page.driver.find_element(By.ID, "loads")
    canvas.send_keys(Keys.ARROW_DOWN + Keys.ARROW_RIGHT + Keys.ARROW_RIGHT)
    said = "layer 1, expert 2: dead, no row chose it, step 30"
    assert canvas.get_attribute("aria-valuetext") == said == page.text("loads-tip"), page.text("loads-tip")
    page.script("byId('loads-step').value = 9; byId('loads-step').dispatchEvent(new Event('input'));")
    page.until(lambda: page.text("loads-at") == "step 10", "the loads of step 10")
    load = line_with_experts(10)["expert_load"][1][2]
    assert canvas.get_attribute("aria-valuetext") == f"layer 1, expert 2: load {load:g}, step 10"
    assert "smallest 0.91 (layer 0, expert 3)" in page.text("loads-summary"), page.text("loads-summary")
    # A chart beside the map shows the loads of the step that it reads, until it is left.
    page.until(lambda: page.text("dead_experts-values"), "a chart to read")  # keys before it mean nothing
    page.driver.find_element(By.ID, "dead_experts").send_keys(Keys.HOME + Keys.ARROW_RIGHT * 20)
    try:
        page.until(lambda: page.text("loads-at") == "step 21", "the loads of the step that a chart reads")
        page.script("drawCharts();")  # as whenever the run is looked at again
        assert page.text("loads-at") == "step 21", "new data end what the keyboard reads"
        look_at_the_pointer(page)
    finally:
        print("loads of", page.text("loads-at"), "and a chart at", page.text("dead_experts-values"), flush=True)
    canvas.send_keys(Keys.END)
    page.until(lambda: page.text("loads-at") == "step 10", "the chosen step")
    assert canvas.get_attribute("aria-valuetext").startswith("layer 0, expert 3: load 0.91"), "the end of a row"
    assert marks_of(page, "dead_experts", "y") == ["0", "1"], marks_of(page, "dead_experts", "y")
    read = {name: page.text(f"{name}-values") for name in ("expert_load", "expert_bias", "expert_entropy", "balance")}
    assert read["expert_load"] == "largest load 2.5 smallest load 0", read
    assert re.match("largest bias [.0-9]+ smallest bias [-−][.0-9]+", read["expert_bias"]), read
    assert re.match("balancing loss switch, previous step [.0-9]+ balancing loss z, lane", read["balance"]), read
    metrics = page.script("return [...byId('other').options].map((one) => one.value);")
    assert not [name for name in metrics if re.search("expert|balance", name)], metrics
    look_at_contrast_and_names(page)
    page.picture(pictures, "board-experts.png")
    look_at_many_experts(page, url, pictures)


def look_at_the_pointer(page):
    """Another chart's step under the pointer comes before the keyboard's 21, until the pointer has left."""
    box = page.driver.find_element(By.ID, "expert_load")
    page.script("arguments[0].scrollIntoView({ block: 'center' });", box)
    x, y, width, height = page.script("const box = arguments[0].getBoundingClientRect();"
                                      "return [box.x, box.y, box.width, box.height].map(Math.round);", box)
    page.point(x + width // 2, y + height // 2)
    page.until(lambda: page.text("expert_load-values").startswith("step "), "the step under the pointer")
    read = re.match(r"step \d+", page.text("expert_load-values"))[0]
    assert read not in ("step 10", "step 21", "step 30"), read
    page.until(lambda: page.text("loads-at") == read, "the loads of the step under the pointer")
    page.script("drawCharts();")
    assert page.text("loads-at") == read, "new data end what the pointer reads"
    assert page.text("expert_load-values").startswith(f"{read}:"), page.text("expert_load-values")
    page.point(1, 1)
    page.until(lambda: page.text("loads-at") == "step 21", "the keyboard's step")
    assert not page.text("expert_load-values").startswith("step "), page.text("expert_load-values")


def look_at_many_experts(page, url, pictures):
    """48 layers of 128 experts: small answers, a map that scrolls on a phone, none for other runs."""
    page.open(f"{url}?run=many-experts")
    page.until(lambda: page.text("loads-at") == "step 400, the newest", "the newest loads")
    largest = page.script("return Math.max(...performance.getEntriesByType('resource')"
                          ".filter((one) => one.name.includes('experts.json')).map((one) => one.decodedBodySize));")
    assert 48 * 128 < largest < 2 ** 17, largest
    kept = page.script("return expertMap.source.steps;")
    assert kept[0] == 1 and kept[-1] == 400 and 100 < len(kept) < 400, kept
    page.script("byId('loads-step').value = 0; byId('loads-step').dispatchEvent(new Event('input'));")
    page.until(lambda: page.text("loads-at") == "step 1", "the first loads")
    page.picture(pictures, "board-many-experts.png")
    look_at_a_phone(page)
    page.open(f"{url}?run=narrow")
    page.until(lambda: page.number("loss", "loss") is not None, "a loss")
    assert not page.driver.find_element(By.ID, "experts-card").is_displayed(), "a run without experts"
    assert not page.driver.find_element(By.ID, "balance-card").is_displayed(), "a run without experts"


def compare_runs(page, url):
    """Runs ticked in quick succession are all drawn, each in its own colour everywhere."""
    page.open(f"{url}?run=watched")
    page.until(lambda: page.number("loss", "loss") is not None, "a loss")
    page.until(lambda: page.driver.find_elements(By.CSS_SELECTOR, "#runs input"), "the table")
    table = page.driver.find_element(By.ID, "all-runs")
    assert table.location["y"] < page.driver.find_element(By.ID, "progress").location["y"], "the table is on top"
    page.script("for (const run of ['long', 'narrow', 'short']) "
                "document.querySelector(`#runs [aria-label='draw ${run}']`).click();")
    drawn = lambda: {curve["run"] for chart in page.script(CURVES) for curve in chart}
    page.until(lambda: drawn() == {"watched", "long", "narrow", "short"}, "four runs")
    curves = [curve for chart in page.script(CURVES) for curve in chart]
    colors = {(curve["run"], curve["color"]) for curve in curves}
    assert len(colors) == 4 == len({color for _, color in colors}), colors
    for curve in curves:
        assert curve["dashed"] == curve["quantity"].startswith("val_"), curve
        assert curve["points"] or (curve["run"], curve["quantity"]) != ("short", "val_loss"), "an evaluation is a point"
    look_at_a_phone(page)


def look_at_smoothing(page):
    """The average has no bias to the first value, and is called smoothed where it is read."""
    last = page.script("return smoothed([...Array(10).keys()].map((at) => [at, [at, at, at]]), 0.999)[9][1][1];")
    assert abs(last - 4.5) < 0.1, last
    page.script("byId('smoothing').value = 90; drawCharts();")
    page.driver.find_element(By.ID, "loss").send_keys(Keys.ARROW_LEFT)
    assert "training loss, smoothed" in page.text("loss-values"), page.text("loss-values")


# Texts whose contrast to what is behind them is below 4.5 : 1, and lines of charts below 3 : 1.
CONTRASTS = """
const light = ([red, green, blue]) => [red, green, blue].map((part) => part / 255)
  .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
  .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
const parts = (color) => color.startsWith("#") ? [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16))
  : color.match(/[.0-9]+/g).map(Number);
const behind = (node) => {
  for (; node; node = node.parentElement) {
    const color = parts(getComputedStyle(node).backgroundColor);
    if (color[3] !== 0) return color;
  }
  return [255, 255, 255];
};
const contrast = (one, other) => {
  const [less, more] = [light(one), light(other)].sort((a, b) => a - b);
  return (more + 0.05) / (less + 0.05);
};
const bad = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let text = walk.nextNode(); text; text = walk.nextNode()) {
  const node = text.parentElement;
  if (!text.data.trim() || !node.checkVisibility()) continue;
  const ratio = contrast(parts(getComputedStyle(node).color), behind(node));
  if (ratio < 4.5) bad.push([text.data, ratio]);
}
const card = behind(byId("loss"));
for (const color of kColors) if (contrast(parts(color), card) < 3) bad.push([color, contrast(parts(color), card)]);
const grid = charts[0].graph.getOption("gridLineColor");
if (contrast(parts(grid), card) < 4.5) bad.push(["grid", contrast(parts(grid), card)]);
return bad;
"""


def look_at_contrast_and_names(page):
    for theme in ("dark", "light"):
        page.script("document.documentElement.dataset.theme = arguments[0]; drawCharts();", theme)
        bad = page.script(CONTRASTS)
        assert not bad, (theme, bad)
    find = lambda selector: [one for one in page.driver.find_elements(By.CSS_SELECTOR, selector) if one.is_displayed()]
    for each in find("button, input, select, a, progress, [role=img], [role=slider], [role=region]"):
        assert each.accessible_name.strip(), each.get_attribute("outerHTML")[:200]
    for chart in find("[role=slider]"):
        assert chart.get_attribute("aria-valuetext") and chart.get_attribute("tabindex") == "0"
    words = page.script("return document.querySelector('#charts').innerText;")
    assert not re.search(r"[a-z]_[a-z]", words), re.findall(r"\S*[a-z]_[a-z]\S*", words)


def look_at_the_form(page):
    """What reads a page aloud needs, contrast, and words rather than keys."""
    look_at_contrast_and_names(page)
    find = lambda selector: [one for one in page.driver.find_elements(By.CSS_SELECTOR, selector) if one.is_displayed()]
    levels = [int(heading.tag_name[1]) for heading in find("h1, h2, h3, h4")]
    assert levels[0] == 1 and levels.count(1) == 1, levels
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:])), levels
    assert [len(find(landmark)) for landmark in ("header", "main")] == [1, 1]
    assert page.driver.find_element(By.TAG_NAME, "html").get_attribute("lang") == "en"
    assert re.fullmatch(r"watched · step \d+", page.driver.title), page.driver.title


@contextlib.contextmanager
def page_with(text):
    """Address of a page, as a notebook's server has it."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *words):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}/"
        server.shutdown()


def look_at_a_frame(page, program, site):
    """A page of this machine, as a notebook is one, shows the board that Python starts; no other board."""
    def shown(url):
        with page_with(f'<iframe src="{url}" width="1000" height="700"></iframe>') as notebook:
            page.driver.get(notebook)  # returns when its frame is there, too
            page.driver.switch_to.frame(0)
            found = page.driver.find_elements(By.ID, "of-run")
            page.driver.switch_to.default_content()
            return bool(found)

    with board_of(program, site, "runs", "--frame-ancestors", FRAME_ANCESTORS) as url:
        assert shown(url), "no board in the frame"
    with board_of(program, site, "runs") as url:
        assert not shown(url), "a board in a frame of any page"


@contextlib.contextmanager
def board_of(program, site, folder, *words):
    """Address of `actortrain board FOLDER`."""
    board = subprocess.Popen([program, "board", folder, *words], cwd=site, stdout=subprocess.PIPE, text=True)
    try:
        yield board.stdout.readline().strip()
    finally:
        board.send_signal(signal.SIGINT)
        assert board.wait(PATIENCE_S) == 0


def watch_what_is_over(page, program, site, run, pictures):
    make_runs(run.parent, json.loads((run / "status.json").read_text()))
    page.driver.set_window_size(1300, 1500)
    page.driver.get("about:blank")
    page.driver.get_log("browser")  # what the page said when the run's own board had ended
    with board_of(program, site, "runs") as url:
        page.open(url)
        page.until(lambda: page.text("condition") in ("ended", "failed"), "the end")
        last = [line for line in metrics_of(run) if "grad_norm" in line][-1]
        for quantity in ("loss", "grad_norm", "lr"):  # the past comes in pieces, so some last ones pass by
            page.until(lambda: shows(page, quantity, last[quantity]), f"the last {quantity} of {last}")
        look_at_the_end(page, url, run)
        page.no_complaints()
        page.open(url + "?run=long")
        page.until(lambda: shows(page, "loss", 2.0), "the last loss of many steps")
        look_at_narrow_numbers(page, url)
        look_at_experts(page, url, pictures)
        look_at_what_died(page, url)
        compare_runs(page, url)
        page.picture(pictures, "board-compared.png")
        look_at_smoothing(page)
        page.no_complaints()
        look_at_updates(page, url, run.parent)
        page.no_complaints()
        look_at_what_is_missing(page, url, site, program)
    with socket.socket() as place:  # a port that is free again
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % place.getsockname()[1]
    board_comes_back(page, lambda: board_of(program, site, "runs", "--listen", address), run.parent)
    look_at_a_frame(page, program, site)


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    pictures = sys.argv[2] if len(sys.argv) > 2 else None
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        print("skipped: no chromium and chromedriver here")
        return 77
    with running(program) as (launcher, site, run, log, url):
        page = None
        try:
            page = Page(chromium, driver)
            watch_the_run(page, run, url, pictures)
            kill_a_rank(page, run, launcher, pictures)
            use_keyboard_and_phone(page)
            launcher.send_signal(signal.SIGTERM)
            assert launcher.wait(PATIENCE_S) == 75, log.read_text()
            page.until(lambda: page.text("condition") in ("no answer", "ended"), "the end of the board")
            page.until(lambda: "actortrain board runs/" in page.text("outcome"), "what to do")
            assert " left" not in page.text("summary"), page.text("summary")
            watch_what_is_over(page, program, site, run, pictures)
        except BaseException:
            print(log.read_text()[-4000:])
            raise
        finally:
            if page:
                page.driver.quit()
    return 0


if __name__ == "__main__":
    sys.exit(main())
