// Arguments are reduced to the nearest entry of a table, with steps so small that a short Taylor
// series covers the rest. Terms larger than a result's last bits are computed exactly, as a sum of
// two doubles; a product is exact if its factors have 26 bits each.
#include "base/math/fixed_math.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/math/fixed_math_tables.hpp"

namespace train::fixed {
namespace {

using namespace tables;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
/// Adding and subtracting it rounds a number below 2^51 to an integer.
constexpr double kRounder = 0x1.8p52;
constexpr int kFractionBits = 52;

constexpr std::uint64_t bits_of(double x) { return std::bit_cast<std::uint64_t>(x); }
constexpr double double_of(std::uint64_t bits) { return std::bit_cast<double>(bits); }

/// Number and its rounding error.
struct Sum {
  double value;
  double tail;
};

/// a + b exactly. REQUIRES: |a| >= |b| or a = 0.
constexpr Sum sum_of(double a, double b) {
  const double value = a + b;
  return {value, b - (value - a)};
}

/// Upper 26 bits of x.
constexpr double upper_bits(double x) { return double_of(bits_of(x) & ~((1ULL << 27U) - 1)); }

/// 2^k. REQUIRES: a normal number.
constexpr double power_of_two(std::int64_t k) {
  return double_of(static_cast<std::uint64_t>(k + 1023) << kFractionBits);
}

// Powers ------------------------------------------------------------------------------------------

/// exp(x) = 2^octaves value (1 + share): 1 <= value < 2, |share| < 0.003.
struct Power {
  double value;
  double share;
  std::int64_t octaves;
};

/// exp(x + tail). REQUIRES: |x| < 1100, tail smaller than x's last bits.
inline Power power_at(double x, double tail) {
  const double rounded = x * kStepsOfOne + kRounder;
  const double count = rounded - kRounder;
  // Number of steps, in the mantissa's low bits.
  const std::int64_t steps = static_cast<std::int64_t>(bits_of(rounded) << 13U) >> 13U;
  const ExpStep& step = kExp[static_cast<std::uint64_t>(steps) & 127U];
  const double r = (x - count * kStepUpper) - (count * kStepLower - tail);
  const double rr = r * r;
  const double series = rr * (0.5 + r * (1.0 / 6)) + rr * rr * (1.0 / 24 + r * (1.0 / 120));
  return {step.value, (step.tail + r) + series, steps >> 7U};
}

/// Value of a power that may not be normal, rounded once.
double scaled_slowly(const Power& power, double sign) {
  if (power.octaves > 1024) {
    return sign * kInfinity;
  }
  if (power.octaves > 0) {
    const double half = sign * power.value * power_of_two(power.octaves - 1);
    return (half + half * power.share) * 2.0;
  }
  // In units of the least normal number: a result below 1 there has the precision of 1 + it.
  if (power.octaves < -1080) {
    return sign * 0.0;
  }
  const double value = power.value * power_of_two(power.octaves + 1022);
  const double rest = value * power.share;
  if (value + rest >= 1.0) {
    return sign * (value + rest) * 0x1p-1022;
  }
  const Sum near = sum_of(1.0, value);
  return sign * ((near.value + (near.tail + rest)) - 1.0) * 0x1p-1022;
}

inline double scaled(const Power& power, double sign) {
  if (power.octaves > 1022 || power.octaves < -960) {  // Its tail is a normal number, too.
    return scaled_slowly(power, sign);
  }
  const double value =
      sign * double_of(bits_of(power.value) +
                       (static_cast<std::uint64_t>(power.octaves) << kFractionBits));
  return value + value * power.share;
}

// Logarithms --------------------------------------------------------------------------------------

/// x = 2^octaves z (1 + r), where head + tail is the logarithm of 2^octaves z and r = upper +
/// lower. Exact except `tail`: head + upper is exact, and so is upper^2.
struct Reduced {
  double head;
  double tail;
  double upper;
  double lower;
};

/// Reduction of x + rest. REQUIRES: x positive and finite, with these bits if normal, otherwise
/// scaled by `octaves`.
inline Reduced reduced(std::uint64_t bits, double rest, std::int64_t octaves) {
  constexpr std::uint64_t first = std::bit_cast<std::uint64_t>(0.6875);
  const std::uint64_t above = bits - first;
  const std::int64_t k = static_cast<std::int64_t>(above) >> kFractionBits;
  const LogCell& cell = kLog[(above >> (kFractionBits - 7)) & 127U];
  const std::uint64_t z = bits - (static_cast<std::uint64_t>(k) << kFractionBits);
  const double z_upper = double_of((z + (1ULL << 32U)) & ~((1ULL << 33U) - 1));
  const double z_lower = double_of(z) - z_upper;
  const auto count = static_cast<double>(k + octaves);
  double lower = z_lower * cell.inverse;
  if (rest != 0.0) {
    lower += rest * power_of_two(-k) * cell.inverse;
  }
  return {count * kOctaveUpper + cell.head, count * kOctaveLower + cell.tail,
          z_upper * cell.inverse - 1.0, lower};
}

/// log(1 + r) - r for |r| < 2^-7.
inline double log_series(double r) {
  const double rr = r * r;
  const double upper = (1.0 / 7 - r * (1.0 / 8)) * rr + (1.0 / 5 - r * (1.0 / 6));
  return rr * (-0.5 + (r * (1.0 / 3 - r * (1.0 / 4)) + r * rr * upper));
}

inline double log_of(const Reduced& x) {
  const double series = log_series(x.upper + x.lower);
  return (x.head + x.upper) + (x.lower + (series + x.tail));
}

/// Relative error 2^-66.
inline Sum exact_log_of(const Reduced& x) {
  const double r = x.upper + x.lower;
  const double rr = r * r;
  const Sum first = sum_of(x.head + x.upper, -0.5 * x.upper * x.upper);
  const Sum second = sum_of(first.value, x.lower);
  const double highest = (1.0 / 9 - r * (1.0 / 10)) * rr + (1.0 / 7 - r * (1.0 / 8));
  const double higher = (highest * rr + (1.0 / 5 - r * (1.0 / 6))) * rr;
  const double cubic = r * rr * (1.0 / 3 - r * (1.0 / 4) + higher);
  const double square = x.lower * (x.upper + 0.5 * x.lower);
  return sum_of(second.value, second.tail + (first.tail + ((cubic - square) + x.tail)));
}

constexpr std::uint64_t kLeastNormal = std::bit_cast<std::uint64_t>(0x1p-1022);
constexpr std::uint64_t kInfinityBits = std::bit_cast<std::uint64_t>(kInfinity);

/// True for the cells around 1, where log(x) is a series of x - 1 alone.
inline bool is_near_one(std::uint64_t bits) {
  constexpr std::uint64_t least = std::bit_cast<std::uint64_t>(1.0 - 0x1p-8);
  constexpr std::uint64_t end = std::bit_cast<std::uint64_t>(1.0 + 0x1p-7);
  return bits - least < end - least;
}

/// Logarithm of 0, negative numbers, infinity and NaN.
double log_of_special(double x) {
  if (x == 0.0) {
    return -kInfinity;
  }
  return x < 0.0 ? kNaN : x + x;  // Infinity and NaN.
}

/// Reduction of any positive finite number.
inline Reduced reduced_any(double x) {
  std::uint64_t bits = bits_of(x);
  if (bits >= kLeastNormal) {
    return reduced(bits, 0.0, 0);
  }
  return reduced(bits_of(x * 0x1p52), 0.0, -52);
}

// Angles ------------------------------------------------------------------------------------------

/// Angle = steps pi / 64 + value + tail, |value| < pi / 127.
struct Angle {
  std::uint64_t steps;  ///< Modulo 128.
  double value;
  double tail;
};

__extension__ using Wide = unsigned __int128;

/// 256 bits, lowest word first.
struct Bits256 {
  std::uint64_t words[4];

