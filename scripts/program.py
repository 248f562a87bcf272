"""The program, as the demonstrations call it."""

import os
import subprocess
import sys


class Program:
    """path: the program; directory: where it runs. What it is told goes to the standard error."""

    def __init__(self, path, directory):
        self.path, self.directory = path, directory

    def __call__(self, *words):
        """Runs it to a good end; what it printed."""
        self._say(words)
        return subprocess.run([self.path, *words], cwd=self.directory, check=True, stdout=subprocess.PIPE,
                              text=True).stdout

    def run(self, file, settings=()):
        """Trains; the bytes of memory that the largest process took at most (GNU time's figure)."""
        words = ["run", file, *[word for setting in settings for word in ("--set", setting)]]
        self._say(words)
        process = subprocess.Popen([self.path, *words], cwd=self.directory, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"actortrain run ended with {process.returncode}")
        return 1024 * usage.ru_maxrss

    @staticmethod
    def _say(words):
        print("+ actortrain", *words, file=sys.stderr, flush=True)
