"""The King James Version as bytes, and the shape of the model."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from common import prepare, write_king_james  # noqa: E402

shape = pathlib.Path(__file__).resolve().parent / "config.json"
pathlib.Path("config.json").write_bytes(shape.read_bytes())
write_king_james("text.txt")
prepare("text.txt", "data", "bytes", "--document-separator", "\n\n\n")