  /// 64 bits from a bit on, counted from the highest; zeros follow.
  [[nodiscard]] std::uint64_t word_at(unsigned bit) const {
    const unsigned first = bit / 64;
    const unsigned shift = bit % 64;
    const std::uint64_t high = first < 4 ? words[3 - first] : 0;
    const std::uint64_t low = first < 3 ? words[2 - first] : 0;
    return shift == 0 ? high : (high << shift) | (low >> (64 - shift));
  }
};

/// Reduces a positive finite angle >= 2^-7 by its product with 2 / pi, modulo 4, to 2^-200 (Payne &
/// Hanek 1983).
Angle angle_from_digits(double x) {
  const std::uint64_t bits = bits_of(x);
  const int exponent = static_cast<int>(bits >> kFractionBits) - 1075;
  const std::uint64_t mantissa = (bits & ((1ULL << 52U) - 1)) | (1ULL << 52U);
  // Digits worth a multiple of 4 are skipped; the table has 64 zeros before the first digit.
  const auto begin = static_cast<unsigned>(exponent - 2 + 64);
  Bits256 product{};
  Wide carry = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const std::uint64_t* const digits = kTwoOverPi + begin / 64 + (3 - i);
    const unsigned shift = begin % 64;
    const std::uint64_t word =
        shift == 0 ? digits[0] : (digits[0] << shift) | (digits[1] >> (64 - shift));
    carry += static_cast<Wide>(mantissa) * word;
    product.words[i] = static_cast<std::uint64_t>(carry);
    carry >>= 64U;
  }
  // Seven bits count the steps; the rest is a fraction, rounded here to the nearest step.
  const std::uint64_t fraction = product.word_at(7);
  const bool down = (fraction >> 63U) != 0;
  const std::uint64_t steps = (product.words[3] >> 57U) + (down ? 1 : 0);
  if (down) {
    for (std::uint64_t& word : product.words) {
      word = ~word;  // Negated, except for the last bit.
    }
  }
  unsigned lead = 7;
  while (product.word_at(lead) >> 63U == 0) {  // At most 70 zeros: no double is nearer to a step.
    ++lead;
  }
  const double upper = std::ldexp(static_cast<double>(product.word_at(lead) >> 38U),
                                  -26 - static_cast<int>(lead - 7));
  const double lower = std::ldexp(static_cast<double>(product.word_at(lead + 26) >> 11U),
                                  -79 - static_cast<int>(lead - 7));
  const double sign = down ? -1.0 : 1.0;
  const Sum angle = sum_of(upper * kTurnUpper, upper * kTurnLower + lower * kTurn);
  return {steps & 127U, sign * angle.value, sign * angle.tail};
}

/// Reduces a non-negative finite angle.
inline Angle angle_of(double x) {
  constexpr double most_exact = 0x1p18;  // Up to here there are fewer than 2^23 steps.
  constexpr double least_rest = 0x1p-26;
  if (x < most_exact) {
    const double rounded = x * kTurnsOfOne + kRounder;
    const double count = rounded - kRounder;
    const double first = x - count * kTurnFirst;
    const double second = count * kTurnSecond;
    const double near = first - second;
    const double back = near - first;  // Either one may be larger.
    const double lost = (first - (near - back)) - (second + back);
    if (count == 0.0 || std::abs(near) >= least_rest) {
      const Sum rest = sum_of(near, lost - count * kTurnThird);
      return {bits_of(rounded) & 127U, rest.value, rest.tail};
    }
  }
  return angle_from_digits(x);
}

/// sin(i pi / 64), a quarter more than a circle: the cosine is 32 steps on.
constexpr auto kTurns = [] {
  std::array<TurnStep, 160> turns{};
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const std::size_t half = i % 64;
    const TurnStep& step = kQuarterTurn[half <= 32 ? half : 64 - half];
    // 0.0 - x and not -x: no zero is negative.
    turns[i] = i % 128 < 64 ? step
                            : TurnStep{0.0 - step.value, 0.0 - step.tail, 0.0 - step.upper,
                                       0.0 - step.lower};
  }
  return turns;
}();

