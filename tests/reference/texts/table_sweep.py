"""Compares the documents that `data prepare` makes of tables with the texts that `datasets` reads.

    python3 tests/reference/texts/table_sweep.py PROGRAM [TABLES]
"""

import gzip
import pathlib
import subprocess
import sys
import tempfile

import table_cases


def documents(folder):
    """Of token files of bytes: sorted, as validation is drawn by chance; where it is the tail of all,
    a document may lie in both files."""
    words = [word for name in ("train.bin", "val.bin") for word in memoryview((folder / name).read_bytes()).cast("H")]
    found = []
    current = bytearray()
    for word in words:
        if word == 256:
            found.append(current.decode())
            current = bytearray()
        else:
            current.append(word)
    return sorted(found)


def main():
    program, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200
    different = 0
    rows = 0
    for seed in range(1000, 1000 + count):
        delimiter = ",\t"[seed % 2]
        text = table_cases.table(seed, delimiter)
        wanted = sorted(row["text"] for row in table_cases.rows_of(text, delimiter) if row["text"])
        rows += len(wanted)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / ("t.csv.gz" if delimiter == "," else "t.TSV")
            path.write_bytes(gzip.compress(text.encode()) if delimiter == "," else text.encode())
            done = subprocess.run([program, "data", "prepare", "--input", path, "--out", folder + "/out", "--max-dropped", "1",
                                   "--val-fraction", "0.5"], capture_output=True, text=True)
            found = documents(pathlib.Path(folder) / "out") if done.returncode == 0 else [done.stderr]
        if found != wanted:
            different += 1
            print(f"table {seed}: {[each for each in found if each not in wanted][:3]} and not {[each for each in wanted if each not in found][:3]}")
    print(f"{count} tables, {rows} texts, {different} tables differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
