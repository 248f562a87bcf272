#include "kernels/element.cuh"
#include "kernels/embedding.hpp"
#include "kernels/fault.cuh"

namespace train::kernels::cuda {
namespace {

/// A row whose id is outside the vocabulary becomes NaN: it reaches the loss, which poisons the
/// update, and the host reads of it at the next host work.
template <class T>
__global__ void __launch_bounds__(block_threads)
    embedding_forward_kernel(EmbeddingForwardParams p, DeviceFault* fault, const char* name) {
  const std::int64_t row = blockIdx.x;
  const std::int32_t token = p.tokens[row];
  const bool known = token >= 0 && token < p.vocab;
  if (!known && threadIdx.x == 0) {
    report_fault(fault, name, token, row, p.vocab);
  }
  const T* from = static_cast<const T*>(p.weight) + (known ? token * p.cols : 0);
  T* to = static_cast<T*>(p.out) + row * p.cols;
  for (std::int64_t c = threadIdx.x; c < p.cols; c += blockDim.x) {
    set_value(to[c], known ? value_of(from[c]) : NAN);
  }
}

/// One block for each position and each slice of columns. The block of a token's first position
/// sums all of its rows, in the order of positions; the others leave. So no sums meet.
template <class T>
__global__ void __launch_bounds__(block_threads)
    embedding_backward_kernel(EmbeddingBackwardParams p, DeviceFault* fault, const char* name) {
  __shared__ unsigned same[block_threads / warp_size];  // Bits: which positions have the token.
  const std::int64_t position = blockIdx.x;
  const int me = static_cast<int>(threadIdx.x);
  const std::int32_t token = p.tokens[position];
  if (token < 0 || token >= p.vocab) {
    if (me == 0 && blockIdx.y == 0) {
      report_fault(fault, name, token, position, p.vocab);
    }
    return;
  }
  for (std::int64_t first = 0; first < position; first += block_threads) {
    const std::int64_t i = first + me;
    if (__syncthreads_or(i < position && p.tokens[i] == token) != 0) {
      return;
    }
  }
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * block_threads + me;
  const bool mine = column < p.cols;
  float sum = mine ? p.dweight[token * p.cols + column] : 0.0F;
  for (std::int64_t first = position; first < p.rows; first += block_threads) {
    const std::int64_t i = first + me;
    const unsigned bits = __ballot_sync(all_lanes, i < p.rows && p.tokens[i] == token);
    if (me % warp_size == 0) {
      same[me / warp_size] = bits;
    }
    __syncthreads();
    for (int word = 0; word < block_threads / warp_size; ++word) {
      for (unsigned rest = same[word]; rest != 0; rest &= rest - 1) {
        const std::int64_t row = first + word * warp_size + __ffs(static_cast<int>(rest)) - 1;
        if (mine) {
          sum += load<T>(p.dout, row * p.cols + column);
        }
      }
    }
    __syncthreads();
  }
  if (mine) {
    p.dweight[token * p.cols + column] = sum;
  }
}

}  // namespace

void embedding_forward(Stream& stream, const EmbeddingForwardParams& params) {
  submit(stream, params, [](CudaStream& native, const EmbeddingForwardParams& p) {
    for_element_type(p.dtype, [&]<class T>() {
      launch(native, embedding_forward_kernel<T>, {.blocks = blocks_of(p.rows, 1)}, p,
             native.fault(), "embedding_forward");
    });
  });
}

void embedding_backward(Stream& stream, const EmbeddingBackwardParams& params) {
  submit(stream, params, [](CudaStream& native, const EmbeddingBackwardParams& p) {
    if (!p.accumulate && p.vocab * p.cols > 0) {
      TRAIN_CUDA_CHECK(cudaMemsetAsync(p.dweight, 0,
                                       static_cast<std::size_t>(p.vocab * p.cols) * sizeof(float),
                                       native.native()));
    }
    const Grid grid{.blocks = dim3(static_cast<unsigned>(p.rows),
                                   static_cast<unsigned>(divide_up(p.cols, block_threads)))};
    for_element_type(p.dtype, [&]<class T>() {
      launch(native, embedding_backward_kernel<T>, grid, p, native.fault(), "embedding_backward");
    });
  });
}

}  // namespace train::kernels::cuda
