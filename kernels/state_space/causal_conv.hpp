#pragma once

#include <cstdint>

#include "kernels/dtype.hpp"
#include "kernels/state_space/documents.hpp"

namespace train::kernels {

/// Most taps of a causal convolution; published models have 3 or 4.
inline constexpr std::int64_t kMostTaps = 8;
/// Channels whose sums over rows are taken together in the backward pass.
inline constexpr std::int64_t kConvChannels = 64;

/// Causal convolution of each channel along a document's rows (Gu & Dao 2023,
/// https://arxiv.org/abs/2312.00752), and its activation:
///   v[t] = bias + sum over j < taps of weight[j] x[t - taps + 1 + j],  y = v or silu(v).
/// Terms before the document are absent. j rises in the sum, so a row's bits depend on the last
/// `taps` rows of its document alone, and a text's next row, whose earlier ones are in its state,
/// has them too.
struct CausalConvForwardParams {
  DocumentRows rows;
  const void* x = nullptr;       ///< Row t at t * x_stride.
  const void* weight = nullptr;  ///< [channels, taps].
  const void* bias = nullptr;    ///< [channels]; nullptr: none.
  void* y = nullptr;             ///< Row t at t * y_stride; not x.
  std::int64_t channels = 0, taps = 0;
  std::int64_t x_stride = 0, y_stride = 0;
  bool silu = true;
  /// [texts, taps - 1, channels] of the elements' type: the row at position p is at p % (taps - 1).
  TextStates states = {};
  DType dtype = DType::f32;
};

/// dx = gradient at x; dweight and dbias are overwritten by sums over all rows: of each document
/// from its last row to its first, then of documents in order. All but `rows` and the gradients as
/// in the forward pass.
struct CausalConvBackwardParams {
  DocumentRows rows;
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;
  const void* dy = nullptr;  ///< Row t at t * y_stride.
  void* dx = nullptr;        ///< Row t at t * dx_stride; may be x, if the strides are equal.
  float* dweight = nullptr;  ///< [channels, taps]; nullptr: not wanted.
  float* dbias = nullptr;    ///< [channels]; nullptr: not wanted.
  std::int64_t channels = 0, taps = 0;
  std::int64_t x_stride = 0, y_stride = 0, dx_stride = 0;
  bool silu = true;
  DType dtype = DType::f32;
};

}  // namespace train::kernels
