#include "kernels/activation/clamp.hpp"
#include "kernels/rows.cuh"

namespace train::kernels::cuda {
namespace {

template <class T>
struct ClampForwardRows {
  ClampForwardParams p;
  template <int n>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    Several<T, n> x(p.x, row * p.x_stride + column);
#pragma unroll
    for (int j = 0; j < n; ++j) {  // NaN is neither above nor below.
      x.value[j] = x.value[j] > p.bound ? p.bound : x.value[j] < -p.bound ? -p.bound : x.value[j];
    }
    x.store(p.y, row * p.y_stride + column);
  }
};

template <class T>
struct ClampBackwardRows {
  ClampBackwardParams p;
  template <int n>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    const std::int64_t at = row * p.dy_stride + column;
    const Several<T, n> x(p.x, row * p.x_stride + column);
    Several<T, n> gradient(p.dy, at);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const bool inside = x.value[j] > -p.bound && x.value[j] < p.bound;
      gradient.value[j] = inside ? gradient.value[j] : 0.0F;
    }
    gradient.store(p.dx, at);
  }
};

}  // namespace

void clamp_forward(CudaStream& stream, const ClampForwardParams& p) {
  for_element_type(p.dtype, [&]<class T>() {
    const bool aligned = aligned_to_vectors(p.x, p.y) && whole_strides<T>(p.x_stride, p.y_stride);
    launch_rows<kVectorBytes / sizeof(T)>(stream, p.rows, p.cols, aligned, ClampForwardRows<T>{p});
  });
}

void clamp_backward(CudaStream& stream, const ClampBackwardParams& p) {
  for_element_type(p.dtype, [&]<class T>() {
    const bool aligned =
        aligned_to_vectors(p.x, p.dy, p.dx) && whole_strides<T>(p.x_stride, p.dy_stride);
    launch_rows<kVectorBytes / sizeof(T)>(stream, p.rows, p.cols, aligned, ClampBackwardRows<T>{p});
  });
}

}  // namespace train::kernels::cuda
