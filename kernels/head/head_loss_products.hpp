#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/gemm/matmul.hpp"
#include "kernels/head/head_loss.hpp"
#include "kernels/head/log_probs.hpp"

namespace train::kernels {

/// Rows [first, first + rows) of x.
template <class Params>
[[nodiscard]] const void* head_input(const Params& params, std::int64_t first) {
  return static_cast<const std::byte*>(params.x) +
         static_cast<std::size_t>(first * params.cols) * size_of(params.dtype);
}

/// Product logits[rows, vocab] = x weight^T of rows [first, first + rows), for both passes over the
/// head.
template <class Params>
[[nodiscard]] MatmulParams head_product(const Params& params, std::int64_t first,
                                        std::int64_t rows) {
  return {.a = head_input(params, first),
          .b = params.weight,
          .c = params.logits,
          .m = rows,
          .n = params.vocab,
          .k = params.cols,
          .lda = params.cols,
          .ldb = params.cols,
          .ldc = params.vocab,
          .transpose_b = true,
          .dtype = params.dtype};
}

/// Params of the log-probabilities of rows [first, first + rows), whose products exist.
[[nodiscard]] inline LogitsLogProbsParams log_probs_of_rows(const TokenLogProbsParams& params,
                                                            std::int64_t first, std::int64_t rows) {
  const auto from_first = [&](auto* values) { return values == nullptr ? values : values + first; };
  const LogProbResults& all = params.results;
  return {.logits = params.logits,
          .targets = from_first(params.targets),
          .results = {.log_probs = from_first(all.log_probs),
                      .lse = from_first(all.lse),
                      .argmax = from_first(all.argmax),
                      .entropy = from_first(all.entropy),
                      .log_square_sum = from_first(all.log_square_sum),
                      .top_lse = from_first(all.top_lse),
                      .top_mean = from_first(all.top_mean),
                      .top_k = all.top_k},
          .rows = rows,
          .vocab = params.vocab,
          .logit_scale = params.logit_scale,
          .softcap = params.softcap};
}

/// Remaining products of the head for rows [first, first + rows), the same on every device.
struct HeadLossProducts {
  const HeadLossParams& params;
  std::int64_t first = 0;
  std::int64_t rows = 0;

  /// Product reference_logits[rows, vocab] of RowLoss::divergence.
  [[nodiscard]] MatmulParams reference() const {
    MatmulParams product = head_product(params, first, rows);
    product.a = static_cast<const std::byte*>(params.reference_x) + input_offset();
    product.c = params.reference_logits;
    return product;
  }
  /// Product dx[rows, cols] = dlogits weight; dlogits overwrite the logits, each row at its row's
  /// begin.
  [[nodiscard]] MatmulParams input_gradient() const {
    return {.a = params.logits,
            .b = params.weight,
            .c = static_cast<std::byte*>(params.dx) + input_offset(),
            .m = rows,
            .n = params.cols,
            .k = params.vocab,
            .lda = gradient_stride(),
            .ldb = params.cols,
            .ldc = params.cols,
            .dtype = params.dtype,
            .output_dtype = params.dtype};
  }
  /// Product dweight[vocab, cols] (+)= dlogits^T x; the first chunk overwrites.
  [[nodiscard]] MatmulParams weight_gradient() const {
    return {.a = params.logits,
            .b = head_input(params, first),
            .c = params.dweight,
            .m = params.vocab,
            .n = params.cols,
            .k = rows,
            .lda = gradient_stride(),
            .ldb = params.cols,
            .ldc = params.cols,
            .transpose_a = true,
            .accumulate = first > 0,
            .dtype = params.dtype};
  }

 private:
  [[nodiscard]] std::size_t input_offset() const {
    return static_cast<std::size_t>(first * params.cols) * size_of(params.dtype);
  }
  /// Elements between rows of dlogits; twice the logits' row stride if dlogits are half as wide.
  [[nodiscard]] std::int64_t gradient_stride() const {
    return params.vocab * static_cast<std::int64_t>(sizeof(float) / size_of(params.dtype));
  }
};

}  // namespace train::kernels
