#!/usr/bin/python3
"""A real Prometheus scrapes a run: python3 board_scrape.py PROGRAM

The run is a directory as a run leaves it, shown by `actortrain board`. Ends with 77 where there is
no Prometheus.
"""
import http.server
import json
import pathlib
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

PATIENCE_S = 120  # a hang ends; nothing here measures time


def held_port():
    """A socket that listens to nothing: while it is open, its port is nobody else's, and a program that sets
    SO_REUSEADDR, as those in Go do, may listen there."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


class Relay:
    """Stands between Prometheus and the board, and hears of each scrape."""

    def __init__(self, board):
        self.begun = queue.Queue()
        relay = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                relay.begun.put(self.path)
                request = urllib.request.Request(board + self.path, headers={"Accept": self.headers["Accept"]})
                with urllib.request.urlopen(request) as answer:
                    body = answer.read()
                    self.send_response(answer.status)
                    self.send_header("Content-Type", answer.headers["Content-Type"])
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def address(self):
        return "%s:%d" % self.server.server_address

    def until(self, condition, what):
        """The value that there is, at the latest, when one of the next scrapes begins."""
        while True:
            try:
                value = condition()
            except OSError:
                value = None  # what answers questions is not up yet
            if value is not None:
                return value
            try:
                self.begun.get(timeout=PATIENCE_S)
            except queue.Empty:
                raise AssertionError(f"no further scrape, and never came: {what}") from None


def make_run(directory):
    directory.mkdir(parents=True)
    (directory / "config.toml").write_text("")
    (directory / "metrics.jsonl").write_text(
        '{"step":7,"loss":2.25,"grad_norm":0.5,"lr":0.001,"tokens_per_second":1000}\n'
        '{"event":"evaluation","step":7,"val_loss":2.5}\n')
    (directory / "status.json").write_text(json.dumps({
        "format": "actortrain status", "version": 1, "run": directory.name, "host": "elsewhere",
        "pid": 1, "process_start": 1, "written_unix_s": int(time.time()), "phase": "over",
        "generation": 2, "step": 7, "steps": 10, "tokens_per_second": 1000.0, "saved": {"step": 5},
        "outcome": {"exit_code": 0, "step": 7, "text": "finished"}, "ranks_count": 3}))


def value_of(prometheus, metric):
    query = urllib.parse.urlencode({"query": metric})
    with urllib.request.urlopen(f"{prometheus}/api/v1/query?{query}") as answer:
        result = json.load(answer)["data"]["result"]
    return float(result[0]["value"][1]) if result else None


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    if not shutil.which("prometheus"):
        print("skipped: no prometheus here")
        return 77
    with tempfile.TemporaryDirectory() as directory:
        site = pathlib.Path(directory)
        make_run(site / "runs" / "odd \"name\"")
        board = subprocess.Popen([program, "board", "runs"], cwd=site, stdout=subprocess.PIPE, text=True)
        relay = Relay("http://" + urllib.parse.urlparse(board.stdout.readline().strip()).netloc)
        (site / "prometheus.yml").write_text(
            "scrape_configs:\n- job_name: actortrain\n  scrape_interval: 1s\n"
            f"  static_configs:\n  - targets: ['{relay.address()}']\n")
        held = held_port()
        address = f"127.0.0.1:{held.getsockname()[1]}"
        with open(site / "log", "w") as log:
            prometheus = subprocess.Popen(
                ["prometheus", f"--config.file={site}/prometheus.yml", f"--storage.tsdb.path={site}/data",
                 f"--web.listen-address={address}"], stdout=log, stderr=log)
        try:
            url = f"http://{address}"
            expected = {"loss": 2.25, "validation_loss": 2.5, "step": 7, "steps": 10, "generation": 2,
                        "ranks": 3, "checkpoint_step": 5, "running": 0, "gradient_norm": 0.5}
            for metric, wanted in expected.items():
                selector = f'actortrain_{metric}{{run="odd \\"name\\""}}'
                found = relay.until(lambda: value_of(url, selector), metric)
                assert found == wanted, (metric, found, wanted)
            assert value_of(url, 'up{job="actortrain"}') == 1
        except BaseException:
            print((site / "log").read_text()[-3000:])
            raise
        finally:
            prometheus.kill()
            prometheus.wait()
            held.close()
            board.send_signal(signal.SIGINT)
            assert board.wait(PATIENCE_S) == 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
