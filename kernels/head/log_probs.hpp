#pragma once

#include <cstdint>

#include "kernels/device/stream.hpp"
#include "kernels/dtype.hpp"

namespace train::kernels {

/// What is known of each row of logits z, p = softmax(z): [rows] each, nullptr where it is not
/// asked for. A row that is left out has 0 everywhere and argmax -1; one whose logits are not
/// finite has NaN everywhere and argmax -1 (-Inf beside a finite logit is fine: a token that cannot
/// be).
struct LogProbResults {
  float* log_probs = nullptr;       ///< log p[target].
  float* lse = nullptr;             ///< log sum exp z.
  std::int32_t* argmax = nullptr;   ///< The first of the largest.
  float* entropy = nullptr;         ///< -sum p log p.
  float* log_square_sum = nullptr;  ///< log sum p^2 = lse(2 z) - 2 lse(z).
  float* top_lse = nullptr;         ///< lse of the top_k largest; of them all p = exp(this - lse).
  float* top_mean = nullptr;        ///< Mean of the top_k largest logits.
  std::int64_t top_k = 0;           ///< All where there are fewer.
};

/// Log-probabilities of chosen tokens, from logits that exist. On the CPU the log-probability of a
/// row is the negative of the cross-entropy that head_loss computes for it (rounded from double),
/// to the bit: whatever the other rows, their number, the row's place among them, and head_loss's
/// chunks are.
struct LogitsLogProbsParams {
  /// [rows, vocab], not written. Products of the head as they are: z is made of them as head_loss
  /// does it, by logit_scale and softcap.
  const float* logits = nullptr;
  /// [rows], -1 (the row is left out) or in [0, vocab); nullptr: log_probs are not asked for, and
  /// no row is left out.
  const std::int32_t* targets = nullptr;
  LogProbResults results = {};
  std::int64_t rows = 0, vocab = 0;
  float logit_scale = 1.0F;
  float softcap = 0.0F;
};

/// The same from what the head reads: its logits = x weight^T exist for `chunk_rows` rows at a
/// time. An objective's first pass: log-probabilities of all rows, from which it makes the row
/// weights of head_loss, the second one. The bits depend on neither chunk_rows nor the threads on
/// the CPU, where a product's element has the same bits in a product of any number of rows.
struct TokenLogProbsParams {
  const void* x = nullptr;                ///< [rows, cols].
  const void* weight = nullptr;           ///< [vocab, cols].
  const std::int32_t* targets = nullptr;  ///< [rows], as above.
  LogProbResults results = {};
  float* logits = nullptr;  ///< Scratch [chunk_rows, vocab].
  std::int64_t rows = 0, cols = 0, vocab = 0, chunk_rows = 0;
  float logit_scale = 1.0F;
  float softcap = 0.0F;
  DType dtype = DType::f32;  ///< Of x and weight.
};

}  // namespace train::kernels
