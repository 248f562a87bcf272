#pragma once

#include <array>
#include <cstdint>

#include "kernels/dtype.hpp"
#include "kernels/kinds.hpp"
#include "kernels/row_layout.hpp"

namespace train::kernels {

/// Frequencies given by a table instead of theta, for at most `kMostPairs` pairs.
struct RopeFrequencies {
  static constexpr std::size_t kMostPairs = 128;
  bool given = false;
  std::array<float, kMostPairs> values = {};  ///< Radians per position.
};

/// Fills cos and sin, each [seq_len, head_dim / 2]: angle(t, i) = t * theta^(-2i / head_dim). Su et
/// al. 2021. Computed in double, stored as float. With given frequencies the angle is a product of
/// two floats rounded to float, as in the reference programs for such weights.
struct RopeTableParams {
  float* cos = nullptr;
  float* sin = nullptr;
  std::int64_t seq_len = 0, head_dim = 0;
  double theta = 10000.0;
  RopeFrequencies frequencies = {};
  float factor = 1.0F;  ///< Multiplies cosine and sine.
};

/// Rotates in place, pairs by `pairing`: y0 = x0 cos - x1 sin, y1 = x0 sin + x1 cos; `inverse`
/// rotates back (the gradient). Row (token, head) as in RowLayout; position = token % seq_len, or
/// positions[token] if given. Only the first `head_dim` elements of a row are rotated.
struct RopeParams {
  void* x = nullptr;
  const float* cos = nullptr;
  const float* sin = nullptr;
  const std::int32_t* positions = nullptr;  ///< [tokens], less than the rows of the tables.
  std::int64_t tokens = 0, seq_len = 0, heads = 0, head_dim = 0;
  RowLayout layout;
  RopePairing pairing = RopePairing::interleaved;
  bool inverse = false;
  DType dtype = DType::f32;
};

}  // namespace train::kernels
