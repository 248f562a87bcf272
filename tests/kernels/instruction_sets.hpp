#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/kernels/cuda_fixture.hpp"
#include "tests/support/devices/instruction_sets.hpp"

// A kernel of the CPU with each instruction set that it is compiled for: one call is written once
// and run with all of them.
namespace train::kernels::testing {

enum class Kind : std::uint8_t {
  uniform,  ///< In (-1, 1): sums in another order have other bits.
  wide,     ///< Every exponent there is, denormals too.
  hostile,  ///< Uniform ones, and here and there a NaN, an infinity, or a value at a limit.
};
constexpr std::array kKinds = {Kind::uniform, Kind::wide, Kind::hostile};

/// Values of one kind, others with each call.
class Source {
 public:
  explicit Source(Kind kind) : kind_(kind) {}

  Values operator()(std::int64_t count) {
    Values values = random_values(count, ++seed_);
    std::mt19937 random(1000 + seed_);
    for (float& value : values) {
      if (kind_ == Kind::wide) {
        value = std::ldexp(value, static_cast<int>(random() % 276) - 149);
      } else if (kind_ == Kind::hostile && random() % 61 == 0) {
        value = kSpecial[random() % kSpecial.size()];
      }
    }
    return values;
  }
  /// As a second moment or a square root is.
  Values positive(std::int64_t count) {
    Values values = (*this)(count);
    std::transform(values.begin(), values.end(), values.begin(),
                   [](float v) { return std::abs(v); });
    return values;
  }

 private:
  using Limits = std::numeric_limits<float>;
  static constexpr std::array<float, 12> kSpecial = {0.0F,
                                                     -0.0F,
                                                     Limits::denorm_min(),
                                                     -Limits::denorm_min(),
                                                     Limits::min() / 2,
                                                     Limits::min(),
                                                     Limits::max(),
                                                     Limits::lowest(),
                                                     Limits::infinity(),
                                                     -Limits::infinity(),
                                                     Limits::quiet_NaN(),
                                                     88.5F};

  Kind kind_;
  unsigned seed_ = 0;
};

/// The bits of each, and one NaN for all of them: which of two an operation keeps is the
/// compiler's choice.
inline std::vector<std::uint64_t> bits_of(const Exact& values) {
  std::vector<std::uint64_t> bits;
  for (const double value : values) {
    bits.push_back(std::bit_cast<std::uint64_t>(
        std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value));
  }
  return bits;
}

/// True where there is nothing to compare; says so, once for a program.
inline bool one_instruction_set() {
  static const bool one = [] {
    if (!test::has_avx512()) {
      WARN("skipped: this processor has no AVX-512, so one instruction set");
    }
    return !test::has_avx512();
  }();
  return one;
}

/// Requires that the kernel leaves the same bits with AVX2 and with AVX-512, from values of every
/// kind.
inline void compare_sets(const std::string& kernel, const std::string& what,
                         const std::function<void(Side&, Source&)>& call) {
  if (one_instruction_set()) {
    return;
  }
  for (const Kind kind : kKinds) {
    const auto results = [&] {
      Side side(cpu_backend(), make_inline_stream(2), MemoryKind::host);
      Source source(kind);
      call(side, source);
      return bits_of(side.results());
    };
    const auto wide = results();
    const std::size_t of_wide = test::chosen_instructions();
    const test::WithoutAvx512 without;
    REQUIRE_FALSE(test::has_avx512());
    const auto narrow = results();
    REQUIRE(test::chosen_instructions() != of_wide);
    REQUIRE(narrow.size() == wide.size());
    const auto differ = std::mismatch(wide.begin(), wide.end(), narrow.begin()).first;
    INFO(kernel << " " << what << ", values of kind " << static_cast<int>(kind) << ": result "
                << differ - wide.begin() << " of " << wide.size());
    CHECK(differ == wide.end());
  }
}

/// Whole vectors of either width, and what is left over of them.
constexpr std::array<std::int64_t, 16> kWidths = {1,  2,  7,  8,  9,   15,  16,  17,
                                                  24, 31, 32, 33, 100, 257, 768, 1003};

}  // namespace train::kernels::testing
