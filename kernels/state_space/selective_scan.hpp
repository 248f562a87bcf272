#pragma once

#include <cstdint>

#include "kernels/dtype.hpp"
#include "kernels/state_space/documents.hpp"

namespace train::kernels {

/// Most states of a channel of the selective scan; published models have 16.
inline constexpr std::int64_t kMostScanStates = 128;
/// Rows between the states that a forward pass keeps, counted from a document's begin.
inline constexpr std::int64_t kScanChunk = 32;
/// Channels whose sums are taken together in the backward pass.
inline constexpr std::int64_t kScanChannels = 64;

/// Floats of SelectiveScanForwardParams::kept. Two rows whose states are kept are kScanChunk rows
/// apart at least, in one document or two, so row t has place t / kScanChunk.
[[nodiscard]] constexpr std::int64_t scan_kept(std::int64_t rows, std::int64_t channels,
                                               std::int64_t states) {
  return divide_up(rows, kScanChunk) * channels * states;
}
/// Floats of SelectiveScanBackwardParams::partial.
[[nodiscard]] constexpr std::int64_t scan_partial(std::int64_t rows, std::int64_t channels,
                                                  std::int64_t states) {
  return divide_up(channels, kScanChannels) * rows * 2 * states;
}

/// Inputs of both passes of the scan. Row t of a matrix is at t times its stride.
struct ScanInputs {
  DocumentRows rows;
  const void* u = nullptr;            ///< [rows, channels].
  const void* delta = nullptr;        ///< [rows, channels], without delta_bias.
  const void* b = nullptr;            ///< [rows, states].
  const void* c = nullptr;            ///< [rows, states]; b's stride.
  const void* z = nullptr;            ///< [rows, channels]: the gate.
  const float* a_log = nullptr;       ///< [channels, states].
  const float* d = nullptr;           ///< [channels].
  const float* delta_bias = nullptr;  ///< [channels].
  std::int64_t channels = 0, states = 0;
  std::int64_t u_stride = 0, delta_stride = 0, b_stride = 0, z_stride = 0;
};

/// Selective scan of Mamba (Gu & Dao 2023, https://arxiv.org/abs/2312.00752) with its gate: in each
/// channel, with D = softplus(delta + delta_bias) and A = -exp(a_log),
///   h[t] = exp(D[t] A) h[t - 1] + (D[t] u[t]) b[t],  h = 0 before the document's first row,
///   y[t] = (sum over states of c[t] h[t] + d u[t]) silu(z[t]).
/// h and all sums are fp32; rows follow one another and states rise in a sum, so a row's bits
/// depend on its document's rows up to its own alone.
struct SelectiveScanForwardParams {
  ScanInputs in;
  void* y = nullptr;  ///< [rows, channels].
  std::int64_t y_stride = 0;
  float* kept = nullptr;   ///< scan_kept(): states for the backward pass; nullptr: none.
  TextStates states = {};  ///< [texts, states, channels] floats.
  DType dtype = DType::f32;
};

/// Gradients, from dy = gradient at y, by walking each document from its end: h is computed again
/// from the kept states. With G[t] = c[t] dv[t] + exp(D[t + 1] A) G[t + 1], dv = dy silu(z):
///   db = sum over channels of G D u, dc = sum over channels of dv h,
///   du = D sum of G b + d dv, dD = sum of G (A exp(D A) h[t - 1] + u b), da_log = A sum of G D
///   exp(D A) h[t - 1]. Sums over channels: 16 partial ones in each kScanChannels, folded, then
/// those in order. Sums over rows: of each document from its end, then of documents in order.
struct SelectiveScanBackwardParams {
  ScanInputs in;
  const float* kept = nullptr;
  void* y = nullptr;  ///< [rows, channels]: dy, overwritten by y.
  std::int64_t y_stride = 0;
  void* du = nullptr;            ///< [rows, channels], rows side by side.
  void* ddelta = nullptr;        ///< As delta, and may be it.
  void* dz = nullptr;            ///< As z, and may be it.
  void* db = nullptr;            ///< [rows, states], as b.
  void* dc = nullptr;            ///< As c.
  float* da_log = nullptr;       ///< [channels, states]; these three nullptr: not wanted.
  float* dd = nullptr;           ///< [channels].
  float* ddelta_bias = nullptr;  ///< [channels].
  float* partial = nullptr;      ///< scan_partial(): scratch.
  DType dtype = DType::f32;
};

}  // namespace train::kernels
