#!/usr/bin/env python3
"""Writes data/tokenizer/text/unicode_tables.cpp: what the tokenizer knows about every code point.

Classes are those of Unicode 16.0 (PyPI: unicodedata2==16.0.0). Composition is that of Unicode 9.0:
perl says which characters existed by then. Characters that the regular expression library lacks
(it has Unicode 14.0, as Python 3.11 and later have at least) are marked too.
"""

import pathlib
import subprocess
import sys

import unicodedata2

OUTPUT = pathlib.Path(__file__).parent.parent / "data/tokenizer/text/unicode_tables.cpp"
COUNT = 0x110000
WIDTH = 96
FIRST_LETTER = ord(":")

CLASSES = dict(Lu=1, Ll=2, Lt=3, Lm=4, Lo=5, Mn=6, Mc=6, Me=6, Nd=7, Nl=7, No=8, Pc=9, Pd=10,
               Ps=10, Pe=10, Pi=10, Pf=10, Po=10, Sm=11, Sc=11, Sk=11, So=11)
PUNCTUATION, ALPHABETIC_SYMBOL, WHITE_SPACE, JOINER, LATE_PUNCTUATION = 10, 12, 13, 14, 15
NFC_UNSAFE, NFKC_UNSAFE, AFTER_9, AFTER_14 = 0x10, 0x20, 0x40, 0x80

SPACES = [*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029,
          0x202F, 0x205F, 0x3000]
# Symbols with the property Other_Alphabetic: letters in circles and squares.
ALPHABETIC_SYMBOLS = [*range(0x24B6, 0x24EA), *range(0x1F130, 0x1F14A), *range(0x1F150, 0x1F16A),
                      *range(0x1F170, 0x1F18A)]


def present_in(version):
    """The code points that a version of Unicode assigns, as perl has them."""
    program = (f'for (0..0x10ffff) {{ print "$_\\n" if chr($_) =~ /\\p{{Present_In: {version}}}/ }}')
    text = subprocess.run(["perl", "-e", program], check=True, capture_output=True, text=True)
    return set(map(int, text.stdout.split()))


def second_of_pairs():
    """Characters that may join the one before them."""
    seconds = {*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)}
    for point in range(COUNT):
        parts = unicodedata2.decomposition(chr(point)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            seconds.add(int(parts[1], 16))
    return seconds


def class_of(point):
    if point in SPACES:
        return WHITE_SPACE
    if point in ALPHABETIC_SYMBOLS:
        return ALPHABETIC_SYMBOL
    if point in (0x200C, 0x200D):
        return JOINER
    return CLASSES.get(unicodedata2.category(chr(point)), 0)


def values():
    by_8, by_9, by_14 = present_in("8.0"), present_in("9.0"), present_in("14.0")
    seconds = second_of_pairs()
    for point in range(COUNT):
        letter = chr(point)
        value = class_of(point)
        if value == PUNCTUATION and point not in by_8:
            value = LATE_PUNCTUATION
        if 0xD800 <= point < 0xE000:
            yield value
            continue
        joins = unicodedata2.combining(letter) != 0 or point in seconds
        nfc = joins or unicodedata2.normalize("NFC", letter) != letter
        nfkc = joins or unicodedata2.normalize("NFKC", letter) != letter
        if point in by_9:
            value |= (NFC_UNSAFE if nfc else 0) | (NFKC_UNSAFE if nfkc else 0)
        elif nfc or nfkc or unicodedata2.normalize("NFD", letter) != letter:
            value |= AFTER_9
        if unicodedata2.category(letter) not in ("Cn", "Co") and point not in by_14:
            value |= AFTER_14
        yield value


def runs_of(sequence):
    runs = []
    for value in sequence:
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    return runs


def main():
    if unicodedata2.unidata_version != "16.0.0":
        sys.exit("needs unicodedata2==16.0.0")
    runs = runs_of(values())
    distinct = sorted({value for value, _ in runs})
    if ord("\\") - FIRST_LETTER < len(distinct):
        distinct.insert(ord("\\") - FIRST_LETTER, 0)  # a letter that strings would have to escape
    assert FIRST_LETTER + len(distinct) <= 0x7F
    name = {value: chr(FIRST_LETTER + i) for i, value in reversed([*enumerate(distinct)])}
    text = "".join(name[value] + (str(count) if count > 1 else "") for value, count in runs)
    lines = [text[at:at + WIDTH - 6] for at in range(0, len(text), WIDTH - 6)]
    table = ",\n    ".join(", ".join(f"0x{value:02x}" for value in distinct[at:at + 16])
                          for at in range(0, len(distinct), 16))
    rows = "\n".join('    "' + line + '"' for line in lines)
    OUTPUT.write_text(f'''// Written by scripts/make_unicode_table.py.
#include "data/tokenizer/text/unicode_tables.hpp"

#include <algorithm>
#include <memory>
#include <string_view>

namespace train::storage {{
namespace {{

// clang-format off
/// Values of the letters below, from the colon on; all of them follow the digits.
constexpr std::uint8_t run_values[] = {{
    {table}}};

/// Runs of code points with the same value: a letter, and how many of them unless one.
constexpr std::string_view runs =
{rows};
// clang-format on

/// Over a megabyte, of which text touches a few pages: nothing is faster to ask.
std::unique_ptr<std::uint8_t[]> expand_runs() {{
  auto table = std::make_unique<std::uint8_t[]>(code_point_count);
  std::size_t point = 0;
  for (std::size_t i = 0; i < runs.size();) {{
    const std::uint8_t value = run_values[runs[i++] - ':'];
    std::size_t count = 0;
    for (; i < runs.size() && runs[i] <= '9'; ++i) {{
      count = count * 10 + static_cast<std::size_t>(runs[i] - '0');
    }}
    count = std::max<std::size_t>(count, 1);
    std::fill_n(table.get() + point, count, value);
    point += count;
  }}
  return table;
}}

}}  // namespace

const std::uint8_t* unicode_table() {{
  static const std::unique_ptr<std::uint8_t[]> table = expand_runs();
  return table.get();
}}

}}  // namespace train::storage
''')


if __name__ == "__main__":
    main()
