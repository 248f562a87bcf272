#!/usr/bin/env python3
"""Takes the picture of the board that README.md and docs/watching.md show.

    scripts/board_picture.py [--actortrain PROGRAM] [--data DIR] PICTURE

Trains configs/quickstart.toml for 200 steps with a board, opens it in headless Chromium, and takes the picture at
step 150. Wants chromium, chromedriver, Selenium, and --data, the quickstart's (./dev data quickstart makes it).
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import tempfile

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEP = 150
SETTINGS = {"run.steps": 200, "schedule.warmup_steps": 20, "eval.interval_steps": 25, "run.sample_tokens": 0,
            "checkpoint.interval_steps": 50, "status.listen": "127.0.0.1:0"}


def open_browser():
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                     "--hide-scrollbars", "--window-size=1300,1500"]:
        options.add_argument(argument)
    return webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)


def shown_step(browser):
    found = re.match(r"step (\d+) ", browser.find_element(By.ID, "summary").text)
    return int(found.group(1)) if found else -1


def take_picture(url, picture):
    browser = open_browser()
    try:
        browser.get(url)
        wait = WebDriverWait(browser, 3600, poll_frequency=0.1)
        wait.until(lambda _: shown_step(browser) >= STEP, f"step {STEP} is not shown")
        browser.save_screenshot(str(picture))
        print(browser.find_element(By.ID, "summary").text)
    finally:
        browser.quit()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actortrain", default=ROOT / "build/release/actortrain", type=pathlib.Path)
    parser.add_argument("--data", default=ROOT / "data/quickstart", type=pathlib.Path)
    parser.add_argument("picture", type=pathlib.Path)
    options = parser.parse_args()
    settings = {**SETTINGS, "data.dir": options.data.resolve()}
    with tempfile.TemporaryDirectory() as directory:
        words = [options.actortrain.resolve(), "run", ROOT / "configs/quickstart.toml", "--fresh"]
        words += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        run = subprocess.Popen(words, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            url = None
            for line in run.stderr:
                if found := re.search(r"board url=(\S+)", line):
                    url = found.group(1)
                    break
                print(line, end="")
            if url is None:
                raise SystemExit("the run has no board")
            take_picture(url, options.picture)
        finally:
            run.kill()
            run.wait()


if __name__ == "__main__":
    main()
