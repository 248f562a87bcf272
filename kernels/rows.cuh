#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/element.cuh"

// Elementwise kernels on strided rows: a thread has n neighbours of one row, and the row's number
// takes one division per block, not per thread.
namespace train::kernels::cuda {

template <int n, class Body>
__global__ void __launch_bounds__(kBlockThreads)
    rows_kernel(std::int64_t cols, unsigned blocks_of_row, Body body) {
  const unsigned row = blockIdx.x / blocks_of_row;
  const unsigned part = blockIdx.x - row * blocks_of_row;
  const std::int64_t column = static_cast<std::int64_t>(part * blockDim.x + threadIdx.x) * n;
  if (column < cols) {
    body.template run<n>(static_cast<std::int64_t>(row), column);
  }
}

/// Calls body.run<n>(row, column) for every n neighbours of [rows, cols] from `column` on; n is 1
/// if not all are `aligned`, or if n does not divide the rows.
template <int n, class Body>
void launch_rows(CudaStream& stream, std::int64_t rows, std::int64_t cols, bool aligned,
                 const Body& body) {
  const auto launch_by = [&]<int by>() {
    const std::int64_t items = divide_up(cols, by);
    const std::int64_t threads =
        std::min<std::int64_t>(divide_up(items, kWarpSize) * kWarpSize, kBlockThreads);
    const std::int64_t blocks_of_row = items == 0 ? 0 : divide_up(items, threads);
    launch(stream, rows_kernel<by, Body>,
           {.blocks = dim3(static_cast<unsigned>(rows * blocks_of_row)),
            .threads = dim3(static_cast<unsigned>(threads))},
           cols, static_cast<unsigned>(blocks_of_row), body);
  };
  if (aligned && cols % n == 0) {
    launch_by.template operator()<n>();
  } else {
    launch_by.template operator()<1>();
  }
}

/// True if every row with such strides begins at a whole vector when the first one does.
template <class T, class... Strides>
bool whole_strides(Strides... strides) {
  constexpr std::int64_t elements = kVectorBytes / sizeof(T);
  return ((strides % elements == 0) && ...);
}

}  // namespace train::kernels::cuda
