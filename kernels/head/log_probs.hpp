#pragma once

#include <cstdint>

#include "kernels/dtype.hpp"

namespace train::kernels {

/// Results for each row of logits z, p = softmax(z): [rows] each, nullptr if not wanted. A skipped
/// row gets 0 everywhere and argmax -1; a row with non-finite logits gets NaN everywhere and argmax
/// -1 (-Inf beside a finite logit is fine: an impossible token).
struct LogProbResults {
  float* log_probs = nullptr;       ///< log p[target].
  float* lse = nullptr;             ///< log sum exp z.
  std::int32_t* argmax = nullptr;   ///< First index of the largest logit.
  float* entropy = nullptr;         ///< -sum p log p.
  float* log_square_sum = nullptr;  ///< log sum p^2 = lse(2 z) - 2 lse(z).
  float* top_lse = nullptr;   ///< lse of the top_k largest logits; their p = exp(z - top_lse).
  float* top_mean = nullptr;  ///< Mean of the top_k largest logits.
  std::int64_t top_k = 0;     ///< All if there are fewer.
};

/// Log-probabilities of given tokens, from existing logits. On the CPU a row's log-probability is
/// bitwise the negative of head_loss's cross-entropy (rounded from double), whatever the other
/// rows, their number, the row's index, and head_loss's chunks.
struct LogitsLogProbsParams {
  /// [rows, vocab], read only. Raw products of the head; z is computed from them as in head_loss,
  /// with logit_scale and softcap.
  const float* logits = nullptr;
  /// [rows], -1 (skip the row) or in [0, vocab); nullptr: no log_probs are wanted and no row is
  /// skipped.
  const std::int32_t* targets = nullptr;
  LogProbResults results = {};
  std::int64_t rows = 0, vocab = 0;
  float logit_scale = 1.0F;
  float softcap = 0.0F;
};

/// Log-probabilities from the head's input: logits = x weight^T exist for `chunk_rows` rows at a
/// time. First pass of an objective that computes from them the row weights of head_loss, the
/// second pass. On the CPU the bits depend on neither chunk_rows nor threads, as a product's
/// element has the same bits for any number of rows.
struct TokenLogProbsParams {
  const void* x = nullptr;                ///< [rows, cols].
  const void* weight = nullptr;           ///< [vocab, cols].
  const std::int32_t* targets = nullptr;  ///< [rows], as above.
  LogProbResults results = {};
  float* logits = nullptr;  ///< Scratch [chunk_rows, vocab].
  std::int64_t rows = 0, cols = 0, vocab = 0, chunk_rows = 0;
  float logit_scale = 1.0F;
  float softcap = 0.0F;
  DType dtype = DType::f32;  ///< Type of x and weight.
};

}  // namespace train::kernels
