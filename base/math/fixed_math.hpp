#pragma once

/// Elementary functions with fixed bits: equal on every machine, whatever its C library and
/// instruction set. Results of runs depend on them, so no other code may call those of <cmath>
/// (tests/tidy/host_math_test.cpp), except functions that IEEE 754 defines to the bit: sqrt, floor,
/// rint, ldexp, fmod, ...
///
/// Built from unfused additions, multiplications and divisions of doubles, rounded to nearest.
/// Results are within 0.625 ulp of the true value (expm1; others 0.55); exact results are returned
/// exactly. Special cases follow C's Annex F: NaN, infinities, signed zeros, all of pow()'s; errno
/// is not set, and the exception flags are meaningless. The thread's mode must be that of
/// base/math/float_mode.hpp.
///
/// For floats: convert. A function of a float, computed here and rounded, is correctly rounded in
/// all but about one of 10^9 cases.
namespace train::fixed {

[[nodiscard]] double exp(double x);
[[nodiscard]] double expm1(double x);
[[nodiscard]] double log(double x);
[[nodiscard]] double log10(double x);
[[nodiscard]] double log1p(double x);
[[nodiscard]] double pow(double x, double y);
[[nodiscard]] double tanh(double x);

/// Accepts every finite angle, however large.
[[nodiscard]] double sin(double x);
[[nodiscard]] double cos(double x);

struct SinCos {
  double sin;
  double cos;
};
/// Returns the bits of sin() and cos(), in little more time than one of them.
[[nodiscard]] SinCos sin_cos(double x);

}  // namespace train::fixed
