#!/usr/bin/python3
"""How long an event of a run takes to a page in a browser: python3 event_to_page.py PROGRAM [EVENTS]

A run of two ranks with a board, in headless Chromium: for each line of events.jsonl the time from when
it was written (its unix_ms) to the frame that shows it. Prints how many, the median, and the longest.
"""
import importlib.util
import json
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

PAGE = pathlib.Path(__file__).resolve().parents[1] / "integration" / "board_page.py"

# What the page draws it draws as before; the first frame after it notes the time of each new event.
NOTE_FRAMES = """
window.shown = {};
const draw = drawEvents;
drawEvents = (events) => {
  draw(events);
  requestAnimationFrame(() => {
    for (const event of events) {
      const name = `${event.unix_ms} ${event.event}`;
      window.shown[name] = window.shown[name] ?? Date.now();
    }
  });
};
"""


def load_page_test():
    spec = importlib.util.spec_from_file_location("board_page", PAGE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(test, page, run, count):
    page.driver.execute_script(NOTE_FRAMES)
    test.until(lambda: page.driver.execute_script("return Object.keys(shown).length"), "an event")
    before = set(page.driver.execute_script("return shown"))  # were there when the page came
    test.until(lambda: page.driver.execute_script("return Object.keys(shown).length") >=
               len(before) + count, "events")
    shown = page.driver.execute_script("return shown")
    written = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    names = {f"{event['unix_ms']} {event['event']}": event["unix_ms"] for event in written}
    return [shown[name] - at for name, at in names.items() if name in shown and name not in before]


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    test = load_page_test()
    with tempfile.TemporaryDirectory() as directory:
        site = pathlib.Path(directory)
        run = site / "runs" / "watched"
        (site / "text.txt").write_text("\n".join(f"line {i * i % 997}" for i in range(9000)))
        (site / "run.toml").write_text(test.CONFIG.format(steps=1000000))
        subprocess.run([program, "data", "prepare", "--input", "text.txt", "--out", "data"], cwd=site,
                       check=True, stdout=subprocess.DEVNULL)
        log = site / "log"
        with open(log, "w") as stderr:
            launcher = subprocess.Popen([program, "run", "run.toml"], cwd=site, stderr=stderr,
                                        stdout=subprocess.DEVNULL)
        page = test.Page(shutil.which("chromium"), shutil.which("chromedriver"))
        try:
            url = test.until(lambda: re.search(r"board url=(\S+)", log.read_text()), "the address")
            page.driver.get(url.group(1))
            taken = measure(test, page, run, count)
            print(f"{len(taken)} events: median {statistics.median(taken):.0f} ms, "
                  f"longest {max(taken)} ms")
        finally:
            page.driver.quit()
            launcher.send_signal(signal.SIGTERM)
            launcher.wait(60)


if __name__ == "__main__":
    main()
