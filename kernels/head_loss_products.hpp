#pragma once

#include <cstdint>

#include "kernels/head_loss.hpp"
#include "kernels/matmul.hpp"

namespace train::kernels {

/// The products of rows [first, first + rows) of the head: what every device computes.
struct HeadLossProducts {
  const HeadLossParams& params;
  std::int64_t first = 0;
  std::int64_t rows = 0;

  /// logits[rows, vocab] = x weight^T.
  [[nodiscard]] MatmulParams logits() const {
    return {.a = x(),
            .b = params.weight,
            .c = params.logits,
            .m = rows,
            .n = params.vocab,
            .k = params.cols,
            .lda = params.cols,
            .ldb = params.cols,
            .ldc = params.vocab,
            .transpose_b = true};
  }
  /// dx[rows, cols] = dlogits weight; dlogits lie where the logits did.
  [[nodiscard]] MatmulParams input_gradient() const {
    return {.a = params.logits,
            .b = params.weight,
            .c = static_cast<float*>(params.dx) + first * params.cols,
            .m = rows,
            .n = params.cols,
            .k = params.vocab,
            .lda = params.vocab,
            .ldb = params.cols,
            .ldc = params.cols};
  }
  /// dweight[vocab, cols] (+)= dlogits^T x; the first rows begin it.
  [[nodiscard]] MatmulParams weight_gradient() const {
    return {.a = params.logits,
            .b = x(),
            .c = params.dweight,
            .m = params.vocab,
            .n = params.cols,
            .k = rows,
            .lda = params.vocab,
            .ldb = params.cols,
            .ldc = params.cols,
            .transpose_a = true,
            .accumulate = first > 0};
  }

 private:
  [[nodiscard]] const float* x() const {
    return static_cast<const float*>(params.x) + first * params.cols;
  }
};

}  // namespace train::kernels
