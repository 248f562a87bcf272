#include <algorithm>

#include "kernels/head/head_loss_products.hpp"
#include "kernels/head/log_probs.hpp"
#include "kernels/head/seen_logits.cuh"
#include "kernels/head/top_logits.cuh"
#include "kernels/kernel_list.hpp"
#include "kernels/launch.cuh"
#include "kernels/reduce.cuh"

namespace train::kernels::cuda {
namespace {

template <class T, class Value>
__device__ void put(T* to, std::int64_t row, Value value) {
  if (to != nullptr) {
    to[row] = static_cast<T>(value);
  }
}

/// Writes one value to all requested results.
__device__ void put_everywhere(const LogProbResults& results, std::int64_t row, float value) {
  put(results.log_probs, row, value);
  put(results.lse, row, value);
  put(results.argmax, row, -1);
  put(results.entropy, row, value);
  put(results.log_square_sum, row, value);
  put(results.top_lse, row, value);
  put(results.top_mean, row, value);
}

/// With e = exp(logit) / 2^shift, the sums of e^2 and of e (logit - largest), on all threads.
struct Moments {
  double squares = 0.0, shifted = 0.0;
};
template <class Row>
__device__ Moments moments_of_row(const Row& row, const SeenLogits& seen) {
  Moments moments;
  each_logit(row, [&](float logit) {
    const float e = exponential(logit, seen.shift);
    moments.squares += static_cast<double>(e * e);
    // -Inf times 0 counts as 0: the token is impossible.
    moments.shifted += e > 0.0F ? static_cast<double>(e * (logit - seen.largest)) : 0.0;
  });
  return {block_sum(moments.squares), block_sum(moments.shifted)};
}

/// log sum exp and mean of the `top` largest logits.
struct TopLogits {
  double lse = 0.0, mean = 0.0;
};
template <class Row>
__device__ TopLogits top_of_row(const Row& row, const SeenLogits& seen, std::int32_t top) {
  const Threshold threshold = threshold_of_row(row, top);
  const auto largest = static_cast<double>(seen.largest);
  double sum = 0.0;
  double shifted = 0.0;
  each_logit(row, [&](float logit) {
    if (ordered_bits(logit) > threshold.ordered) {
      sum += static_cast<double>(exponential(logit, seen.shift));
      shifted += static_cast<double>(logit) - largest;
    }
  });
  const float least = of_ordered_bits(threshold.ordered);
  const auto equal = static_cast<double>(threshold.equal);
  SeenLogits of_top = seen;
  of_top.sum = block_sum(sum) + equal * static_cast<double>(exponential(least, seen.shift));
  const double all = block_sum(shifted) + equal * (static_cast<double>(least) - largest);
  return {.lse = log_sum_exp(of_top), .mean = largest + all / static_cast<double>(top)};
}

/// One block per row. `first`: index of the first of these rows in the call.
template <bool aligned, bool shaped>
__global__ void __launch_bounds__(kMostThreads)
    log_prob_row_kernel(LogitsLogProbsParams p, std::int64_t first, DeviceFault* fault,
                        const char* name) {
  const std::int64_t place = blockIdx.x;
  const auto vocab = static_cast<int>(p.vocab);
  const int units = (vocab + kUnitColumns - 1) / kUnitColumns;
  const LogitRow<aligned, shaped> row{p.logits + place * p.vocab, vocab, units, units, nullptr,
                                      {p.logit_scale, p.softcap}};
  const bool with_target = p.targets != nullptr;
  const std::int32_t target = with_target ? p.targets[place] : 0;
  const bool writes = threadIdx.x == blockDim.x - 1;
  if (target < 0 || target >= vocab) {
    if (writes) {
      put_everywhere(p.results, place, target == -1 ? 0.0F : NAN);
      if (target != -1) {
        report_fault(fault, name, target, first + place, p.vocab);
      }
    }
    return;
  }
  const SeenLogits seen = fold_seen<shaped>(see_row(row));
  const double lse = log_sum_exp(seen);
  if (isnan(lse)) {
    if (writes) {
      put_everywhere(p.results, place, NAN);
    }
    return;
  }
  if (writes) {
    put(p.results.lse, place, lse);
    put(p.results.argmax, place, seen.index);
    if (with_target) {
      put(p.results.log_probs, place, static_cast<double>(row.at(target)) - lse);
    }
  }
  if (p.results.entropy != nullptr || p.results.log_square_sum != nullptr) {
    const Moments moments = moments_of_row(row, seen);
    if (writes) {
      const double beyond = lse - static_cast<double>(seen.largest);
      put(p.results.entropy, place, beyond - moments.shifted / seen.sum);
      put(p.results.log_square_sum, place, log(moments.squares) - 2.0 * log(seen.sum));
    }
  }
  if (p.results.top_lse != nullptr || p.results.top_mean != nullptr) {
    const auto top = static_cast<std::int32_t>(min(p.results.top_k, p.vocab));
    const TopLogits largest = top_of_row(row, seen, top);
    if (writes) {
      put(p.results.top_lse, place, largest.lse);
      put(p.results.top_mean, place, largest.mean);
    }
  }
}

void launch_rows(CudaStream& stream, const LogitsLogProbsParams& p, std::int64_t first,
                 const char* name) {
  const bool aligned = aligned_to_vectors(p.logits) && p.vocab * sizeof(float) % kVectorBytes == 0;
  const bool shaped = p.logit_scale != 1.0F || p.softcap != 0.0F;
  const auto kernel =
      aligned  ? shaped ? log_prob_row_kernel<true, true> : log_prob_row_kernel<true, false>
       : shaped ? log_prob_row_kernel<false, true>
               : log_prob_row_kernel<false, false>;
  const Grid grid{.blocks = dim3(static_cast<unsigned>(p.rows)),
                  .threads = dim3(static_cast<unsigned>(row_threads(p.vocab)))};
  launch(stream, kernel, grid, p, first, stream.fault(), name);
}

}  // namespace

void token_log_probs(CudaStream& stream, const TokenLogProbsParams& p) {
  for (std::int64_t first = 0; first < p.rows; first += p.chunk_rows) {
    const std::int64_t rows = std::min(p.chunk_rows, p.rows - first);
    matmul(stream, head_product(p, first, rows));
    launch_rows(stream, log_probs_of_rows(p, first, rows), first, "token_log_probs");
  }
}

void logits_log_probs(CudaStream& stream, const LogitsLogProbsParams& p) {
  launch_rows(stream, p, 0, "logits_log_probs");
}

}  // namespace train::kernels::cuda
