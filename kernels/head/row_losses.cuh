#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/head/head_loss.hpp"
#include "kernels/head/seen_logits.cuh"
#include "kernels/head/top_logits.cuh"

// Rows of logits with another loss than cross-entropy (RowLoss), one block per row. All threads get
// the row's loss; the gradients overwrite the logits.
namespace train::kernels::cuda {

using ProductRow = LogitRow</*aligned=*/false, /*shaped=*/true>;

__device__ inline ProductRow product_row(const HeadLossParams& p, const float* products) {
  const auto vocab = static_cast<int>(p.vocab);
  const int units = (vocab + kUnitColumns - 1) / kUnitColumns;
  return {products, vocab, units, units, nullptr, {p.logit_scale, p.softcap}};
}

/// Overwrites the logits by gradient(column), as elements of T from the row's begin. For smaller T
/// they overwrite logits of the same or earlier columns, so all threads have read theirs before any
/// is written.
template <class T, class Gradient>
__device__ void replace_logits(float* logits, int vocab, const Gradient& gradient) {
  for (int first = 0; first < vocab; first += static_cast<int>(blockDim.x)) {
    const int column = first + static_cast<int>(threadIdx.x);
    const float value = column < vocab ? gradient(column) : 0.0F;
    __syncthreads();
    if (column < vocab) {
      store<T>(logits, column, value);
    }
  }
}

/// RowLoss::divergence of a row; all threads have `own`. `scale`: factor of the loss in the
/// gradient.
template <class T>
__device__ double divergence_of_row(const HeadLossParams& p, float* logits, const float* reference,
                                    const SeenLogits& own, float scale) {
  const ProductRow row = product_row(p, logits);
  const ProductRow expected = product_row(p, reference);
  __syncthreads();  // All threads have read the previous fold.
  const SeenLogits of_reference = fold_seen<true>(see_row(expected));
  double above = 0.0;
  for (int column = static_cast<int>(threadIdx.x); column < row.vocab;
       column += static_cast<int>(blockDim.x)) {
    const float logit = expected.at(column);
    const float e = exponential(logit, of_reference.shift);
    // An impossible token has -Inf in both.
    above += e > 0.0F ? static_cast<double>(e) *
                            (static_cast<double>(logit) - static_cast<double>(row.at(column)))
                      : 0.0;
  }
  above = block_sum(above);
  if (p.dx != nullptr) {
    const float factor = scale / static_cast<float>(own.sum);
    const float of_expected = scale / static_cast<float>(of_reference.sum);
    replace_logits<T>(logits, row.vocab, [&](int column) {
      const float logit = row.at(column);
      // Both products are rounded, so for equal rows the difference is 0.
      const float value =
          __fmul_rn(factor, exponential(logit, own.shift)) -
          __fmul_rn(of_expected, exponential(expected.at(column), of_reference.shift));
      return row.shape.slope(logit) * value;
    });
  }
  return above / of_reference.sum + (log_sum_exp(own) - log_sum_exp(of_reference));
}

/// Column up to which logits equal to the threshold count among the largest (the first ones do).
/// All threads get it.
__device__ inline int last_of_equals(const ProductRow& row, const Threshold& threshold) {
  __shared__ int last;
  double equal = 0.0;
  each_logit(row,
             [&](float logit) { equal += ordered_bits(logit) == threshold.ordered ? 1.0 : 0.0; });
  if (block_sum(equal) == static_cast<double>(threshold.equal)) {
    return row.vocab;  // Nearly always the case.
  }
  if (threadIdx.x == 0) {
    int column = -1;
    for (int left = threshold.equal; left > 0;) {
      left -= ordered_bits(row.at(++column)) == threshold.ordered ? 1 : 0;
    }
    last = column;
  }
  __syncthreads();
  return last;
}

/// RowLoss::top_entropy of a row; as above.
template <class T>
__device__ double top_entropy_of_row(const HeadLossParams& p, float* logits, const SeenLogits& seen,
                                     float scale) {
  const ProductRow row = product_row(p, logits);
  if (const double lse = log_sum_exp(seen); isnan(lse)) {
    if (p.dx != nullptr) {
      replace_logits<T>(logits, row.vocab, [](int) { return NAN; });
    }
    return lse;
  }
  const auto top = static_cast<std::int32_t>(min(p.top_k, p.vocab));
  const Threshold threshold = threshold_of_row(row, top);
  const float least = of_ordered_bits(threshold.ordered);
  const auto equal = static_cast<double>(threshold.equal);
  const auto largest = static_cast<double>(seen.largest);
  double sum = 0.0;
  double shifted = 0.0;
  each_logit(row, [&](float logit) {
    if (ordered_bits(logit) > threshold.ordered) {
      sum += static_cast<double>(exponential(logit, seen.shift));
      shifted += static_cast<double>(logit) - largest;
    }
  });
  SeenLogits of_top = seen;
  of_top.sum = block_sum(sum) + equal * static_cast<double>(exponential(least, seen.shift));
  const double below = block_sum(shifted) + equal * (static_cast<double>(least) - largest);
  if (p.dx != nullptr) {
    const int last = last_of_equals(row, threshold);
    const float factor = scale / static_cast<float>(of_top.sum);
    const float uniform = scale / static_cast<float>(top);
    replace_logits<T>(logits, row.vocab, [&](int column) {
      const float logit = row.at(column);
      const std::uint32_t bits = ordered_bits(logit);
      const bool chosen = bits > threshold.ordered || (bits == threshold.ordered && column <= last);
      return chosen ? row.shape.slope(logit) * (factor * exponential(logit, seen.shift) - uniform)
                    : 0.0F;
    });
  }
  return log_sum_exp(of_top) - (largest + below / static_cast<double>(top));
}

}  // namespace train::kernels::cuda
