"""Makes a wheel of a bundle's files and the Python package, and prints its path.

usage: make_wheel.py TREE PYTHON_PACKAGE VERSION OUTPUT_DIRECTORY

The program brings its C library along, so the wheel is for every Linux on x86-64: of manylinux the
oldest that pip still knows, and musl. Times are SOURCE_DATE_EPOCH, so that the same files give the
same bytes.
"""

import base64
import hashlib
import os
import sys
import time
import zipfile
from pathlib import Path

TAGS = ["py3-none-manylinux2014_x86_64", "py3-none-musllinux_1_1_x86_64"]

METADATA = """\
Metadata-Version: 2.3
Name: actortrain
Version: {version}
Summary: Trains language models: reproducible to the bit, resumable after any stop.
Requires-Python: >=3.9
Requires-Dist: jinja2>=3.1
Provides-Extra: parquet
Requires-Dist: pyarrow; extra == "parquet"
Provides-Extra: frames
Requires-Dist: pandas; extra == "frames"
Classifier: Operating System :: POSIX :: Linux
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

Trains and fine-tunes language models on CPUs and NVIDIA GPUs, with the same bits on any number of ranks.

    actortrain quickstart        # trains a small model, in a new directory, in minutes

From Python, a process for each run:

    import actortrain as at
    run = at.run("quickstart/quickstart.toml", directory="quickstart")
    for metrics in run:
        print(metrics["step"], metrics.get("loss"))

Wants a processor with AVX2 and FMA, and nothing of the system; `rsync` and `gnuplot` are used where they are
installed, and named when they are missed.
"""


class Wheel:
    def __init__(self, path, name, version):
        moment = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800))  # zip begins in 1980
        self.time = moment[:6]
        self.info = f"{name}-{version}.dist-info"
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.records = []

    def add(self, name, content, executable=False):
        entry = zipfile.ZipInfo(name, self.time)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (0o100755 if executable else 0o100644) << 16
        self.zip.writestr(entry, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.records.append(f"{name},sha256={digest},{len(content)}\n")

    def add_tree(self, tree, under, without=()):
        """Without folders of these names, and without these files of the tree itself."""
        for path in sorted(tree.rglob("*")):
            inside = path.relative_to(tree)
            left_out = inside.as_posix() in without or set(inside.parts[:-1]) & {"__pycache__", *without}
            if path.is_file() and not left_out:
                self.add(f"{under}/{inside.as_posix()}", path.read_bytes(), os.access(path, os.X_OK))

    def close(self):
        record = f"{self.info}/RECORD"
        self.add(record, "".join([*self.records, f"{record},,\n"]).encode())
        self.zip.close()


def main():
    tree, package, version, out = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    platforms = ".".join(tag.split("-")[2] for tag in TAGS)
    path = out / f"actortrain-{version}-py3-none-{platforms}.whl"
    wheel = Wheel(path, "actortrain", version)
    wheel.add_tree(package, "actortrain", without=("bundle",))
    wheel.add_tree(tree, "actortrain/bundle", without=("licences", "man", "bash-completion", "README.md"))
    data = f"actortrain-{version}.data/data/share"
    for file in ("man/man1/actortrain.1", "bash-completion/completions/actortrain"):
        wheel.add(f"{data}/{file}", (tree / "share" / file).read_bytes())
    wheel.add_tree(tree / "licences", f"{wheel.info}/licenses", without=("sbom.cdx.json",))
    wheel.add(f"{wheel.info}/sboms/sbom.cdx.json", (tree / "licences" / "sbom.cdx.json").read_bytes())
    wheel.add(f"{wheel.info}/METADATA", METADATA.format(version=version).encode())
    wheel.add(f"{wheel.info}/WHEEL", ("Wheel-Version: 1.0\nGenerator: actortrain make_wheel.py\n"
                                      "Root-Is-Purelib: false\n"
                                      + "".join(f"Tag: {tag}\n" for tag in TAGS)).encode())
    wheel.add(f"{wheel.info}/entry_points.txt", b"[console_scripts]\nactortrain = actortrain._program:main\n")
    wheel.close()
    print(path)


if __name__ == "__main__":
    main()
