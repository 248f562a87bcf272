#include <algorithm>

#include "kernels/element.cuh"
#include "kernels/fault.cuh"
#include "kernels/gemm_cuda.hpp"
#include "kernels/head_loss_products.hpp"
#include "kernels/reduce.cuh"

namespace train::kernels::cuda {
namespace {

constexpr int terms_per_row = 4;  // Cross-entropy, lse^2, correct, has a target.

/// A logit and where it is.
struct Largest {
  float value;
  std::int32_t index;
};

/// The larger one, the first of equals. NaN loses.
struct KeepLargest {
  __device__ Largest operator()(const Largest& left, const Largest& right) const {
    const bool first =
        left.value > right.value || (left.value == right.value && left.index < right.index);
    return first || isnan(right.value) ? left : right;
  }
};

/// What the threads of a block have found in their logits, folded over the block.
__device__ Largest largest_of_row(const float* logits, std::int64_t vocab) {
  __shared__ Largest found[block_threads];
  Largest mine{-INFINITY, INT32_MAX};
  for (std::int64_t i = threadIdx.x; i < vocab; i += block_threads) {
    mine = KeepLargest()(mine, {logits[i], static_cast<std::int32_t>(i)});
  }
  found[threadIdx.x] = mine;
  fold_block(found, block_threads, KeepLargest());
  return found[0];
}

/// Sum of exp(logit - largest), in double. A logit that is NaN or +Inf makes it NaN.
__device__ double sum_of_exponentials(const float* logits, std::int64_t vocab, float largest) {
  __shared__ double sums[block_threads];
  double sum = 0.0;
  for (std::int64_t i = threadIdx.x; i < vocab; i += block_threads) {
    sum += static_cast<double>(expf(logits[i] - largest));
  }
  sums[threadIdx.x] = sum;
  fold_block(sums, block_threads, Add());
  return sums[0];
}

/// Loss terms of one row of logits, a block for each row; with `gradient` the logits become
///   softmax * ((target >= 0 ? loss_scale : 0) + 2 z_scale lse) - loss_scale * onehot(target)
/// as elements of T, from the begin of the logits' row.
template <class T>
__global__ void __launch_bounds__(block_threads)
    loss_row_kernel(HeadLossParams p, std::int64_t first, bool gradient, DeviceFault* fault,
                    const char* name) {
  const std::int64_t row = first + blockIdx.x;
  float* logits = static_cast<float*>(p.logits) + static_cast<std::int64_t>(blockIdx.x) * p.vocab;
  const std::int32_t target = p.targets[row];
  const bool known = target >= -1 && target < p.vocab;
  const bool has_target = known && target >= 0;
  const float chosen = has_target ? logits[target] : 0.0F;
  const Largest largest = largest_of_row(logits, p.vocab);
  const double sum = sum_of_exponentials(logits, p.vocab, largest.value);
  const double lse = static_cast<double>(largest.value) + log(sum);
  if (threadIdx.x == 0) {
    double* terms = p.row_terms + row * terms_per_row;
    terms[0] = has_target ? lse - static_cast<double>(chosen) : 0.0;
    terms[1] = lse * lse;
    terms[2] = has_target && largest.index == target ? 1.0 : 0.0;
    terms[3] = has_target ? 1.0 : 0.0;
    if (!known) {
      terms[0] = NAN;  // Poisons the update before the host has read of it.
      report_fault(fault, name, target, row, p.vocab);
    }
  }
  if (!gradient) {
    return;
  }
  const double loss_scale = has_target ? static_cast<double>(p.loss_scale) : 0.0;
  const auto factor =
      static_cast<float>((loss_scale + 2.0 * static_cast<double>(p.z_scale) * lse) / sum);
  for (std::int64_t first_column = 0; first_column < p.vocab; first_column += block_threads) {
    const std::int64_t i = first_column + threadIdx.x;
    const float logit = i < p.vocab ? logits[i] : 0.0F;
    if constexpr (sizeof(T) < sizeof(float)) {
      __syncthreads();  // Smaller ones take the place of logits that other threads read.
    }
    const float scaled = factor * expf(logit - largest.value);
    if (i < p.vocab) {
      store<T>(logits, i, has_target && i == target ? scaled - p.loss_scale : scaled);
    }
  }
}

/// The rows' terms in one order: thread t has every block_threads-th row, then a tree.
__global__ void __launch_bounds__(block_threads) loss_sums_kernel(HeadLossParams p) {
  __shared__ double sums[block_threads];
  double result[terms_per_row];
  for (int term = 0; term < terms_per_row; ++term) {
    double sum = 0.0;
    for (std::int64_t row = threadIdx.x; row < p.rows; row += block_threads) {
      sum += p.row_terms[row * terms_per_row + term];
    }
    sums[threadIdx.x] = sum;
    fold_block(sums, block_threads, Add());
    result[term] = sums[0];
    __syncthreads();  // All have read it.
  }
  if (threadIdx.x == 0) {
    p.sums->cross_entropy = result[0];
    p.sums->z_squared = result[1];
    p.sums->correct = result[2];
    p.sums->targets = result[3];
  }
}

void launch_chunk(CudaStream& stream, const HeadLossParams& p, std::int64_t first,
                  std::int64_t rows) {
  const HeadLossProducts products{p, first, rows};
  const bool gradient = p.dx != nullptr;
  gemm(stream, products.logits());
  for_element_type(p.dtype, [&]<class T>() {
    launch(stream, loss_row_kernel<T>, {.blocks = dim3(static_cast<unsigned>(rows))}, p, first,
           gradient, stream.fault(), "head_loss");
  });
  if (gradient) {
    gemm(stream, products.input_gradient());
    gemm(stream, products.weight_gradient());
  }
}

void run_head_loss(CudaStream& stream, const HeadLossParams& p) {
  for (std::int64_t first = 0; first < p.rows; first += p.chunk_rows) {
    launch_chunk(stream, p, first, std::min(p.chunk_rows, p.rows - first));
  }
  if (p.dx != nullptr && p.rows == 0) {
    TRAIN_CUDA_CHECK(cudaMemsetAsync(
        p.dweight, 0, static_cast<std::size_t>(p.vocab * p.cols) * sizeof(float), stream.native()));
  }
  launch(stream, loss_sums_kernel, {.blocks = dim3(1)}, p);
}

}  // namespace

void head_loss(Stream& stream, const HeadLossParams& params) {
  submit(stream, params, run_head_loss);
}

}  // namespace train::kernels::cuda