/// sin(steps pi / 64 + value + tail).
inline double sin_at(std::uint64_t steps, const Angle& angle) {
  const TurnStep& sine = kTurns[steps];
  const TurnStep& cosine = kTurns[steps + 32];
  const double r = angle.value;
  const double rr = r * r;
  const double r_upper = upper_bits(r);
  const double r_lower = (r - r_upper) + angle.tail;
  const Sum linear = sum_of(sine.value, cosine.upper * r_upper);
  const double sine_rest =  // sin r - r
      r * rr * (-1.0 / 6 + rr * (1.0 / 120 - rr * (1.0 / 5040)));
  const double cosine_rest =  // cos r - 1
      rr * (-0.5 + rr * (1.0 / 24 + rr * (-1.0 / 720 + rr * (1.0 / 40320))));
  const double small = (cosine.value * sine_rest + sine.value * cosine_rest) + sine.tail;
  return linear.value + (linear.tail + ((cosine.upper * r_lower + cosine.lower * r) + small));
}

inline double cos_at(std::uint64_t steps, const Angle& angle) {
  return sin_at((steps + 32U) & 127U, angle);
}

constexpr double kLeastAngle = 0x1p-27;  ///< Below this sin x rounds to x.

}  // namespace

double exp(double x) {
  if (!(std::abs(x) < 746.0)) {
    return x < 0.0 ? 0.0 : x + kInfinity;  // NaN is unchanged.
  }
  return scaled(power_at(x, 0.0), 1.0);
}

