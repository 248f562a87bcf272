#pragma once

#include <cstdint>
#include <span>

namespace train::checkpoint {

/// Values that enter sums with a weight.
struct WeightedValues {
  const float* values = nullptr;  ///< As many as there are sums.
  double weight = 1.0;
};

/// Vectors that numbers are sorted in; the sums have the same bits.
enum class SumVectors : std::uint8_t {
  sse2,  ///< Any x86-64 processor.
  avx2,  ///< Twice as wide.
};
/// The widest that this processor has.
[[nodiscard]] SumVectors widest_vectors();

/// Sets each out[i] to the sum over columns of weight times values[i]: products and sum in double,
/// rounded once. The products of an element are added from the least to the greatest, so that the
/// order of the columns does not change a bit. A value that is not a number makes its sum none.
/// REQUIRES: a processor that has `vectors`.
void ordered_sums(std::span<const WeightedValues> columns, std::span<float> out,
                  SumVectors vectors = widest_vectors());

}  // namespace train::checkpoint
