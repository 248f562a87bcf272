#include "kernels/head/row_distance.hpp"

#include "kernels/element.cuh"
#include "kernels/reduce.cuh"

namespace train::kernels::cuda {
namespace {

/// A half warp per row: column c goes to the sum of thread c % 16, as on the CPU.
template <class T>
__global__ void __launch_bounds__(kBlockThreads) row_distance_kernel(RowDistanceParams p) {
  const std::int64_t row = thread_index() / kRowSumLanes;
  const int lane = static_cast<int>(threadIdx.x) % kRowSumLanes;
  const bool inside = row < p.rows;
  const bool counts = inside && p.targets[row] >= 0;
  const std::int64_t first = row * p.cols;
  double sum = 0.0;
  for (std::int64_t c = lane; counts && c < p.cols; c += kRowSumLanes) {
    const double value = load<T>(p.x, first + c) - load<T>(p.reference, first + c);
    sum = fma(value, value, sum);  // The square of a float is exact in double.
  }
  const double distance = sqrt(warp_sum<kRowSumLanes>(sum));
  const double weight = counts ? static_cast<double>(p.row_weight(row)) : 0.0;
  const double factor =
      !counts || distance == 0.0 ? 0.0 : static_cast<double>(p.loss_scale) * weight / distance;
  for (std::int64_t c = lane; inside && c < p.cols; c += kRowSumLanes) {
    const float difference =
        counts ? load<T>(p.x, first + c) - load<T>(p.reference, first + c) : 0.0F;
    store<T>(p.reference, first + c, static_cast<float>(factor * static_cast<double>(difference)));
  }
  if (inside && lane == 0) {
    p.row_terms[row] = counts ? weight * distance : 0.0;
  }
}

/// Adds the rows' terms in one order: thread t has every blockDim.x-th row, then a tree.
__global__ void __launch_bounds__(kBlockThreads) distance_sums_kernel(RowDistanceParams p) {
  __shared__ double shared[3][kBlockThreads];
  const int me = static_cast<int>(threadIdx.x);
  double terms = 0.0;
  double targets = 0.0;
  double weights = 0.0;
  for (std::int64_t row = me; row < p.rows; row += kBlockThreads) {
    const bool counts = p.targets[row] >= 0;
    terms += p.row_terms[row];
    targets += counts ? 1.0 : 0.0;
    weights += counts ? static_cast<double>(p.row_weight(row)) : 0.0;
  }
  shared[0][me] = terms;
  shared[1][me] = targets;
  shared[2][me] = weights;
  for (double* values : {shared[0], shared[1], shared[2]}) {
    fold_block(values, kBlockThreads, Add());
  }
  if (me == 0) {
    const double before = p.add ? p.sums->cross_entropy : 0.0;
    p.sums->cross_entropy = p.share * shared[0][0] + before;
    p.sums->z_squared = 0.0;
    p.sums->correct = 0.0;
    p.sums->targets = shared[1][0];
    p.sums->weights = shared[2][0];
  }
}

}  // namespace

void row_distance(CudaStream& stream, const RowDistanceParams& p) {
  for_element_type(p.dtype, [&]<class T>() {
    launch(stream, row_distance_kernel<T>,
           {.blocks = blocks_of(p.rows * kRowSumLanes, kBlockThreads)}, p);
  });
  launch(stream, distance_sums_kernel, {.blocks = dim3(1)}, p);
}

}  // namespace train::kernels::cuda
