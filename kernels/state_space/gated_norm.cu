#include "kernels/element.cuh"
#include "kernels/launch.cuh"
#include "kernels/reduce.cuh"
#include "kernels/state_space/gated_norm.hpp"
#include "kernels/state_space/gates.cuh"

// A plain form: a block has a group of a row. Nothing of it has run on a
// device.
namespace train::kernels::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kBlockThreads) gated_norm_kernel(GatedNormForwardParams p) {
  __shared__ float folded[kBlockThreads];
  const std::int64_t row = blockIdx.x;
  const std::int64_t cols = p.cols / p.groups;
  const std::int64_t first = std::int64_t{blockIdx.y} * cols;
  const auto gated = [&](std::int64_t i) {
    const float z = load<T>(p.z, row * p.z_stride + first + i);
    return load<T>(p.y, row * p.y_stride + first + i) * (z * sigmoid_of(z));
  };
  float squares = 0.0F;
  for (std::int64_t i = threadIdx.x; i < cols; i += kBlockThreads) {
    const float u = gated(i);
    squares = fmaf(u, u, squares);
  }
  folded[threadIdx.x] = squares;
  fold_block(folded, kBlockThreads, Add());
  const float rstd = 1.0F / sqrtf(folded[0] / static_cast<float>(cols) + p.eps);
  if (threadIdx.x == 0) {
    p.rstd[row * p.groups + blockIdx.y] = rstd;
  }
  for (std::int64_t i = threadIdx.x; i < cols; i += kBlockThreads) {
    store<T>(p.out, row * p.cols + first + i, gated(i) * rstd * load<T>(p.weight, first + i));
  }
}

/// Sums of dout times the normalised values, by columns: a thread has one, of
/// all rows in order.
template <class T>
struct WeightSums {
  GatedNormBackwardParams p;

  __device__ void operator()(std::int64_t c) const {
    const std::int64_t group = c / (p.cols / p.groups);
    float sum = 0.0F;
    for (std::int64_t row = 0; row < p.rows; ++row) {
      const float z = load<T>(p.z, row * p.z_stride + c);
      const float u = load<T>(p.y, row * p.y_stride + c) * (z * sigmoid_of(z));
      sum = fmaf(load<T>(p.out, row * p.cols + c), u * p.rstd[row * p.groups + group], sum);
    }
    p.dweight[c] = sum;
  }
};

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    gated_norm_backward_kernel(GatedNormBackwardParams p) {
  __shared__ float folded[kBlockThreads];
  const std::int64_t row = blockIdx.x;
  const std::int64_t cols = p.cols / p.groups;
  const std::int64_t first = std::int64_t{blockIdx.y} * cols;
  const float rstd = p.rstd[row * p.groups + blockIdx.y];
  float sum = 0.0F;
  for (std::int64_t i = first + threadIdx.x; i < first + cols; i += kBlockThreads) {
    const float z = load<T>(p.z, row * p.z_stride + i);
    const float normed = load<T>(p.y, row * p.y_stride + i) * (z * sigmoid_of(z)) * rstd;
    sum = fmaf(load<T>(p.out, row * p.cols + i) * load<T>(p.weight, i), normed, sum);
  }
  folded[threadIdx.x] = sum;
  fold_block(folded, kBlockThreads, Add());
  const float mean = folded[0] / static_cast<float>(cols);
  for (std::int64_t i = first + threadIdx.x; i < first + cols; i += kBlockThreads) {
    const float y = load<T>(p.y, row * p.y_stride + i);
    const float z = load<T>(p.z, row * p.z_stride + i);
    const float open = sigmoid_of(z);
    const float gate = z * open;
    const float normed = y * gate * rstd;
    const float weight = load<T>(p.weight, i);
    const float weighted = load<T>(p.out, row * p.cols + i) * weight;
    const float du = rstd * fmaf(-normed, mean, weighted);
    store<T>(p.out, row * p.cols + i, normed * weight);
    store<T>(p.dy, row * p.y_stride + i, du * gate);
    store<T>(p.dz, row * p.z_stride + i, du * y * fmaf(gate, 1.0F - open, open));
  }
}

template <class Params>
Grid grid_of(const Params& p) {
  return {.blocks = dim3(static_cast<unsigned>(p.rows), static_cast<unsigned>(p.groups))};
}

}  // namespace

void gated_norm_forward(CudaStream& stream, const GatedNormForwardParams& p) {
  for_element_type(p.dtype,
                   [&]<class T>() { launch(stream, gated_norm_kernel<T>, grid_of(p), p); });
}

void gated_norm_backward(CudaStream& stream, const GatedNormBackwardParams& p) {
  for_element_type(p.dtype, [&]<class T>() {
    if (p.dweight != nullptr) {  // Before the gradients take the places of what they read.
      launch_each(stream, p.cols, WeightSums<T>{p});
    }
    launch(stream, gated_norm_backward_kernel<T>, grid_of(p), p);
  });
}

}  // namespace train::kernels::cuda
