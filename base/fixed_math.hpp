#pragma once

/// Elementary functions whose bits are ours: the same on every machine, whatever its C library and
/// instruction set. What a run computes depends on them, so nothing else may call those of <cmath>
/// (tests/tidy/host_math_test.cpp). What IEEE 754 fixes to the bit is <cmath>'s: sqrt, floor, rint,
/// ldexp, fmod, ...
///
/// Plain additions, multiplications and divisions of doubles, rounded to nearest, none of them
/// fused. Results are within 0.625 ulp of the true value (expm1; others 0.55); what is exact is
/// returned exactly. Special cases are those of C's Annex F: NaN, infinities, signed zeros, all of
/// pow()'s; errno is left alone, and the exception flags mean nothing. The thread's mode must be
/// that of base/float_mode.hpp.
///
/// For floats: convert. A function of a float, computed here and rounded, is right in all but about
/// one of 10^9 cases.
namespace train::fixed {

[[nodiscard]] double exp(double x);
[[nodiscard]] double expm1(double x);
[[nodiscard]] double log(double x);
[[nodiscard]] double log10(double x);
[[nodiscard]] double log1p(double x);
[[nodiscard]] double pow(double x, double y);
[[nodiscard]] double tanh(double x);

/// Of every finite angle, however large.
[[nodiscard]] double sin(double x);
[[nodiscard]] double cos(double x);

struct SinCos {
  double sin;
  double cos;
};
/// The bits of sin() and cos(), in little more time than one of them.
[[nodiscard]] SinCos sin_cos(double x);

}  // namespace train::fixed
