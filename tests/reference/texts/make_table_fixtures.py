"""Writes fixtures/tables.json: CSV and TSV files and their rows as `datasets` reads them."""

import json
import pathlib

import table_cases

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
# What a writer of tables would hardly make, and people do.
BY_HAND = ["text,label\n\"a\"\"b\",one\n", "text,text\none,two\n", "text,\none,two\n", "text,label\nab\"c\"d,one\n\"ab\"cd,two\n",
           "text,label\n  \none,one\n\n\ntwo,two", "text\nhello\n\"\"\nworld\n", "text,label\n\"a\nb\",one\r\nc,two\r\n", "text,label\rone,one\rtwo,two\r",
           "text,label\none\ntwo,two\n", "text,label\none,\n,two\n"]


def main():
    cases = [(text, ",") for text in BY_HAND]
    cases += [(table_cases.table(seed, delimiter), delimiter) for seed in range(12) for delimiter in (",", "\t")]
    made = [dict(text=text, delimiter=delimiter, rows=table_cases.rows_of(text, delimiter)) for text, delimiter in cases]
    (FIXTURES / "tables.json").write_text(json.dumps(made, indent=0, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
