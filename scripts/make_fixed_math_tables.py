#!/usr/bin/env python3
"""Writes base/math/fixed_math_tables.hpp: what base/math/fixed_math.cpp looks up (Debian: python3-mpmath).

Every number is computed here with 1400 bits and rounded once, so that the header is the same
whoever writes it.
"""

import pathlib

from mpmath import cos, exp, floor, log, mp, mpf, pi, sin

OUTPUT = pathlib.Path(__file__).parent.parent / "base/math/fixed_math_tables.hpp"
mp.prec = 1400

EXP_STEPS = 128   # of an octave
LOG_CELLS = 128   # of an octave, which begins at LOG_FIRST
LOG_FIRST = mpf(0.6875)
TURN_STEPS = 128  # of a full circle
EXACT_BIT = 42    # multiples of 2^-42 below 2^10 and their sums are exact
PART_BITS = 30    # of each exact part of pi / 64: times a count below 2^23 it stays exact
HALF_BITS = 26    # a product of two such numbers is exact


def literal(x):
    """The nearest double, exact in C++."""
    text = float(x).hex()
    return text.replace(".0000000000000p", ".0p")


def multiple_below(x, bit):
    return floor(x * mpf(2) ** bit) / mpf(2) ** bit


def nearest_multiple(x, bit):
    return floor(x * mpf(2) ** bit + mpf(0.5)) / mpf(2) ** bit


def upper(x, bits):
    """x cut after so many bits."""
    if x == 0:
        return mpf(0)
    sign = 1 if x > 0 else -1
    magnitude = abs(x)
    exponent = int(floor(log(magnitude, 2)))
    return sign * multiple_below(magnitude, bits - 1 - exponent)


def tidied(x):
    """Without what is left of an exact zero."""
    return mpf(0) if abs(x) < mpf(2) ** -1000 else x


def exp_rows():
    for i in range(EXP_STEPS):
        power = mpf(2) ** (mpf(i) / EXP_STEPS)
        value = mpf(float(power))
        yield [value, (power - value) / value]


def log_rows():
    for i in range(LOG_CELLS):
        # Above 1 a cell is twice as wide: the highest bits of the fraction count the cells.
        first = LOG_FIRST + mpf(i) / 256
        width = mpf(1) / 256
        if first >= 1:
            first = 1 + (first - 1) * 2
            width *= 2
        inverse = nearest_multiple(1 / (first + width / 2), 9)
        if first == 1 or first + width == 1:
            inverse = mpf(1)  # near 1 the logarithm is that of the rest alone
        value = -log(inverse)
        head = nearest_multiple(value, EXACT_BIT)
        yield [inverse, head, value - head]


def turn_rows():
    for i in range(TURN_STEPS // 4 + 1):
        value = tidied(sin(2 * pi * i / TURN_STEPS))
        nearest = mpf(float(value))
        head = upper(value, HALF_BITS)
        yield [nearest, value - nearest, head, value - head]


def table(kind, name, rows, comment):
    lines = [f"/// {comment}", f"inline constexpr {kind} {name}[] = {{"]
    lines += ["    {" + ", ".join(literal(x) for x in row) + "}," for row in rows]
    return lines + ["};", ""]


def constant(name, value, comment):
    return [f"inline constexpr double {name} = {literal(value)};  ///< {comment}"]


def words_of_two_over_pi(count):
    bits = int(floor(2 / pi * mpf(2) ** (64 * count)))
    return [(bits >> (64 * (count - 1 - i))) & (2 ** 64 - 1) for i in range(count)]


def constants():
    step = log(2) / EXP_STEPS
    lines = constant("kStepsOfOne", 1 / step, "128 / ln 2.")
    lines += constant("kStepUpper", upper(step, 35), "ln 2 / 128, its upper 35 bits,")
    lines += constant("kStepLower", step - upper(step, 35), "and the rest.")
    octave = nearest_multiple(log(2), EXACT_BIT)
    lines += constant("kOctaveUpper", octave, "ln 2 to a multiple of 2^-42,")
    lines += constant("kOctaveLower", log(2) - octave, "and the rest.")
    decade = 1 / log(10)
    lines += constant("kDecadeUpper", upper(decade, HALF_BITS), "1 / ln 10, its upper 26 bits,")
    lines += constant("kDecadeLower", decade - upper(decade, HALF_BITS), "and the rest.")
    turn = pi / 64
    first = upper(turn, PART_BITS)
    second = upper(turn - first, PART_BITS)
    lines += constant("kTurnsOfOne", 64 / pi, "64 / pi.")
    lines += constant("kTurnFirst", first, "pi / 64, its upper 30 bits,")
    lines += constant("kTurnSecond", second, "30 more,")
    lines += constant("kTurnThird", turn - first - second, "and the rest.")
    lines += constant("kTurn", turn, "pi / 64,")
    lines += constant("kTurnUpper", upper(turn, HALF_BITS), "its upper 26 bits,")
    lines += constant("kTurnLower", turn - upper(turn, HALF_BITS), "and the rest.")
    return lines + [""]


def main():
    lines = ["// Written by scripts/make_fixed_math_tables.py, which says how; private to fixed_math.cpp.",
             "// clang-format off", "#pragma once", "", "#include <cstdint>", "",
             "namespace train::fixed::tables {", ""]
    lines += constants()
    lines += ["struct ExpStep {", "  double value;", "  double tail;  ///< A share of the value.", "};"]
    lines += table("ExpStep", "kExp", exp_rows(), "2^(i / 128) = value (1 + tail).")
    lines += ["struct LogCell {", "  double inverse;  ///< A multiple of 2^-9.",
              "  double head;     ///< A multiple of 2^-42.", "  double tail;", "};"]
    lines += table("LogCell", "kLog", log_rows(),
                   "-log(inverse) = head + tail, near 1 / inverse; cells from 0.6875 to 1.375.")
    lines += ["struct TurnStep {", "  double value;", "  double tail;   ///< sin - value",
              "  double upper;  ///< The value's upper 26 bits,", "  double lower;  ///< and the rest.", "};"]
    lines += table("TurnStep", "kQuarterTurn", turn_rows(), "sin(i pi / 64), up to pi / 2.")
    lines += ["/// 64 zeros, then the bits of 2 / pi.", "inline constexpr std::uint64_t kTwoOverPi[] = {"]
    lines += [f"    {word:#018x}," for word in [0, *words_of_two_over_pi(20)]]
    lines += ["};", "", "}  // namespace train::fixed::tables", ""]
    OUTPUT.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
