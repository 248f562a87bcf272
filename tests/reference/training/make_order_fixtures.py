"""Writes fixtures/numpy_random.json and fixtures/dstar_order.json: NumPy's own random numbers, and
where the rows of batches begin that a reader of token files draws with them. Needs numpy.
"""

import json
import pathlib

import numpy

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
KEPT = 40


def summary(values):
    """The first values, and a checksum of all."""
    checksum = 0
    for value in values:
        checksum = (checksum * 1000003 + int(value)) % 2**64
    return dict(first=[int(v) for v in values[:KEPT]], count=len(values), checksum=checksum)


def random_cases():
    cases = []
    for seed in (0, 1, 1337, 1338, 2337, 2**32 - 1, 2**32, 0x123456789ABCDEF, 2**63 - 1):
        case = dict(seed=seed, draws=[])
        case["raw"] = [int(v) for v in numpy.random.PCG64(seed).random_raw(4)]
        random = numpy.random.default_rng(seed)
        for size, below in ((1, 1), (2, 2), (8, 2048), (1000, 3), (1025, 2**32), (65537, 1000),
                            (3, 2**31 + 1), (70000 if seed == 1337 else 40, 5)):
            order = summary(random.permutation(size))
            case["draws"].append(dict(size=size, order=order, below=below,
                                      integers=[int(random.integers(below)) for _ in range(3)]))
        cases.append(case)
    return cases


class OneFile:
    """Batches of one file, epoch after epoch."""

    def __init__(self, tokens, length, rows, seed):
        self.length, self.rows, self.seed = length, rows, seed
        self.sequences = (tokens - length - 1) // length - 1
        self.batches = self.sequences // rows

    def batch(self, number):
        epoch, number = divmod(number, self.batches)
        random = numpy.random.default_rng(self.seed + epoch)
        order = random.permutation(self.sequences)
        offset = random.integers(self.length)
        return order[number * self.rows : (number + 1) * self.rows] * self.length + offset


def rows_of(tokens, length, rows, seed, batches):
    """[file, first token] of every row of the first batches."""
    if len(tokens) == 1:
        reader = OneFile(tokens[0], length, rows, seed)
        return [[0, int(start)] for b in range(batches) for start in reader.batch(b)]
    out = []
    file, read = 0, 0
    readers = [OneFile(n, length, rows, seed + 1000 * i) for i, n in enumerate(tokens)]
    for _ in range(batches):
        if read >= readers[file].batches:
            file, read = (file + 1) % len(tokens), 0
        out += [[file, int(start)] for start in readers[file].batch(read)]
        read += 1
    return out


def order_cases():
    cases = []
    for seed, tokens, length, rows in (
        (1337, [1000], 16, 4),  # 60 sequences: 15 whole batches
        (1337, [1000], 16, 7),  # 4 sequences of an epoch are left out
        (42, [517], 5, 3),
        (0, [530], 2, 1),
        (2**40 + 3, [4097], 64, 2),
        (1337, [97], 16, 4),  # one batch an epoch
        (1337, [400, 977, 650], 16, 4),
        (7, [300, 300], 8, 5),
        (1337, [20000], 3, 32),
    ):
        readers = [OneFile(n, length, rows, seed) for n in tokens]
        epoch = sum(reader.batches for reader in readers)
        batches = 3 * epoch + 2  # Three epochs, and into the fourth.
        starts = rows_of(tokens, length, rows, seed, batches)
        flat = [value for start in starts for value in start]
        cases.append(dict(seed=seed, tokens=tokens, length=length, rows=rows, epoch=epoch,
                          batches=batches, places=summary(flat)))
    return cases


def write(name, cases):
    (FIXTURES / name).write_text(json.dumps(cases, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    write("numpy_random.json", random_cases())
    write("dstar_order.json", order_cases())
