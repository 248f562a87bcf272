"""llama.cpp's sources, as PyPI's llama-cpp-python has them, and parts of it that run here: its
converters, and its quantisers, compiled by gcc. Used by gguf_out.py and make_gguf_encoding_fixtures.py.

sources() fetches the pinned sdist (73 MB) into build/oracle-work the first time; $ACTORTRAIN_LLAMA_CPP
names a folder that has them already.
"""

import ctypes
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

import numpy

VERSION = "0.3.36"
ROOT = pathlib.Path(__file__).resolve().parents[3]
WORK = pathlib.Path(os.environ.get("ACTORTRAIN_ORACLE_WORK", ROOT / "build/oracle-work"))
INSIDE = f"llama_cpp_python-{VERSION}/vendor/llama.cpp"
QUANTISERS = {"Q4_K": "quantize_row_q4_K_ref", "Q5_K": "quantize_row_q5_K_ref",
              "Q6_K": "quantize_row_q6_K_ref", "Q8_0": "quantize_row_q8_0_ref"}


def fetch(folder):
    """Unpacks the sdist into the folder; whole or not at all."""
    archive = next(folder.glob("llama_cpp_python-*.tar.gz"), None)
    if archive is None:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
                        "--no-deps", "--no-binary", ":all:", f"llama-cpp-python=={VERSION}", "--dest", folder],
                       check=True, stdout=subprocess.DEVNULL)
        archive = next(folder.glob("llama_cpp_python-*.tar.gz"))
    with tempfile.TemporaryDirectory(dir=folder) as part, tarfile.open(archive) as packed:
        packed.extractall(part, filter="data")
        os.rename(pathlib.Path(part) / f"llama_cpp_python-{VERSION}", folder / f"llama_cpp_python-{VERSION}")


def sources():
    """The folder of llama.cpp; None: it cannot be had."""
    given = os.environ.get("ACTORTRAIN_LLAMA_CPP")
    folder = pathlib.Path(given) if given else WORK / INSIDE
    if not given and not folder.exists():
        WORK.mkdir(parents=True, exist_ok=True)
        try:
            fetch(WORK)
        except (subprocess.CalledProcessError, OSError) as error:
            print(f"llama-cpp-python {VERSION}: {error}", file=sys.stderr)
    return folder if (folder / "convert_hf_to_gguf.py").exists() else None


class Quantisers:
    """llama.cpp's quantisers of blocks, without an importance matrix."""

    def __init__(self, folder):
        self.build = tempfile.TemporaryDirectory()
        library = pathlib.Path(self.build.name) / "quantisers.so"
        ggml = folder / "ggml"
        # Of the rest of ggml these functions need nothing but its assertions: found when they fail.
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-w", "-D_GNU_SOURCE", "-Wl,-z,lazy",
                        f"-I{ggml}/include", f"-I{ggml}/src", ggml / "src/ggml-quants.c", "-o", library, "-lm"],
                       check=True)
        self.quantiser = ctypes.CDLL(str(library), mode=os.RTLD_LAZY)

    def bytes_of(self, values, name, size):
        """The blocks of a list of whole blocks, `size` bytes."""
        values = numpy.ascontiguousarray(values, dtype=numpy.float32).reshape(-1)
        made = numpy.zeros(size, dtype=numpy.uint8)
        getattr(self.quantiser, QUANTISERS[name])(values.ctypes.data_as(ctypes.c_void_p),
                                                   made.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(values.size))
        return made