double expm1(double x) {
  if (std::abs(x) < 0x1p-54) {
    return x;  // Keeps the sign of 0.
  }
  if (std::abs(x) < 0x1p-4) {
    const double xx = x * x;
    const double high = (1.0 / 40320 + x * (1.0 / 362880)) + xx * (1.0 / 3628800);
    const double middle = (1.0 / 720 + x * (1.0 / 5040)) + xx * high;
    const double low = (1.0 / 24 + x * (1.0 / 120)) + xx * middle;
    return x + (0.5 * xx + x * xx * (1.0 / 6 + x * low));
  }
  if (!(std::abs(x) < 60.0)) {
    return x < 0.0 ? -1.0 : exp(x);
  }
  const Power power = power_at(x, 0.0);
  const double value = power.value * power_of_two(power.octaves);
  const Sum sum = value < 1.0 ? sum_of(-1.0, value) : sum_of(value, -1.0);
  return sum.value + (sum.tail + value * power.share);
}

double log(double x) {
  const std::uint64_t bits = bits_of(x);
  if (is_near_one(bits)) {
    const double r = x - 1.0;
    return r + log_series(r);
  }
  if (bits - kLeastNormal < kInfinityBits - kLeastNormal) {
    return log_of(reduced(bits, 0.0, 0));
  }
  return x > 0.0 && x < kInfinity ? log_of(reduced_any(x)) : log_of_special(x);
}

double log10(double x) {
  if (!(x > 0.0 && x < kInfinity)) {
    return log_of_special(x);
  }
  const Sum natural = exact_log_of(reduced_any(x));
  const double upper = upper_bits(natural.value);
  const double lower = (natural.value - upper) + natural.tail;
  return upper * kDecadeUpper + (upper * kDecadeLower + lower * (kDecadeUpper + kDecadeLower));
}

double log1p(double x) {
  if (x >= -0x1p-8 && x < 0x1p-7) {
    return x + log_series(x);
  }
  if (!(x > -1.0 && x < 0x1p54)) {
    return x < 0.0 ? log_of_special(x + 1.0) : log(x);
  }
  const Sum sum = x < 1.0 ? sum_of(1.0, x) : sum_of(x, 1.0);
  return log_of(reduced(bits_of(sum.value), sum.tail, 0));
}

