#include "kernels/checks.hpp"
#include "kernels/gemm/matmul.hpp"

namespace train::kernels {

void check_params(const MatmulParams& params) {
  TRAIN_CHECK(params.m >= 0 && params.n >= 0 && params.k >= 0, "matmul: m={} n={} k={}", params.m,
              params.n, params.k);
  require_pointers("matmul", params.m * params.n * params.k, params.a, params.b);
  require_pointers("matmul", params.m * params.n, params.c);
  TRAIN_CHECK(params.lda >= (params.transpose_a ? params.m : params.k), "matmul: lda={} m={} k={}",
              params.lda, params.m, params.k);
  TRAIN_CHECK(params.ldb >= (params.transpose_b ? params.k : params.n), "matmul: ldb={} k={} n={}",
              params.ldb, params.k, params.n);
  TRAIN_CHECK(params.ldc >= params.n, "matmul: ldc={} n={}", params.ldc, params.n);
}

}  // namespace train::kernels
