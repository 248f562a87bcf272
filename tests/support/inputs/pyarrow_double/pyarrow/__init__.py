"""Stands for PyPI's pyarrow where that is not installed, as far as inputs need it: columns of structs,
in which every struct has the members of all, as null where it has none."""


def filled(values):
    """The values of a column."""
    if any(isinstance(value, dict) for value in values):
        names = dict.fromkeys(name for value in values if value is not None for name in value)
        columns = {name: filled([(value or {}).get(name) for value in values]) for name in names}
        return [None if value is None else {name: columns[name][i] for name in names}
                for i, value in enumerate(values)]
    if any(isinstance(value, list) for value in values):
        elements = iter(filled([element for value in values for element in value or []]))
        return [None if value is None else [next(elements) for _ in value] for value in values]
    return values


class Table:
    schema = None

    def __init__(self, rows):
        self.rows = rows

    @staticmethod
    def from_pylist(rows):
        return Table(filled(rows))

    def to_pylist(self):
        return self.rows


class Bytes:
    def __init__(self, data):
        self.data = data

    def to_pybytes(self):
        return self.data


class memory_map:
    """A file that is read from where the last read ended."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.at = 0

    def read_buffer(self, count):
        self.at += count
        return Bytes(self.data[self.at - count:self.at])

    def seek(self, at):
        self.at = at
