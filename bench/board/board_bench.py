#!/usr/bin/python3
"""What a board costs the training: python3 board_bench.py PROGRAM DATA [PAIRS [LOAD]]

`served` (first): one run with a board; 20 browsers and a scrape a second look at it for ten seconds of every twenty. The
browsers are one process that throws away what it is sent, so that their own work is small. Prints each such
window's step time against those before and after, and what the board's thread and the browsers took.

Pairs of quickstart runs of some steps, without and with a board that somebody uses: `browsers`: 20
streams of events, their numbers every second, a scrape a second; `hostile`: 2,000 connections,
headers that never end, bad chunks, tricks with paths. Prints the ratio of the step times (the median
of each run's steps), its spread over the pairs, whether the losses are the same to the last digit, and
what the memory of the run grew by. Who uses the board takes processor time of its own on the same cores:
beside each hostile pair stands a run without a board whose load goes to a program of a few lines that lets
as many in and says no, so `beyond the load` is what the board adds. DATA: the bytes that configs/quickstart.toml reads. Runs alone.
"""
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

STEPS = 150
CONFIG = pathlib.Path(__file__).resolve().parents[2] / "configs" / "quickstart.toml"


class Load(threading.Thread):
    """Something that uses the board until it is told to stop."""

    def __init__(self, host, port):
        super().__init__(daemon=True)
        self.host, self.port, self.stopped = host, port, threading.Event()

    def connect(self):
        return socket.create_connection((self.host, self.port), timeout=10)

    def run(self):
        while not self.stopped.is_set():
            try:
                self.once()
            except OSError:
                time.sleep(0.01)


class Browser(Load):
    def once(self):
        stream = self.connect()
        stream.sendall(b"GET /events?run= HTTP/1.1\r\nHost: localhost\r\n\r\n")
        stream.settimeout(1.0)
        since = ""
        while not self.stopped.is_set():
            try:
                if not stream.recv(65536):
                    return
            except socket.timeout:
                pass
            with urllib.request.urlopen(f"http://{self.host}:{self.port}/series.json?{since}") as answer:
                news = json.load(answer)
            since = f"since={news['last_step']}&width={news['width']}"
            time.sleep(1.0)


class Scraper(Load):
    def once(self):
        urllib.request.urlopen(f"http://{self.host}:{self.port}/metrics").read()
        time.sleep(1.0)


class Silent(Load):
    """Hundreds of connections that say little, each replaced when it is closed."""

    def once(self):
        held = []
        for _ in range(500):
            connection = self.connect()
            connection.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
            held.append(connection)
        time.sleep(0.2)
        for connection in held:
            connection.close()


class Talker(Load):
    """One wrong request after the other, as fast as it is answered."""

    requests = [b"GET /" + b"../" * 2000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
                b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffff\r\n" + b"x" * 9000,
                b"GET /%2e%2e/%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
                b"GET / HTTP/1.1\r\n" + b"A: " + b"b" * (1 << 20)]

    def once(self):
        for request in self.requests:
            connection = self.connect()
            try:
                connection.sendall(request)
                connection.recv(4096)
            finally:
                connection.close()


class EndlessHeader(Load):
    """1 GB of header, as far as it is taken."""

    def once(self):
        connection = self.connect()
        connection.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(1024):
            connection.sendall(b"X: " + b"y" * (1 << 20) + b"\r\n")


LOADS = {"browsers": [Browser] * 20 + [Scraper],
         "hostile": [Silent] * 4 + [Talker] * 2 + [EndlessHeader]}


def peak_kib(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", text).group(1))


def board_seconds(pid):
    """Of a processor, that the board's thread took: the one of low priority."""
    ticks = 0
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"):
        fields = task.read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12]) if fields[16] == "10" else 0
    return ticks / os.sysconf("SC_CLK_TCK")


