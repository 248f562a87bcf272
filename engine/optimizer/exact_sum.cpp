#include "engine/optimizer/exact_sum.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.hpp"

namespace train::engine {
namespace {

constexpr std::size_t kBits = 64;
constexpr int kMantissaBits = 52;
constexpr int kUnit = -1074;  // Exponent of the last bit.
constexpr std::uint64_t kExponent = 0x7ff;
constexpr std::uint64_t kMantissa = (std::uint64_t{1} << kMantissaBits) - 1;

/// `count` (at most 64) bits from bit `first` on.
std::uint64_t bits_at(const ExactSum::Words& words, std::size_t first, std::size_t count) {
  const std::size_t word = first / kBits;
  const std::size_t shift = first % kBits;
  std::uint64_t bits = words[word] >> shift;
  if (shift > 0) {
    bits |= words[word + 1] << (kBits - shift);
  }
  return count == kBits ? bits : bits & ((std::uint64_t{1} << count) - 1);
}

bool any_below(const ExactSum::Words& words, std::size_t end) {
  const std::size_t word = end / kBits;
  const auto set = [](std::uint64_t bits) { return bits != 0; };
  return std::any_of(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(word), set) ||
         (end % kBits > 0 && bits_at(words, word * kBits, end % kBits) != 0);
}

}  // namespace

void ExactSum::add_at(std::size_t word, std::uint64_t addend) {
  for (; word < kNumber && addend != 0; ++word) {
    words_[word] += addend;
    addend = words_[word] < addend ? 1 : 0;
  }
}

void ExactSum::subtract_at(std::size_t word, std::uint64_t addend) {
  for (; word < kNumber && addend != 0; ++word) {
    const std::uint64_t before = words_[word];
    words_[word] -= addend;
    addend = before < addend ? 1 : 0;
  }
}

void ExactSum::add(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t exponent = bits >> kMantissaBits & kExponent;
  std::uint64_t mantissa = bits & kMantissa;
  if (exponent == kExponent) {
    words_[kNonfinite] = 1;
    return;
  }
  // A subnormal has the exponent of the smallest normal number, without its leading bit.
  mantissa |= exponent > 0 ? kMantissa + 1 : 0;
  const std::size_t shift = exponent > 0 ? exponent - 1 : 0;
  const std::size_t word = shift / kBits;
  const std::size_t offset = shift % kBits;
  const std::uint64_t low = mantissa << offset;
  const std::uint64_t high = offset > 0 ? mantissa >> (kBits - offset) : 0;
  if (bits >> (kBits - 1) != 0) {
    subtract_at(word, low);
    subtract_at(word + 1, high);
  } else {
    add_at(word, low);
    add_at(word + 1, high);
  }
}

void ExactSum::add(const ExactSum& other) {
  const Words addends = other.words_;  // It may be this one.
  for (std::size_t word = 0; word < kNumber; ++word) {
    add_at(word, addends[word]);
  }
  words_[kNonfinite] |= addends[kNonfinite];
}

double ExactSum::value() const {
  if (words_[kNonfinite] != 0) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const bool negative = words_[kNumber - 1] >> (kBits - 1) != 0;
  ExactSum magnitude;
  for (std::size_t word = 0; word < kNumber; ++word) {
    if (negative) {
      magnitude.subtract_at(word, words_[word]);
    } else {
      magnitude.words_[word] = words_[word];
    }
  }
  std::size_t top = kNumber;
  while (top > 0 && magnitude.words_[top - 1] == 0) {
    --top;
  }
  if (top == 0) {
    return 0.0;
  }
  const std::size_t length =
      top * kBits - static_cast<std::size_t>(std::countl_zero(magnitude.words_[top - 1]));
  constexpr std::size_t kKept = kMantissaBits + 1;
  const std::size_t first = length > kKept ? length - kKept : 0;
  std::uint64_t mantissa = bits_at(magnitude.words_, first, kKept);
  if (first > 0 && bits_at(magnitude.words_, first - 1, 1) != 0) {
    const bool above_half = any_below(magnitude.words_, first - 1);
    mantissa += above_half || mantissa % 2 != 0 ? 1 : 0;
  }
  const double value = std::ldexp(static_cast<double>(mantissa), static_cast<int>(first) + kUnit);
  return negative ? -value : value;
}

std::vector<std::uint64_t> words_of(std::span<const ExactSum> sums) {
  std::vector<std::uint64_t> words;
  words.reserve(sums.size() * ExactSum::kWords);
  for (const ExactSum& sum : sums) {
    words.insert(words.end(), sum.words().begin(), sum.words().end());
  }
  return words;
}

std::vector<ExactSum> sums_of(std::span<const std::uint64_t> words) {
  TRAIN_CHECK(words.size() % ExactSum::kWords == 0, "{} words", words.size());
  std::vector<ExactSum> sums;
  for (std::size_t at = 0; at < words.size(); at += ExactSum::kWords) {
    ExactSum::Words of_sum{};
    std::copy_n(words.begin() + static_cast<std::ptrdiff_t>(at), ExactSum::kWords, of_sum.begin());
    sums.emplace_back(of_sum);
  }
  return sums;
}

void add_each(std::span<ExactSum> to, std::span<const ExactSum> from) {
  TRAIN_CHECK(to.size() == from.size(), "{} and {} sums", to.size(), from.size());
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i].add(from[i]);
  }
}

}  // namespace train::engine
