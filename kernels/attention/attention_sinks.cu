#include "kernels/attention/attention.hpp"
#include "kernels/reduce.cuh"

namespace train::kernels::cuda {
namespace {

/// One block per head. A thread adds every kBlockThreads-th row of a sequence, then the block folds
/// the threads' sums: an order that the shape fixes.
__global__ void __launch_bounds__(kBlockThreads)
    attention_sinks_kernel(AttentionSinksBackwardParams p) {
  __shared__ float folded[kBlockThreads];
  const int me = static_cast<int>(threadIdx.x);
  const std::int64_t head = blockIdx.x;
  const float sink = p.sinks[head];
  float gradient = 0.0F;
  for (std::int64_t sequence = 0; sequence < p.sequences; ++sequence) {
    const std::int64_t first = (sequence * p.heads + head) * p.seq_len;
    float sum = 0.0F;
    for (std::int64_t row = first + me; row < first + p.seq_len; row += kBlockThreads) {
      sum = fmaf(expf(sink - p.lse[row]), p.delta[row], sum);
    }
    folded[me] = sum;
    fold_block(folded, kBlockThreads, Add());
    gradient -= folded[0];
    __syncthreads();  // All threads have read it.
  }
  if (me == 0) {
    p.dsinks[head] = gradient;
  }
}

}  // namespace

void attention_sinks_backward(CudaStream& stream, const AttentionSinksBackwardParams& p) {
  launch(stream, attention_sinks_kernel, {.blocks = blocks_of(p.heads, 1)}, p);
}

}  // namespace train::kernels::cuda
