#pragma once

#include <cstdint>
#include <limits>

#include "kernels/dtype.hpp"
#include "kernels/state_space/documents.hpp"

namespace train::kernels {

/// Most states of a head's channel, and most channels of a head; published
/// models have up to 256 and 128.
inline constexpr std::int64_t kMostHeadStates = 256;
inline constexpr std::int64_t kMostHeadWidth = 256;
/// Rows between the states that a forward pass keeps, counted from a document's
/// begin.
inline constexpr std::int64_t kHeadChunk = 128;
/// Rows that the backward pass takes together, counted from a document's begin: on the CPU their
/// products, on a device their states; divides kHeadChunk.
inline constexpr std::int64_t kHeadPiece = 32;

/// Inputs of both passes of the scan of heads. Row t of a matrix is at t times
/// its stride.
struct HeadScanInputs {
  DocumentRows rows;
  const void* x = nullptr;       ///< [rows, heads, width].
  const void* b = nullptr;       ///< [rows, groups, states]; x's stride, as c.
  const void* c = nullptr;       ///< [rows, groups, states].
  const void* delta = nullptr;   ///< [rows, heads], without delta_bias.
  const float* a_log = nullptr;  ///< [heads]; so these three.
  const float* d = nullptr;
  const float* delta_bias = nullptr;
  std::int64_t heads = 0, groups = 1, width = 0, states = 0;
  std::int64_t x_stride = 0, delta_stride = 0;
  float least_step = 0.0F;  ///< Limits of a step.
  float most_step = std::numeric_limits<float>::infinity();

  [[nodiscard]] constexpr std::int64_t state_size() const { return heads * width * states; }
};

/// Floats of HeadScanForwardParams::kept: row t has place t / kHeadChunk, as
/// scan_kept() says.
[[nodiscard]] constexpr std::int64_t head_scan_kept(std::int64_t rows, std::int64_t state_size) {
  return divide_up(rows, kHeadChunk) * state_size;
}
/// Floats of HeadScanBackwardParams::partial.
[[nodiscard]] constexpr std::int64_t head_scan_partial(std::int64_t rows, std::int64_t heads,
                                                       std::int64_t states) {
  return heads * rows * 2 * states;
}

/// Scan of Mamba-2 (Dao & Gu 2024, https://arxiv.org/abs/2405.21060), whose
/// states decay by one rate in all of a head: with D = softplus(delta +
/// delta_bias) within its limits and A = -exp(a_log), for each channel p and
/// state n of a head
///   S[t] = exp(D[t] A) S[t - 1] + (D[t] x[t, p]) b[t, n],  S = 0 before the
///   document's first row, y[t, p] = sum over n of c[t, n] S[t] + d x[t, p].
/// Heads of a group read its b and c. Rows follow one another, as a text's next
/// rows do: there are no products of chunks, whose sums have another order. A
/// sum over states is 16 partial ones, folded. S is fp32.
struct HeadScanForwardParams {
  HeadScanInputs in;
  void* y = nullptr;  ///< [rows, heads, width].
  std::int64_t y_stride = 0;
  float* kept = nullptr;   ///< head_scan_kept(): states for the backward pass;
                           ///< nullptr: none.
  TextStates states = {};  ///< [texts, heads, width, states] floats.
  DType dtype = DType::f32;
};

/// Gradients, from dy = gradient at y, by walking each document from its end:
/// with G[t] = c[t] dy[t] + exp(D[t + 1] A) G[t + 1] and X = D x
///   dc = sum over p of dy S, db = sum over p of G X, dX = sum over n of G b,
///   dx = D dX + d dy, dD = sum over p of x dX + A exp(D A) sum of G S[t - 1],
///   0 beyond the limits.
/// db and dc are sums over the heads of a group in order; sums over rows are of
/// each document from its end, then of documents in order. The CPU takes
/// kHeadPiece rows at a time, as products of matrices (state space duality) with
/// the states before them and G behind them.
struct HeadScanBackwardParams {
  HeadScanInputs in;
  const float* kept = nullptr;
  const void* dy = nullptr;  ///< [rows, heads, width].
  std::int64_t y_stride = 0;
  void* dx = nullptr;  ///< [rows, heads, width], dx_stride apart, as db and dc are.
  void* db = nullptr;
  void* dc = nullptr;
  std::int64_t dx_stride = 0;
  void* ddelta = nullptr;        ///< As delta, and may be it.
  float* da_log = nullptr;       ///< [heads]; each of these three nullptr: not wanted.
  float* dd = nullptr;           ///< [heads].
  float* ddelta_bias = nullptr;  ///< [heads].
  float* partial = nullptr;      ///< head_scan_partial(): scratch.
  DType dtype = DType::f32;
};

}  // namespace train::kernels
