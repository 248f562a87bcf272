#pragma once

#include "kernels/activation/activation.hpp"
#include "kernels/gemm/gemm_grid.hpp"
#include "kernels/gemm/matmul.hpp"
#include "kernels/kernel_list.hpp"

namespace train::kernels {

/// The GELU of a whole product that is finished, by the kernels of the CPU (`where`: threads) or of
/// CUDA (a stream), as `forward` and `backward` call them.
template <class Forward, class Backward>
void gelu_after_product(const MatmulParams& p, const Forward& forward, const Backward& backward) {
  const std::int64_t count = p.m * p.n;
  if (p.gelu == ProductGelu::forward) {
    forward(GeluForwardParams{.x = p.c, .y = p.partner, .count = count, .dtype = p.output_dtype});
  } else if (p.gelu == ProductGelu::backward) {
    backward(GeluBackwardParams{.x = p.partner,
                                .dy = p.c,
                                .dx = p.partner,
                                .y = p.c,
                                .count = count,
                                .dtype = p.output_dtype});
  }
}

namespace cpu {

/// The GELU of a rectangle of C whose elements are finished; nothing without one. At once, on the
/// caller's thread.
void gelu_of_piece(const MatmulParams& p, const Piece& piece);

/// That of the whole product, where it was not done on the way.
inline void gelu_of_product(const MatmulParams& p, int threads) {
  gelu_after_product(
      p, [&](const GeluForwardParams& params) { gelu_forward(params, threads); },
      [&](const GeluBackwardParams& params) { gelu_backward(params, threads); });
}

}  // namespace cpu

namespace cuda {

/// A kernel after the product.
inline void gelu_of_product(CudaStream& stream, const MatmulParams& p) {
  gelu_after_product(
      p, [&](const GeluForwardParams& params) { gelu_forward(stream, params); },
      [&](const GeluBackwardParams& params) { gelu_backward(stream, params); });
}

}  // namespace cuda
}  // namespace train::kernels
