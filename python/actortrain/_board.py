"""The board of a run, in a notebook."""

from __future__ import annotations

import html
import subprocess

from ._errors import error_of
from ._lines import Lines
from ._program import PathLike, end, start

# Where a notebook is seen on this machine: by Jupyter, also through a tunnel, and by VS Code, whose
# frames lie in one another.
FRAME_ANCESTORS = ("http://localhost:* http://127.0.0.1:* https://localhost:* https://127.0.0.1:* "
                   "vscode-webview: vscode-file:")


class Board:
    """A board in a process of its own, until stop(), or until Python ends. A notebook shows it as a
    frame; url is where a browser on this machine finds it."""

    def __init__(self, directory: PathLike, width: str = "100%", height: int = 700) -> None:
        self._process = start(["board", str(directory), "--frame-ancestors", FRAME_ANCESTORS])
        self._width = width
        self._height = height
        assert self._process.stdout is not None and self._process.stderr is not None
        printed, said = Lines(self._process.stdout), Lines(self._process.stderr)
        try:
            self.url = next(printed.each(), "").strip()
        except BaseException:
            self.stop()
            raise
        if not self.url:
            raise error_of(self._process.wait(), said.whole())

    def stop(self) -> None:
        end(self._process)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> "Board":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _repr_html_(self) -> str:
        return (f'<iframe src="{html.escape(self.url)}" width="{html.escape(self._width)}" '
                f'height="{self._height}" frameborder="0"></iframe>')

    def __repr__(self) -> str:
        return f"Board({self.url})"
