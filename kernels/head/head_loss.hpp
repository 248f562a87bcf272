#pragma once

#include <cstdint>

#include "kernels/dtype.hpp"
#include "kernels/head/loss_sums.hpp"
#include "kernels/kinds.hpp"

namespace train::kernels {

/// Fused LM head + cross-entropy + z-loss: logits = x weight^T exist for `chunk_rows` rows at a
/// time; z = softcap tanh(logit_scale logits / softcap), or logit_scale logits without a cap.
///   loss = loss_scale * sum w CE + z_scale * sum lse(z)^2, over the rows with a target
///   CE = lse(z) - (1 - e) z[target] - e mean(z), e the label smoothing (Szegedy et al. 2016)
///   d loss / d z = loss_scale w (p - (1 - e) onehot(target) - e / vocab) + 2 z_scale lse p
/// With another RowLoss its loss is in the place of CE, with loss_scale w (p - p0), or among the
/// top_k largest loss_scale w (their softmax - 1 / top_k); z_scale and e are 0. A reference with
/// the bits of x has a divergence of 0 and no gradient, exactly. With dx != nullptr also the
/// gradients of that loss: dx [rows, cols] and, unless it is nullptr, dweight [vocab, cols], both
/// overwritten. A row with target -1 has no loss and a gradient of 0, whatever its logits are.
/// Weights may be 0 or negative: an objective's second pass, which has made them of token_log_probs
/// (log_probs.hpp). The bits depend on chunk_rows (dweight is summed chunk by chunk), never on the
/// threads.
struct HeadLossParams {
  /// Terms of a row: weighted loss, lse^2, correct, 1; zeros without a target.
  static constexpr std::int64_t kTermsPerRow = 4;

  const void* x = nullptr;                ///< [rows, cols].
  const void* weight = nullptr;           ///< [vocab, cols].
  const std::int32_t* targets = nullptr;  ///< [rows], -1 or in [0, vocab).
  const float* row_weights = nullptr;     ///< w, [rows]; nullptr: 1.
  LossSums* sums = nullptr;               ///< One, overwritten.
  void* dx = nullptr;
  float* dweight = nullptr;
  float* logits = nullptr;      ///< Scratch [chunk_rows, vocab].
  double* row_terms = nullptr;  ///< Scratch [rows, kTermsPerRow], then the terms of every row.
  std::int64_t rows = 0, cols = 0, vocab = 0, chunk_rows = 0;
  float loss_scale = 1.0F;
  float z_scale = 0.0F;
  float label_smoothing = 0.0F;  ///< In [0, 1].
  float logit_scale = 1.0F;      ///< Positive.
  float softcap = 0.0F;          ///< 0: none.
  DType dtype = DType::f32;
  RowLoss row_loss = RowLoss::cross_entropy;
  const void* reference_x = nullptr;  ///< divergence: [rows, cols], as x.
  float* reference_logits = nullptr;  ///< divergence: scratch [chunk_rows, vocab].
  std::int64_t top_k = 0;             ///< top_entropy: 1 or more; all where there are fewer.

  [[nodiscard]] constexpr float row_weight(std::int64_t row) const {
    return row_weights == nullptr ? 1.0F : row_weights[row];
  }
};

}  // namespace train::kernels
