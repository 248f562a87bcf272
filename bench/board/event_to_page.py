#!/usr/bin/python3
"""How long an event of a run takes to a page in a browser: python3 event_to_page.py PROGRAM [EVENTS]

A run of two ranks with a board, in headless Chromium: for each line of events.jsonl the time from when
it was written (its unix_ms) to the frame that shows it. Prints how many, the median, and the longest.
"""
import importlib.util
import json
import pathlib
import shutil
import statistics
import sys

PAGE = pathlib.Path(__file__).resolve().parents[1] / "integration" / "board_page.py"

# The page draws as before; the first frame after it notes the time of each new event.
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
    with test.running(program) as (_, _, run, log):
        page = test.Page(shutil.which("chromium"), shutil.which("chromedriver"))
        try:
            page.driver.get(test.address(log))
            taken = measure(test, page, run, count)
            print(f"{len(taken)} events: median {statistics.median(taken):.0f} ms, "
                  f"longest {max(taken)} ms")
        finally:
            page.driver.quit()


if __name__ == "__main__":
    main()
