"""The King James Version in the tokens of SmolLM2."""

import hashlib
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from common import prepare, write_king_james  # noqa: E402

# SHA-256 of the weights that scripts/smollm2.sh makes, from which the recorded digests begin.
WEIGHTS = "cf7a5d8ffdeb0fda385cc09e143d83e5c60a555475b500cd9d59e9ffa32c5ff8"


def check_weights(name):
    """Refuses other weights, whose digests would differ: the bytes behind the header are compared."""
    path, found = pathlib.Path(name), hashlib.sha256()
    if path.is_file():
        with path.open("rb") as file:
            header = int.from_bytes(file.read(8), "little")
            if header < path.stat().st_size:  # another file begins with any number
                file.seek(header, 1)
                for piece in iter(lambda: file.read(1 << 20), b""):
                    found.update(piece)
    if found.hexdigest() != WEIGHTS:
        print(f"{name}: not the weights that smollm2.sh makes, which alone have the recorded digests; make "
              "them by it, or copy this recipe, leave out this check and record your own", file=sys.stderr)
        sys.exit(2)


check_weights("SmolLM2/model.safetensors")
write_king_james("text.txt")
prepare("text.txt", "data", "SmolLM2", "--document-separator", "\n\n\n")
