#pragma once

#include "kernels/gemm/matmul.hpp"

namespace train::kernels::cpu {

/// The product that `matmul` enqueues, run at once on the caller's thread and `threads` - 1 more.
/// For kernels that are made of products.
void gemm(int threads, const MatmulParams& params);

}  // namespace train::kernels::cpu
