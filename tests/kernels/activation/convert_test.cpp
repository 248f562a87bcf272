#include "kernels/activation/elementwise.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "tests/kernels/kernel_fixture.hpp"

namespace train::kernels::testing::convert_test {
namespace {

using Halves = std::vector<std::uint16_t>;

Halves packed(const Values& in, int threads = 2) {
  Halves out(in.size(), 0xabcdU);
  run(
      [&](Stream& stream) {
        cpu::pack_bf16(stream, {.in = in.data(), .out = out.data(), .count = std::ssize(in)});
      },
      threads);
  return out;
}

Values unpacked(const Halves& in, int threads = 2) {
  Values out = untouched_values(std::ssize(in));
  run(
      [&](Stream& stream) {
        cpu::unpack_bf16(stream, {.in = in.data(), .out = out.data(), .count = std::ssize(in)});
      },
      threads);
  return out;
}

/// The nearest of all bfloat16 values, the one with an even last bit on a tie; by search.
std::uint16_t nearest(float value) {
  const auto below = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U);
  const auto above = static_cast<std::uint16_t>(below + 1);
  const auto exact_value = [](std::uint16_t half) {
    // What follows the largest finite value counts as 2^128, as in IEEE 754.
    const auto magnitude = static_cast<std::uint16_t>(half & 0x7fffU);
    const double size = magnitude == 0x7f80U ? std::ldexp(1.0, 128)
                                             : static_cast<double>(std::bit_cast<float>(
                                                   static_cast<std::uint32_t>(magnitude) << 16U));
    return (half & 0x8000U) != 0 ? -size : size;
  };
  const double left = std::abs(static_cast<double>(value) - exact_value(below));
  const double right = std::abs(static_cast<double>(value) - exact_value(above));
  if (left == right) {
    return (below & 1U) == 0 ? below : above;
  }
  return left < right ? below : above;
}

TEST_CASE("pack_bf16: rounds to the nearest, ties to even", "[kernels][convert]") {
  Values in;
  std::mt19937 generator(5);
  while (in.size() < 60'000) {
    const auto bits = static_cast<std::uint32_t>(generator());
    // Every third value is a tie or next to one.
    const std::uint32_t chosen =
        in.size() % 3 == 0 ? (bits & 0xffff0000U) + 0x7fffU + bits % 3 : bits;
    const auto value = std::bit_cast<float>(chosen);
    if (std::isfinite(value)) {
      in.push_back(value);
    }
  }
  in.insert(in.end(),
            {0.0F, -0.0F, 1.0F, std::numeric_limits<float>::max(),
             std::numeric_limits<float>::lowest(), std::numeric_limits<float>::denorm_min()});
  const Halves out = packed(in);
  for (std::size_t i = 0; i < in.size(); ++i) {
    CAPTURE(in[i]);
    REQUIRE(out[i] == nearest(in[i]));
  }
  REQUIRE(packed(in, 1) == out);
  REQUIRE(packed(in, 3) == out);
}

TEST_CASE("pack_bf16: NaN stays NaN and infinities stay", "[kernels][convert]") {
  // Payloads in the lower half alone would become Inf, or carry into the sign, when rounded.
  for (const std::uint32_t bits :
       {0x7f800001U, 0x7f80ffffU, 0x7fffffffU, 0xff800001U, 0xffffffffU, 0x7fc00000U}) {
    for (const std::size_t place : {0U, 5U, 40U}) {  // In a whole vector and in the tail.
      Values in(41, 1.0F);
      in[place] = std::bit_cast<float>(bits);
      const Halves out = packed(in);
      CAPTURE(bits, place);
      REQUIRE((out[place] & 0x7f80U) == 0x7f80U);
      REQUIRE((out[place] & 0x007fU) != 0);
      REQUIRE((out[place] >> 15U) == (bits >> 31U));
      REQUIRE(std::isnan(unpacked(out)[place]));
    }
  }
  const float infinity = std::numeric_limits<float>::infinity();
  REQUIRE(packed({infinity, -infinity}) == Halves{0x7f80U, 0xff80U});
}

TEST_CASE("unpack_bf16: every value, and back", "[kernels][convert]") {
  Halves all;
  for (std::uint32_t half = 0; half < 65536U; ++half) {
    const auto value = std::bit_cast<float>(half << 16U);
    if (!std::isnan(value)) {
      all.push_back(static_cast<std::uint16_t>(half));
    }
  }
  const Values values = unpacked(all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    REQUIRE(std::bit_cast<std::uint32_t>(values[i]) == static_cast<std::uint32_t>(all[i]) << 16U);
  }
  REQUIRE(packed(values) == all);
}

TEST_CASE("convert: pieces of any length and alignment give the bits of the whole",
          "[kernels][convert]") {
  constexpr std::int64_t count = 301;
  const Values in = random_values(count, 3);
  const Halves whole = packed(in);
  const Values wide = unpacked(whole);
  for (std::int64_t cut = 1; cut < 70; ++cut) {
    Halves out(in.size() + 1, 0xabcdU);
    Values back = untouched_values(count + 1);
    run([&](Stream& stream) {
      for (std::int64_t first = 0; first < count; first += cut) {
        const std::int64_t part = std::min(cut, count - first);
        cpu::pack_bf16(stream, {.in = in.data() + first, .out = out.data() + first, .count = part});
        cpu::unpack_bf16(stream,
                         {.in = out.data() + first, .out = back.data() + first, .count = part});
      }
    });
    CAPTURE(cut);
    REQUIRE(out.back() == 0xabcdU);
    REQUIRE(back.back() == untouched);
    out.pop_back();
    back.pop_back();
    REQUIRE(out == whole);
    REQUIRE(back == wide);
  }
}

}  // namespace
}  // namespace train::kernels::testing::convert_test
