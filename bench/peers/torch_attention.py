"""Causal attention of PyTorch alone, in one of the ways that it has.

Usage: torch_attention.py DEVICE WAY SEQUENCES,LENGTH,HEADS,HEAD_DIM...
Waits for a line before each shape, and then prints one of JSON: medians in seconds, and whether the gradients
have the same bits each time; or why there are none.
"""

import json
import statistics
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

WAYS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
BATCHES = 5
BATCH_SECONDS = 0.02
SAME_BITS_RUNS = 5


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def batch_seconds(device, work, runs):
    synchronize(device)
    begin = time.perf_counter()
    for _ in range(runs):
        work()
    synchronize(device)
    return (time.perf_counter() - begin) / runs


def median_seconds(device, work):
    batch_seconds(device, work, 2)
    runs = int(min(max(BATCH_SECONDS / batch_seconds(device, work, 1), 2), 400))
    return statistics.median(batch_seconds(device, work, runs) for _ in range(BATCHES))


def measure(device, shape, way):
    sequences, length, heads, head_dim = shape
    # As a fused projection leaves them: one after the other in each token's row.
    fused = torch.randn(sequences, length, 3, heads, head_dim, device=device, dtype=torch.bfloat16)
    query, key, value = (
        part.transpose(1, 2).detach().requires_grad_() for part in fused.unbind(dim=2)
    )
    with sdpa_kernel(WAYS[way]):

        def forward():
            return torch.nn.functional.scaled_dot_product_attention(
                query, key, value, is_causal=True
            )

        out = forward()
        gradient = torch.randn_like(out)

        # Queries, keys and values are leaves: nothing of a projection is in it, and nothing
        # is added to a gradient that is there.
        def backward():
            return torch.autograd.grad(out, (query, key, value), gradient, retain_graph=True)

        first = backward()
        return {
            "forward": median_seconds(device, forward),
            "backward": median_seconds(device, backward),
            "same_bits": all(
                torch.equal(one, other)
                for _ in range(SAME_BITS_RUNS)
                for one, other in zip(first, backward(), strict=True)
            ),
        }


def main():
    device, way = sys.argv[1:3]
    for text in sys.argv[3:]:
        shape = [int(number) for number in text.split(",")]
        if not sys.stdin.readline():
            return
        answer = {"shape": shape, "way": way}
        try:
            answer.update(measure(device, shape, way))
        except RuntimeError as error:
            answer["error"] = str(error).strip().splitlines()[0]
        print(json.dumps(answer), flush=True)


main()
