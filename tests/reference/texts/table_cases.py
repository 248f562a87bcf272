"""Tables as text, and their rows as `datasets` reads them, for make_table_fixtures.py and table_sweep.py."""

import pathlib
import random
import tempfile

import datasets

datasets.disable_progress_bars()

# Cells that quoting is about, and those that pandas takes for missing.
CELLS = ["a", "two words", "", "NA", "null", "None", "nan", "N/A", "say \"hi\"", "a, b", "tab\there", "line\nbreak",
         "carriage\rreturn", "windows\r\nline", "ünï 船 \U0001f600", " spaces ", "\"", "''", "back\\slash", "#N/A", "x" * 300]


def quoted(cell, delimiter, always):
    must = any(letter in cell for letter in (delimiter, "\"", "\n", "\r"))
    return "\"" + cell.replace("\"", "\"\"") + "\"" if must or always else cell


def table(seed, delimiter):
    """A header of two to four columns, of which one is "text", and rows; ends of lines by chance."""
    draw = random.Random(seed)
    names = ["text", "label", "source", "note"][:draw.randint(2, 4)]
    draw.shuffle(names)
    end = draw.choice(["\n", "\r\n", "\n"])
    rows = [names] + [[draw.choice(CELLS) + (f" {i}" if draw.random() < 0.3 else "") for _ in names] for i in range(draw.randint(3, 40))]
    # A row that is one column of missing texts has no type in which a text could be.
    rows.append([f"last {name}" for name in names])
    lines = []
    for row in rows:
        lines.append(delimiter.join(quoted(cell, delimiter, draw.random() < 0.2) for cell in row))
        if draw.random() < 0.1:
            lines.append("")
        elif draw.random() < 0.1 and row is not names:
            lines.append(delimiter.join(quoted(cell, delimiter, False) for cell in row[:-1]) or "short")
    text = end.join(lines) + (end if draw.random() < 0.7 else "")
    return ("\ufeff" if draw.random() < 0.2 else "") + text


def rows_of(text, delimiter):
    """A list of objects; what is neither a text nor missing as pandas' own text of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / ("t.csv" if delimiter == "," else "t.tsv")
        path.write_bytes(text.encode())
        rows = datasets.load_dataset("csv", data_files=str(path), sep=delimiter, split="train", cache_dir=folder + "/cache")
        return [{key: value if value is None or isinstance(value, str) else str(value) for key, value in row.items()} for row in rows]
