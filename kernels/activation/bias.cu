#include "kernels/activation/bias.hpp"

#include "kernels/element.cuh"
#include "kernels/launch.cuh"

namespace train::kernels::cuda {
namespace {

template <class T>
struct BiasAddEach {
  BiasAddParams p;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t row = i / p.cols;
    const std::int64_t column = i - row * p.cols;
    const std::int64_t at = row * p.stride + column;
    const float bias = load<T>(p.bias, row % p.period * p.cols + column);
    store<T>(p.y, at, load<T>(p.y, at) + bias);
  }
};

/// One element of dbias: the blocks of its rows in order, each summed by itself.
template <class T>
struct BiasGradientEach {
  BiasGradientParams p;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t t = i / p.cols;
    const std::int64_t column = i - t * p.cols;
    constexpr std::int64_t block = BiasGradientParams::block;
    float total = 0.0F;
    for (std::int64_t first = t; first < p.rows; first += block * p.period) {
      float sum = 0.0F;
      for (std::int64_t k = 0; k < block; ++k) {
        const std::int64_t row = first + k * p.period;
        if (row < p.rows) {
          sum += load<T>(p.dy, row * p.stride + column);
        }
      }
      total += sum;
    }
    p.dbias[i] = total;
  }
};

}  // namespace

void bias_add(CudaStream& stream, const BiasAddParams& p) {
  for_element_type(p.dtype,
                   [&]<class T>() { launch_each(stream, p.rows * p.cols, BiasAddEach<T>{p}); });
}

void bias_gradient(CudaStream& stream, const BiasGradientParams& p) {
  for_element_type(
      p.dtype, [&]<class T>() { launch_each(stream, p.period * p.cols, BiasGradientEach<T>{p}); });
}

}  // namespace train::kernels::cuda
