#include "engine/model/blocks/linear_products.hpp"

#include <utility>

#include "kernels/gemm/matmul.hpp"

namespace train::engine {

kernels::MatmulParams output_product(const LinearSizes& sizes, ConstElements x,
                                     ConstElements weight, Elements y, std::int64_t y_stride) {
  return {.a = x,
          .b = weight,
          .c = y,
          .m = sizes.rows,
          .n = sizes.outputs,
          .k = sizes.inputs,
          .lda = sizes.inputs,
          .ldb = sizes.transposed ? sizes.outputs : sizes.inputs,
          .ldc = y_stride,
          .transpose_b = !sizes.transposed,
          .dtype = x.dtype,
          .output_dtype = y.dtype};
}

kernels::MatmulParams input_product(const LinearSizes& sizes, ConstElements dy,
                                    std::int64_t dy_stride, ConstElements weight, Elements dx) {
  return {.a = dy,
          .b = weight,
          .c = dx,
          .m = sizes.rows,
          .n = sizes.inputs,
          .k = sizes.outputs,
          .lda = dy_stride,
          .ldb = sizes.transposed ? sizes.outputs : sizes.inputs,
          .ldc = sizes.inputs,
          .transpose_b = sizes.transposed,
          .dtype = dy.dtype,
          .output_dtype = dx.dtype};
}

kernels::MatmulParams weight_product(const LinearSizes& sizes, ConstElements dy,
                                     std::int64_t dy_stride, ConstElements x, float* gradient) {
  kernels::MatmulParams product{.a = dy,
                                .b = x,
                                .c = gradient,
                                .m = sizes.outputs,
                                .n = sizes.inputs,
                                .k = sizes.rows,
                                .lda = dy_stride,
                                .ldb = sizes.inputs,
                                .ldc = sizes.inputs,
                                .transpose_a = true,
                                .dtype = x.dtype};
  if (sizes.transposed) {
    std::swap(product.a, product.b);
    std::swap(product.m, product.n);
    std::swap(product.lda, product.ldb);
    product.ldc = sizes.outputs;
  }
  return product;
}

}  // namespace train::engine
