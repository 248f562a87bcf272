#pragma once

#include <bit>
#include <cstdint>

namespace train::actors {

/// A double as its bit pattern: the network layer of the actor framework corrupts NaN, infinities,
/// subnormals and -0, so no message field is a float.
struct FloatBits {
  std::uint64_t bits = 0;

  FloatBits() = default;
  explicit FloatBits(double value) : bits(std::bit_cast<std::uint64_t>(value)) {}
  [[nodiscard]] double value() const { return std::bit_cast<double>(bits); }
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, FloatBits& x) {
  return f(x.bits);
}

}  // namespace train::actors