NEUTRAL = """
import collections, os, socket, time
os.nice(10)
listener = socket.create_server(("127.0.0.1", 0), backlog=256)
print(listener.getsockname()[1], flush=True)
silent, turn = collections.deque(), time.monotonic()
while True:
    connection, _ = listener.accept()
    now = time.monotonic()
    turn = max(turn, now - 3) + 0.02
    time.sleep(max(0, turn - now))
    connection.settimeout(0.01)
    try:
        if connection.recv(8192).endswith(b"X-Slow: "):
            silent.append(connection)
            connection = silent.popleft() if len(silent) > 256 else None
        else:
            connection.sendall(b"HTTP/1.1 400 Bad Request\\r\\n\\r\\n")
    except OSError:
        pass
    if connection:
        connection.close()
"""


class NeutralPort:
    """Lets as many in as the board and says no to all: what an attacker's own work on these cores costs."""

    def __enter__(self):
        self.process = subprocess.Popen([sys.executable, "-c", NEUTRAL], stdout=subprocess.PIPE, text=True)
        return "127.0.0.1", int(self.process.stdout.readline())

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def one_run(program, data, loads, port=None):
    """`port`: where the load goes; none: to the run's own board."""
    with tempfile.TemporaryDirectory() as site:
        listen = ["--set", "status.listen=127.0.0.1:0"] if loads and not port else []
        run = subprocess.Popen(
            [program, "run", str(CONFIG), "--set", f"data.dir={data}", "--set", f"run.steps={STEPS}",
             "--set", f"run.dir={site}", "--set", "eval.interval_steps=0", *listen],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        threads, peak, board, began = [], 0, 0.0, time.monotonic()
        stop = threading.Event()

        def watch():
            nonlocal board
            while not stop.wait(0.5):
                try:
                    board = max(board, board_seconds(run.pid) / (time.monotonic() - began))
                except (OSError, IndexError):
                    pass

        threading.Thread(target=watch, daemon=True).start()
        if port:
            threads = [load(*port) for load in loads]
            for thread in threads:
                thread.start()
        for line in run.stderr:
            found = re.search(r"board url=http://([\d.]+):(\d+)/", line)
            if found and loads:
                threads = [load(found.group(1), int(found.group(2))) for load in loads]
                for thread in threads:
                    thread.start()
            if "run_finished" in line:
                break
            try:
                peak = max(peak, peak_kib(run.pid))
            except (OSError, AttributeError):
                pass
        stop.set()
        for thread in threads:
            thread.stopped.set()
        run.stderr.read()
        assert run.wait() == 0
        metrics = next(pathlib.Path(site).glob("*/metrics.jsonl")).read_text().splitlines()
        steps = [json.loads(line) for line in metrics if '"grad_norm"' in line]
    times = [1.0 / step["tokens_per_second"] for step in steps[10:]]
    return {"time": statistics.median(times), "losses": [step["loss"] for step in steps], "peak": peak, "board": board}


BROWSERS = """
import http.client, re, socket, sys, time
address = ("127.0.0.1", int(sys.argv[1]))
streams = [socket.create_connection(address) for _ in range(20)]
for stream in streams:
    stream.sendall(b"GET /events?run= HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
    stream.setblocking(False)
pages = [http.client.HTTPConnection(*address) for _ in range(21)]
since = {}
while True:
    began = time.monotonic()
    for number, page in enumerate(pages):
        page.request("GET", "/metrics" if number == 20 else "/series.json?" + since.get(number, ""))
        answer = page.getresponse().read()
        if number < 20:
            news = [re.search(rb'"%s":(\\d+)' % name, answer).group(1).decode() for name in (b"last_step", b"width")]
            since[number] = "since=%s&width=%s" % tuple(news)
    for stream in streams:
        try:
            while stream.recv(65536):
                pass
        except BlockingIOError:
            pass
    time.sleep(max(0, began + 1 - time.monotonic()))
"""


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def served(program, data, windows, seconds=10):
    with tempfile.TemporaryDirectory() as site:
        run = subprocess.Popen(
            [program, "run", str(CONFIG), "--set", f"data.dir={data}", "--set", "run.steps=1000000",
             "--set", f"run.dir={site}", "--set", "eval.interval_steps=0", "--set", "checkpoint.interval_steps=0",
             "--set", "status.listen=127.0.0.1:0"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        port = next(found.group(1) for found in (re.search(r"board url=http://[\d.]+:(\d+)/", line) for line in run.stderr) if found)
        threading.Thread(target=run.stderr.read, daemon=True).start()
        time.sleep(seconds)
        metrics = next(pathlib.Path(site).glob("*/metrics.jsonl"))

        def steps():
            return [json.loads(line) for line in metrics.read_text().splitlines(True)
                    if line.endswith("\n") and '"grad_norm"' in line]

        def window(looked_at):
            browsers = subprocess.Popen([sys.executable, "-c", BROWSERS, port]) if looked_at else None
            time.sleep(1)  # they have their pages
            first, board = len(steps()) + 1, board_seconds(run.pid)
            own = processor_seconds(browsers.pid) if browsers else 0
            time.sleep(seconds)
            board, last = board_seconds(run.pid) - board, len(steps()) - 1
            if browsers:
                assert browsers.poll() is None
                own = processor_seconds(browsers.pid) - own
                browsers.kill()
                browsers.wait()
            return {"steps": (first, last), "board": board / seconds, "browsers": own / seconds}

        noted = [window(number % 2 == 1) for number in range(2 * windows + 1)]
        all_steps = steps()
        run.kill()
        run.wait()
    times = [statistics.median(1.0 / step["tokens_per_second"] for step in all_steps[slice(*each["steps"])]) for each in noted]
    ratios = [2 * times[i] / (times[i - 1] + times[i + 1]) for i in range(1, len(times), 2)]
    quartiles = statistics.quantiles(ratios, n=4)
    watched = noted[1::2]
    print(f"served: step time {statistics.median(ratios):.4f} of that without browsers (quartiles {quartiles[0]:.4f} and "
          f"{quartiles[2]:.4f}, {min(ratios):.4f} to {max(ratios):.4f}, {windows} windows); the board's thread took "
          f"{100 * statistics.median(each['board'] for each in watched):.2f} % of a core "
          f"({100 * statistics.median(each['board'] for each in noted[::2]):.2f} % unwatched), the browsers "
          f"{100 * statistics.median(each['browsers'] for each in watched):.2f} %", flush=True)


def main():
    program, data = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:3])
    pairs = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    chosen = sys.argv[4:5] or ["served", *LOADS]
    for name in chosen:
        if name == "served":
            served(program, data, windows=4 * pairs)
            continue
        loads = LOADS[name]
        ratios, beyond, grown, taken, same = [], [], [], [], True
        for _ in range(pairs):
            plain, watched = one_run(program, data, None), one_run(program, data, loads)
            ratios.append(watched["time"] / plain["time"])
            if name == "hostile":  # browsers wait for answers
                with NeutralPort() as port:
                    beyond.append(watched["time"] / one_run(program, data, loads, port)["time"])
            grown.append((watched["peak"] - plain["peak"]) / 1024)
            taken.append(100 * watched["board"])
            same = same and plain["losses"] == watched["losses"]
        beyond_text = (f"; beyond the load {statistics.median(beyond):.4f} ({min(beyond):.4f} to {max(beyond):.4f})"
                       if beyond else "")
        print(f"{name}: step time {statistics.median(ratios):.4f} of that without "
              f"({min(ratios):.4f} to {max(ratios):.4f}, {pairs} pairs){beyond_text}; the board's thread took {max(taken):.2f} % of a core at most; memory "
              f"{statistics.median(grown):+.1f} MiB; losses {'the same' if same else 'DIFFERENT'}", flush=True)


if __name__ == "__main__":
    main()
