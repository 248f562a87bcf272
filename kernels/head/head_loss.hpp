#pragma once

#include <cstdint>

#include "kernels/device/stream.hpp"
#include "kernels/dtype.hpp"

namespace train::kernels {

/// Sums over the rows of one lane, in double, in an order that their number decides.
struct LossSums {
  double cross_entropy = 0.0;  ///< Sum of -log softmax(logits)[target] over rows with target >= 0.
  double z_squared = 0.0;      ///< Sum of logsumexp(logits)^2 over all rows.
  double correct = 0.0;        ///< Rows whose largest logit is the target (first one on ties).
  double targets = 0.0;        ///< Rows with target >= 0.
};

/// Fused LM head + cross-entropy + z-loss: logits = x weight^T exist for `chunk_rows` rows at a
/// time.
///   loss = loss_scale * sum CE + z_scale * sum lse^2
/// With dx != nullptr also the gradients of that loss: dx [rows, cols] and dweight [vocab, cols],
/// both overwritten. A row with target -1 has no cross-entropy (but its z term, as the reference
/// has). The bits depend on chunk_rows (dweight is summed chunk by chunk), never on the threads.
struct HeadLossParams {
  const void* x = nullptr;                ///< [rows, cols].
  const void* weight = nullptr;           ///< [vocab, cols].
  const std::int32_t* targets = nullptr;  ///< [rows], -1 or in [0, vocab).
  LossSums* sums = nullptr;               ///< One, overwritten.
  void* dx = nullptr;
  float* dweight = nullptr;
  float* logits = nullptr;      ///< Scratch [chunk_rows, vocab].
  double* row_terms = nullptr;  ///< Scratch [rows, 4].
  std::int64_t rows = 0, cols = 0, vocab = 0, chunk_rows = 0;
  float loss_scale = 1.0F;
  float z_scale = 0.0F;
  float softcap = 0.0F;  ///< Logits are c tanh(logit / c); 0: as they are. Not on CUDA.
  DType dtype = DType::f32;
};

}  // namespace train::kernels
