#include "kernels/activation/bias.hpp"

#include "kernels/embedding/row_sums.cuh"
#include "kernels/rows.cuh"

namespace train::kernels::cuda {
namespace {

template <class T>
struct BiasAddRows {
  BiasAddParams p;
  TableRows table;

  template <int n>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    const std::int64_t position = table.of(static_cast<std::uint32_t>(row));
    const std::int64_t at = row * p.stride + column;
    Several<T, n> y(p.y, at);
    const Several<T, n> bias(p.bias, max(position, std::int64_t{0}) * p.cols + column);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      y.value[j] += position < 0 ? NAN : bias.value[j];
    }
    y.store(p.y, at);
  }
};

/// Sums one block of rows that share a bias element, in order: row b * period + t of `sums` belongs
/// to block b of period position t.
template <class T>
struct BlockSums {
  BiasGradientParams p;
  float* sums;

  template <int n>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    constexpr int block = BiasGradientParams::kBlock;
    const auto period = static_cast<std::uint32_t>(p.period);
    const std::uint32_t b = static_cast<std::uint32_t>(row) / period;
    const std::int64_t first =
        std::int64_t{b} * block * p.period + (row - std::int64_t{b} * period);
    Several<float, n> sum = zeros<n>();
#pragma unroll 4
    for (int k = 0; k < block; ++k) {
      const std::int64_t from = first + k * p.period;
      if (from < p.rows) {
        const Several<T, n> dy(p.dy, from * p.stride + column);
#pragma unroll
        for (int j = 0; j < n; ++j) {
          sum.value[j] += dy.value[j];
        }
      }
    }
    sum.store(sums, row * p.cols + column);
  }
};

/// Adds the blocks' sums in order.
struct SumOfBlocks {
  const float* sums;
  float* dbias;
  std::int64_t blocks, period, cols;

  template <int n>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    Several<float, n> total = zeros<n>();
#pragma unroll 8
    for (std::int64_t b = 0; b < blocks; ++b) {
      const Several<float, n> sum(sums, (b * period + row) * cols + column);
#pragma unroll
      for (int j = 0; j < n; ++j) {
        total.value[j] += sum.value[j];
      }
    }
    total.store(dbias, row * cols + column);
  }
};

}  // namespace

void bias_add(CudaStream& stream, const BiasAddParams& p) {
  for_element_type(p.dtype, [&]<class T>() {
    const bool aligned = aligned_to_vectors(p.y, p.bias) && whole_strides<T>(p.stride);
    launch_rows<kVectorBytes / sizeof(T)>(
        stream, p.rows, p.cols, aligned,
        BiasAddRows<T>{p, {p.positions, p.period, stream.fault(), "bias_add"}});
  });
}

void bias_gradient(CudaStream& stream, const BiasGradientParams& p) {
  if (p.positions != nullptr) {
    sum_rows(stream,
             {.tokens = p.positions,
              .data = p.dy,
              .sums = p.dbias,
              .rows = p.rows,
              .cols = p.cols,
              .vocab = p.period,
              .stride = p.stride,
              .dtype = p.dtype},
             "bias_gradient", DeviceFault::Kind::position);
    return;
  }
  const std::int64_t blocks = divide_up(divide_up(p.rows, p.period), BiasGradientParams::kBlock);
  const std::int64_t count = blocks * p.period * p.cols;
  auto* sums =
      count == 0
          ? p.dbias
          : static_cast<float*>(stream.scratch(static_cast<std::size_t>(count) * sizeof(float)));
  for_element_type(p.dtype, [&]<class T>() {
    const bool aligned = aligned_to_vectors(p.dy, sums) && whole_strides<T>(p.stride);
    launch_rows<kVectorBytes / sizeof(T)>(stream, blocks * p.period, p.cols, aligned,
                                          BlockSums<T>{p, sums});
  });
  // One column per thread: four columns per thread would leave too few threads.
  launch_rows<1>(stream, p.period, p.cols, false,
                 SumOfBlocks{sums, p.dbias, blocks, p.period, p.cols});
}

}  // namespace train::kernels::cuda
