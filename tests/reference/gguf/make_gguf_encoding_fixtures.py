"""Writes fixtures/gguf_encoding.json: values, the blocks of Q8_0 that Python's `gguf` package makes of
them, and how far from them llama.cpp's own quantisers are: the root of the mean squared difference.
Needs numpy, gguf, gcc and llama.cpp's sources (llama_sources.py).
"""

import json
import pathlib
import sys

import gguf
import numpy

import llama_sources

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
COUNT = 1024  # values of a case: four blocks of 256


def cases(random):
    normal = random.standard_normal(COUNT) * 0.02
    yield "normal", normal
    yield "student", random.standard_t(4, COUNT) * 0.02
    yield "uniform", random.uniform(-1, 1, COUNT)
    yield "positive", numpy.abs(random.standard_normal(COUNT))
    outliers = random.standard_normal(COUNT) * 0.02
    outliers[::97] *= 20
    yield "outliers", outliers
    zeros = random.standard_normal(COUNT) * 0.02
    zeros[:300] = 0
    zeros[500:640] = 0.5
    yield "zeros", zeros
    yield "rows", random.standard_normal((32, COUNT // 32)) * random.uniform(0.001, 0.1, (32, 1))


def error_of(blocks, values, name):
    read = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name]).reshape(-1)
    return float(numpy.sqrt(((read.astype(numpy.float64) - values) ** 2).mean()))


def case_of(name, values, quantisers):
    values = values.astype(numpy.float32).reshape(-1)
    q8_0 = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
    errors = {}
    for kind in ("Q4_K", "Q5_K", "Q6_K"):
        elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
        blocks = quantisers.bytes_of(values, kind, values.size // elements * size)
        errors[kind] = error_of(blocks, values, kind)
    return dict(name=name, values=values.astype("<f4").tobytes().hex(), q8_0=q8_0.tobytes().hex(), errors=errors)


def special_q8_0():
    """Blocks of Q8_0 whose scales, or rounding, are special: zeros, subnormal halves, ties."""
    ramp = numpy.linspace(-1, 1, 32)
    ties = (numpy.arange(32) - 15.5) / 127
    ties[0] = 1.0
    blocks = [numpy.zeros(32), -numpy.zeros(32), ramp * 1e-5, ramp * 1e-8, ramp * 127 * 65504, ties,
              numpy.where(numpy.arange(32) == 7, -3.25, 0.0)]
    values = numpy.concatenate(blocks).astype(numpy.float32)
    q8_0 = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
    return dict(values=values.astype("<f4").tobytes().hex(), q8_0=q8_0.tobytes().hex())


def main():
    folder = llama_sources.sources()
    if folder is None:
        sys.exit("llama.cpp's sources are missing")
    quantisers = llama_sources.Quantisers(folder)
    random = numpy.random.default_rng(52)
    fixture = dict(cases=[case_of(name, values, quantisers) for name, values in cases(random)],
                   special=special_q8_0())
    (FIXTURES / "gguf_encoding.json").write_text(json.dumps(fixture, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
