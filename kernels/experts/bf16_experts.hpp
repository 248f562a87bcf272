#pragma once

#include "kernels/cpu_support.hpp"

namespace train::kernels {

struct ExpertMatmulParams;

}  // namespace train::kernels

namespace train::kernels::cpu {

/// expert_matmul() with the products of cpu_bf16_backend(). REQUIRES: has_bf16_products().
void expert_matmul_bf16(const ExpertMatmulParams& p, int threads);

}  // namespace train::kernels::cpu
