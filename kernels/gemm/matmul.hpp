#pragma once

#include <cstdint>
#include <string>

#include "kernels/dtype.hpp"

namespace train::kernels {

/// C[m,n] = op(A) op(B) (+ C if accumulate), row-major; op(A) is [m,k], op(B) is [k,n].
/// lda, ldb, ldc: elements between the rows of A, B, C as stored (before op).
struct MatmulParams {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
  DType dtype = DType::f32;         ///< Type of A and B.
  DType output_dtype = DType::f32;  ///< Type of C; f32 for weight gradients.
};

namespace cuda {
/// Library and version that computes products ("cublaslt-13.0.2"). Throws DeviceError if it is
/// missing.
[[nodiscard]] std::string gemm_library();
}  // namespace cuda

}  // namespace train::kernels
