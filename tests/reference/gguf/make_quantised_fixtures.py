"""Writes fixtures/quantised.json: safetensors files of FP8 and MXFP4 weights, and the values that torch
gives them, for MXFP4 by way of transformers. Needs torch, transformers and safetensors.
"""

import json
import pathlib

import torch
from safetensors.torch import save
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"


def blocked(scales, shape, block):
    """A scale for each element: those of blocks that the last rows and columns cut short, too."""
    rows, cols = shape[-2:]
    wide = scales.repeat_interleave(block[0], -2).repeat_interleave(block[1], -1)
    return wide[..., :rows, :cols]


def numbers(dtype, shape, random):
    """Random codes of eight bits, all of them finite."""
    codes = torch.randint(0, 256, shape, generator=random, dtype=torch.int32).to(torch.uint8)
    values = codes.view(dtype).float()
    return torch.where(values.isfinite(), codes, torch.zeros_like(codes)).view(dtype)


def fp8_case(name, dtype, shape, block, random, scale_dtype=torch.float32, config=None):
    weight = numbers(dtype, shape, random)
    if block is None:
        scales = torch.rand((), generator=random)
        wide = scales
    else:
        grid = [-(-shape[-2] // block[0]), -(-shape[-1] // block[1])]
        scales = torch.rand(*shape[:-2], *grid, generator=random) * 0.01 + 1e-4
        if scale_dtype == torch.uint8:  # An exponent.
            exponents = torch.randint(110, 140, scales.shape, generator=random).to(torch.uint8)
            scales, wide = exponents, (exponents.float() - 127).exp2()
        else:
            scales = scales.to(scale_dtype)
            wide = scales.float()
        wide = blocked(wide, shape, block)
    values = weight.float() * wide
    return dict(name=name, tensor="a.weight", config=config or {}, values=values.numpy().tobytes().hex(), shape=list(shape),
                file=save({"a.weight": weight, "a.weight_scale_inv": scales}).hex())


def mxfp4_case(name, shape, random):
    blocks = torch.randint(0, 256, (*shape, 16), generator=random, dtype=torch.int32).to(torch.uint8)
    scales = torch.randint(100, 140, shape, generator=random, dtype=torch.int32).to(torch.uint8)
    values = convert_moe_packed_tensors(blocks, scales).float().contiguous()
    if values.shape[-2] != shape[-1] * 32:  # As an expert's matrix lies in the model: inputs first.
        values = values.transpose(-1, -2).contiguous()
    return dict(name=name, tensor="e.gate_up_proj", config={}, values=values.numpy().tobytes().hex(), shape=list(values.shape),
                file=save({"e.gate_up_proj_blocks": blocks, "e.gate_up_proj_scales": scales}).hex())


def main():
    random = torch.Generator().manual_seed(20261128)
    e4m3, e5m2 = torch.float8_e4m3fn, torch.float8_e5m2
    said = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [6, 4]}}
    cases = [
        fp8_case("blocks of 128, rows cut short", e4m3, (130, 3), (128, 128), random),
        fp8_case("blocks of 128, columns cut short", e4m3, (3, 257), (128, 128), random),
        fp8_case("blocks of another size", e4m3, (16, 10), (6, 4), random, config=said),
        fp8_case("a stack of matrices", e4m3, (3, 8, 6), (4, 3), random),
        fp8_case("one scale", e4m3, (5, 7), None, random),
        fp8_case("scales of 16 bits", e4m3, (4, 6), (2, 2), random, torch.bfloat16),
        fp8_case("scales that are exponents", e4m3, (3, 64), (1, 32), random, torch.uint8),
        fp8_case("five bits of exponent", e5m2, (6, 9), (3, 3), random),
        mxfp4_case("experts of mxfp4", (3, 6, 2), random),
    ]
    (FIXTURES / "quantised.json").write_text(json.dumps(dict(cases=cases), separators=(",", ":")) + "\n")


main()
