"""The King James Version as bytes."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from common import prepare, write_king_james  # noqa: E402

write_king_james("text.txt")
prepare("text.txt", "data", "bytes", "--document-separator", "\n\n\n")