double tanh(double x) {
  const double size = std::abs(x);
  if (size < 0x1p-28) {
    return x;
  }
  if (size < 0x1p-4) {
    const double xx = x * x;
    const double high = 62.0 / 2835 + xx * (-1382.0 / 155925 + xx * (21844.0 / 6081075));
    return x + x * xx * (-1.0 / 3 + xx * (2.0 / 15 + xx * (-17.0 / 315 + xx * high)));
  }
  if (!(size < 20.0)) {
    return x != x ? x : std::copysign(1.0, x);
  }
  // 1 - 2 / (1 + exp(2 |x|)): first the quotient's upper bits, then the remainder of the 2.
  const Power power = power_at(2.0 * size, 0.0);
  const double value = power.value * power_of_two(power.octaves);
  const Sum one_more = sum_of(value, 1.0);
  const Sum divisor = sum_of(one_more.value, one_more.tail + value * power.share);
  const double quotient = upper_bits(2.0 / divisor.value);
  const double divisor_upper = upper_bits(divisor.value);
  const double left =
      ((2.0 - quotient * divisor_upper) - quotient * (divisor.value - divisor_upper)) -
      quotient * divisor.tail;
  const Sum result = sum_of(1.0, -quotient);
  return std::copysign(result.value + (result.tail - left / divisor.value), x);
}

namespace {

enum class Parity : std::uint8_t { fraction, even, odd };

/// Parity of a finite number.
Parity parity_of(double y) {
  if (std::floor(y) != y) {
    return Parity::fraction;
  }
  return std::fmod(y, 2.0) == 0.0 ? Parity::even : Parity::odd;
}

/// Power of a positive finite number with a finite exponent, times 1 or -1.
double finite_pow(const Reduced& x, double y, double sign) {
  const Sum log = exact_log_of(x);
  const double size = y * log.value;
  if (!(std::abs(size) < 746.0)) {
    return sign * (size > 0.0 ? kInfinity : 0.0);
  }
  const double log_upper = upper_bits(log.value);
  const double log_lower = (log.value - log_upper) + log.tail;
  const double y_upper = upper_bits(y);
  const double value = y_upper * log_upper;
  return scaled(power_at(value, (y - y_upper) * log_upper + y * log_lower), sign);
}

/// Power with a 0, infinite, NaN or negative base, or with such an exponent: Annex F.9.4.4 of C11.
double special_pow(double x, double y) {
  if (y == 0.0 || x == 1.0) {
    return 1.0;
  }
  if (x != x || y != y) {
    return x + y;
  }
  if (std::abs(y) == kInfinity) {
    const double size = std::abs(x);
    return size == 1.0 ? 1.0 : ((size > 1.0) == (y > 0.0) ? kInfinity : 0.0);
  }
  const Parity parity = parity_of(y);
  const double sign = std::signbit(x) && parity == Parity::odd ? -1.0 : 1.0;
  if (x == 0.0 || std::abs(x) == kInfinity) {
    return sign * ((x == 0.0) == (y < 0.0) ? kInfinity : 0.0);
  }
  if (x < 0.0 && parity == Parity::fraction) {
    return kNaN;
  }
  return finite_pow(reduced_any(std::abs(x)), y, sign);
}

}  // namespace

double pow(double x, double y) {
  const std::uint64_t bits = bits_of(x);
  if (bits - kLeastNormal < kInfinityBits - kLeastNormal && std::abs(y) < kInfinity) {
    return finite_pow(reduced(bits, 0.0, 0), y, 1.0);
  }
  return special_pow(x, y);
}

double sin(double x) {
  const double size = std::abs(x);
  if (size < kLeastAngle) {
    return x;
  }
  if (!(size < kInfinity)) {
    return kNaN;
  }
  const Angle angle = angle_of(size);
  const double value = sin_at(angle.steps, angle);
  return std::signbit(x) ? -value : value;
}

double cos(double x) {
  const double size = std::abs(x);
  if (!(size < kInfinity)) {
    return kNaN;
  }
  const Angle angle = angle_of(size);
  return cos_at(angle.steps, angle);
}

SinCos sin_cos(double x) {
  const double size = std::abs(x);
  if (!(size < kInfinity)) {
    return {kNaN, kNaN};
  }
  const Angle angle = angle_of(size);
  const double sine = sin_at(angle.steps, angle);
  return {size < kLeastAngle ? x : (std::signbit(x) ? -sine : sine), cos_at(angle.steps, angle)};
}

}  // namespace train::fixed
