"""Makes a wheel of a bundle's files and the Python package, and prints its path.

usage: make_wheel.py TREE PYTHON_PACKAGE VERSION OUTPUT_DIRECTORY

The program brings its C library along, so the wheel is for every Linux on x86-64: of manylinux the
oldest that pip still knows, and musl. Times are SOURCE_DATE_EPOCH, so that the same files give the
same bytes.
"""

import base64
import ctypes
import hashlib
import json
import os
import struct
import sys
import time
import zlib
from pathlib import Path

TAGS = ["py3-none-manylinux2014_x86_64", "py3-none-musllinux_1_1_x86_64"]
BILL = "sbom.cdx.json"

METADATA = """\
Metadata-Version: 2.4
Name: actortrain
Version: {version}
Summary: Trains language models: bitwise reproducible, resumable after any stop.
Requires-Python: >=3.9
Requires-Dist: jinja2>=3.1
Provides-Extra: parquet
Requires-Dist: pyarrow; extra == "parquet"
Provides-Extra: frames
Requires-Dist: pandas; extra == "frames"
{more}Classifier: Development Status :: 4 - Beta
Classifier: Environment :: Console
Classifier: Environment :: GPU :: NVIDIA CUDA
Classifier: Intended Audience :: Science/Research
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C++
Classifier: Programming Language :: Python :: 3 :: Only
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

Trains and fine-tunes language models on CPUs and NVIDIA GPUs, with the same bits on any number of ranks.

    actortrain quickstart        # trains a small model, in the new directory quickstart, in minutes

From Python, a process for each run; this one goes on with that:

    import actortrain as at
    run = at.run("quickstart.toml", directory="quickstart")
    for metrics in run:
        print(metrics["step"], metrics.get("loss"))

Wants a processor with AVX2 and FMA, and nothing of the system; `rsync` and `gnuplot` are used where they are
installed, and named when they are missed.
"""


# Of the CUDA whose runtime the program has. The Python package adds their folders to LD_LIBRARY_PATH.
GPU = """\
Provides-Extra: gpu
Requires-Dist: {cublas}; extra == "gpu"
Requires-Dist: nvidia-nccl-cu{major}; extra == "gpu"
"""


class Deflate:
    """Deflate as good as libdeflate makes it: a wheel is 3 % smaller than by zlib, in the same time."""

    def __init__(self):
        try:
            self.libdeflate = ctypes.CDLL("libdeflate.so.0")
        except OSError:
            sys.exit("make_wheel.py: no libdeflate.so.0; install the Debian package libdeflate0")
        self.libdeflate.libdeflate_alloc_compressor.restype = ctypes.c_void_p
        self.libdeflate.libdeflate_deflate_compress.restype = ctypes.c_size_t
        self.compressor = ctypes.c_void_p(self.libdeflate.libdeflate_alloc_compressor(12))

    def __call__(self, content):
        """The compressed bytes, without any header; none if they would not be fewer."""
        out = ctypes.create_string_buffer(len(content) + 1)
        size = self.libdeflate.libdeflate_deflate_compress(self.compressor, content, ctypes.c_size_t(len(content)), out,
                                                           ctypes.c_size_t(len(content)))
        return out.raw[:size]


class Wheel:
    """Zip file of a wheel. Python's zipfile does not take bytes that are compressed already."""

    def __init__(self, path, name, version):
        moment = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800))  # zip begins in 1980
        self.time = (moment[3] << 11 | moment[4] << 5 | moment[5] // 2,
                     (moment[0] - 1980) << 9 | moment[1] << 5 | moment[2])
        self.info = f"{name}-{version}.dist-info"
        self.file = open(path, "wb")
        self.deflate = Deflate()
        self.records, self.directory = [], []

    def add(self, name, content, executable=False):
        packed = self.deflate(content)
        entry = (8 if packed else 0, *self.time, zlib.crc32(content), len(packed or content), len(content),
                 len(name.encode()), 0)
        mode = (0o100755 if executable else 0o100644) << 16
        self.directory.append(struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 3 << 8 | 20, 20, 0, *entry, 0, 0, 0, mode,
                                          self.file.tell()) + name.encode("ascii"))
        self.file.write(struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, 0, *entry) + name.encode("ascii"))
        self.file.write(packed or content)
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
        directory, count = b"".join(self.directory), len(self.directory)
        end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, count, count, len(directory), self.file.tell(), 0)
        self.file.write(directory + end)
        self.file.close()


def metadata_of(licences):
    """Lines of METADATA that depend on what the program contains."""
    parts = json.loads((licences / BILL).read_text())["components"]
    cuda = [int(part["version"].split(".")[0]) for part in parts if part["name"] == "cuda-runtime"]
    gpu = "".join(GPU.format(major=major, cublas=f"nvidia-cublas=={major}.*" if major > 12 else f"nvidia-cublas-cu{major}")
                  for major in cuda)
    files = sorted(path.name for path in licences.iterdir() if path.name != BILL)
    return gpu + "".join(f"License-File: {name}\n" for name in files)


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
    wheel.add_tree(tree / "licences", f"{wheel.info}/licenses", without=(BILL,))
    wheel.add(f"{wheel.info}/sboms/{BILL}", (tree / "licences" / BILL).read_bytes())
    wheel.add(f"{wheel.info}/METADATA", METADATA.format(version=version, more=metadata_of(tree / "licences")).encode())
    wheel.add(f"{wheel.info}/WHEEL", ("Wheel-Version: 1.0\nGenerator: actortrain make_wheel.py\n"
                                      "Root-Is-Purelib: false\n"
                                      + "".join(f"Tag: {tag}\n" for tag in TAGS)).encode())
    wheel.add(f"{wheel.info}/entry_points.txt", b"[console_scripts]\nactortrain = actortrain._program:main\n")
    wheel.close()
    print(path)


if __name__ == "__main__":
    main()
