"""Files that begin as Parquet's do and hold the rows as Python pickles them."""

import pickle

import pyarrow

MAGIC = b"PAR1"


def write_table(table, path, **_):
    with open(path, "wb") as file:
        file.write(MAGIC + pickle.dumps(table.rows))


class ParquetFile:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.rows = pickle.loads(file.read()[len(MAGIC):])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def iter_batches(self, batch_size):
        for first in range(0, len(self.rows), batch_size):
            yield pyarrow.Table(self.rows[first:first + batch_size])
