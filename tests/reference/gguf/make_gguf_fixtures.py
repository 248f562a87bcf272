"""Writes fixtures/gguf_blocks.json: quantised blocks and their values, and a whole small file, as the
`gguf` package makes and reads them. Needs numpy and gguf.
"""

import json
import pathlib
import tempfile

import gguf
import numpy

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "MXFP4")
# Where a block has halves, which random bytes would make infinite.
HALVES = dict(Q8_0=(0,), Q4_0=(0,), Q4_1=(0, 2), Q5_0=(0,), Q5_1=(0, 2), Q4_K=(0, 2), Q5_K=(0, 2),
              Q6_K=(208,), MXFP4=())
SCALES = (0.0123, -1.5, 6.1e-5, 2.0**-24, 0.0)


def type_of(name):
    return gguf.GGMLQuantizationType[name]


def random_blocks(name, count, random):
    elements, size = gguf.GGML_QUANT_SIZES[type_of(name)]
    if elements == 1:
        values = (random.standard_normal(count) * 3).astype(numpy.float32)
        return gguf.quants.quantize(values, type_of(name)).view(numpy.uint8).reshape(-1)
    blocks = random.integers(0, 256, (count, size), dtype=numpy.uint8)
    for i, block in enumerate(blocks):
        if name == "MXFP4":
            block[0] = (0, 1, 2, 130, 255)[i]  # exponents, the first two of them subnormal
        for place in HALVES[name]:
            scale = numpy.float16(SCALES[(i + place) % len(SCALES)])
            block[place : place + 2] = numpy.array([scale]).view(numpy.uint8)
    return blocks.reshape(-1)


def values_of(data, name):
    values = gguf.quants.dequantize(data, type_of(name))
    return numpy.ascontiguousarray(values, dtype="<f4").tobytes().hex()


def block_cases(random):
    cases = []
    for name in TYPES:
        elements = gguf.GGML_QUANT_SIZES[type_of(name)][0]
        data = random_blocks(name, {1: 40, 32: 5, 256: 3}[elements], random)
        typed = data if elements > 1 else data.view(dict(F32="<f4", F16="<f2", BF16="<u2")[name])
        if name == "BF16":
            typed = data
        cases.append(dict(type=name, bytes=data.tobytes().hex(), values=values_of(typed, name)))
    return cases


def whole_file(random):
    tensors = []
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "small.gguf"
        writer = gguf.GGUFWriter(path, "small")
        writer.add_uint8("u8", 200)
        writer.add_int8("i8", -100)
        writer.add_uint16("u16", 60000)
        writer.add_int16("i16", -30000)
        writer.add_uint32("u32", 4000000000)
        writer.add_int32("i32", -2000000000)
        writer.add_uint64("u64", 2**63 + 5)
        writer.add_int64("i64", -(2**62))
        writer.add_float32("f32", 0.5)
        writer.add_float64("f64", 1e300)
        writer.add_bool("yes", True)
        writer.add_bool("no", False)
        writer.add_string("text", "two\nlines, \u00e9")
        writer.add_array("names", ["a", "", "ccc"])
        writer.add_array("integers", [3, -4, 5])
        writer.add_array("floats", [0.25, -2.0])
        writer.add_array("flags", [True, False, True])
        for name, kind, shape in (("token_embd.weight", "F32", (3, 4)),
                                  ("blk.0.norm", "F16", (5,)),
                                  ("blk.0.half", "BF16", (2, 3)),
                                  ("blk.0.attn.weight", "Q8_0", (2, 64)),
                                  ("blk.0.ffn.weight", "Q4_0", (2, 2, 32)),
                                  ("output.weight", "Q6_K", (1, 256))):
            elements = gguf.GGML_QUANT_SIZES[type_of(kind)][0]
            data = random_blocks(kind, int(numpy.prod(shape)) // elements, random)
            raw = data if kind not in ("F32", "F16") else data.view(
                dict(F32=numpy.float32, F16=numpy.float16)[kind])
            by_rows = raw.reshape(*shape[:-1], -1)
            writer.add_tensor(name, by_rows,
                              raw_dtype=None if kind in ("F32", "F16") else type_of(kind))
            tensors.append(dict(name=name, type=kind, shape=list(shape),
                                values=values_of(raw, kind)))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return dict(bytes=path.read_bytes().hex(), tensors=tensors)


if __name__ == "__main__":
    generator = numpy.random.default_rng(20)
    fixture = dict(blocks=block_cases(generator), file=whole_file(generator))
    (FIXTURES / "gguf_blocks.json").write_text(json.dumps(fixture, separators=(",", ":")) + "\n")
