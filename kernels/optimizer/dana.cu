#include "kernels/optimizer/dana.hpp"
#include "kernels/optimizer/optimizer_factors.hpp"
#include "kernels/optimizer/update_guard.hpp"
#include "kernels/reduce.cuh"
#include "kernels/tensors.cuh"

namespace train::kernels::cuda {
namespace {

/// Inputs and outputs of an element's update.
struct DanaElement {
  float p, g, m, v, tau;
};

/// Quantities of one element that the diagnostics sum.
struct DanaTerms {
  float alpha, ratio, m;
};

struct DanaEach {
  using Tensor = DanaParams::Tensor;
  const UpdateGuard* guard;
  DanaFactors f;

  static constexpr std::int64_t count(const Tensor& p) { return p.rows * p.cols; }
  static __device__ bool aligned(const Tensor& p) {
    return aligned_to_vectors(p.p, p.g, p.m, p.v, p.tau);
  }
  static __device__ DanaElement load(const Tensor& p, std::int64_t i) {
    return {p.p[i], p.g[i], p.m[i], p.v[i], p.tau != nullptr ? p.tau[i] : 0.0F};
  }
  static __device__ void store(const Tensor& p, std::int64_t i, const DanaElement& x) {
    p.p[i] = x.p;
    p.m[i] = x.m;
    p.v[i] = x.v;
    if (p.tau != nullptr) {
      p.tau[i] = x.tau;
    }
  }

  __device__ DanaTerms update(DanaElement& x, bool star, float grad_scale) const {
    const float g = grad_scale * x.g;
    x.m = fmaf(f.a, g - x.m, x.m);
    x.v = fmaf(f.one_minus_a, x.v, f.a * (g * g));
    const float s = sqrtf(x.v) + f.eps;
    float scale = 1.0F / s;  // n
    float share = 1.0F;      // R
    float growth = f.growth;
    if (star) {
      const float seen = fabsf(g) / (fabsf(g) + s);
      x.tau = fmaf(f.a, seen - x.tau, x.tau);
      const float c = fminf(x.tau, 0.5F);
      share = fmaxf(c / (1.0F - c), f.floor);
      scale = sqrtf(share) / s;
      growth = expf(f.exponent * logf(fmaxf(x.tau * f.step, 1.0F)));
    }
    const float scaled_m = fabsf(x.m) * scale;
    const float ratio = star ? scaled_m / share : scaled_m;
    const float alpha = fminf(growth * ratio, f.clip);
    const float momentum = copysignf(fmaf(share, alpha, scaled_m), x.m);
    const float moved = fmaf(-f.lr, g * scale, x.p);
    x.p = fmaf(-f.lr_gamma_3, momentum, moved) * f.keep;
    return {alpha, ratio, x.m};
  }

  template <int n>
  __device__ void run(const Tensor& p, std::int64_t i) const {
    if (guard->nonfinite != 0) {
      return;
    }
    const float grad_scale = guard->grad_scale;
    const Several<float, n> gradient(p.g, i);
    Several<float, n> weight(p.p, i);
    Several<float, n> first(p.m, i);
    Several<float, n> second(p.v, i);
    Several<float, n> tau;
    if (p.tau != nullptr) {
      tau = Several<float, n>(p.tau, i);
    }
#pragma unroll
    for (int j = 0; j < n; ++j) {
      DanaElement x{weight.value[j], gradient.value[j], first.value[j], second.value[j],
                    p.tau != nullptr ? tau.value[j] : 0.0F};
      update(x, p.tau != nullptr, grad_scale);
      weight.value[j] = x.p;
      first.value[j] = x.m;
      second.value[j] = x.v;
      tau.value[j] = x.tau;
    }
    weight.store(p.p, i);
    first.store(p.m, i);
    second.store(p.v, i);
    if (p.tau != nullptr) {
      tau.store(p.tau, i);
    }
  }
};

/// Rows of one tensor per block.
constexpr std::int64_t kBlockRows = kBlockThreads / kRowSumLanes;

/// Update by a half warp per row, with the row's sums in the CPU's order.
__global__ void __launch_bounds__(kBlockThreads)
    dana_rows_kernel(const __grid_constant__ TensorBatch<DanaParams::Tensor> batch,
                     const __grid_constant__ DanaEach each) {
  constexpr int at_once = 4;  // Elements in flight per thread.
  if (each.guard->nonfinite != 0) {
    return;
  }
  const float grad_scale = each.guard->grad_scale;
  std::int64_t first = 0;
  const DanaParams::Tensor& p = batch.of_block(first);
  const std::int64_t row =
      (blockIdx.x - first) * kBlockRows + static_cast<std::int64_t>(threadIdx.x) / kRowSumLanes;
  const int lane = static_cast<int>(threadIdx.x) % kRowSumLanes;
  const bool inside = row < p.rows;
  double alpha = 0.0;
  double ratio = 0.0;
  double square = 0.0;
  for (std::int64_t begin = lane; inside && begin < p.cols; begin += at_once * kRowSumLanes) {
    DanaElement x[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const std::int64_t c = begin + i * kRowSumLanes;
      if (c < p.cols) {
        x[i] = DanaEach::load(p, row * p.cols + c);
      }
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const std::int64_t c = begin + i * kRowSumLanes;
      if (c < p.cols) {
        const DanaTerms terms = each.update(x[i], p.tau != nullptr, grad_scale);
        DanaEach::store(p, row * p.cols + c, x[i]);
        alpha += static_cast<double>(terms.alpha);
        ratio += static_cast<double>(terms.ratio);
        square += static_cast<double>(terms.m) * static_cast<double>(terms.m);
      }
    }
  }
  alpha = fold_row_sum(alpha);
  ratio = fold_row_sum(ratio);
  square = fold_row_sum(square);
  if (inside && lane == 0) {
    DanaRowSums& sums = p.row_sums[row];
    sums.alpha = alpha;
    sums.ratio = ratio;
    sums.momentum_squared = square;
    sums.count = static_cast<double>(p.cols);
  }
}

}  // namespace

void dana_update(CudaStream& stream, const DanaParams& p) {
  const DanaEach each{p.guard, factors_of(p)};
  using Tensor = DanaParams::Tensor;
  std::vector<Tensor> with_sums;
  std::vector<Tensor> without_sums;
  for (const Tensor& tensor : p.tensors) {
    (tensor.row_sums == nullptr ? without_sums : with_sums).push_back(tensor);
  }
  each_batch(
      with_sums, [](const Tensor& tensor) { return divide_up(tensor.rows, kBlockRows); },
      [&](const TensorBatch<Tensor>& batch, const dim3& blocks) {
        launch(stream, dana_rows_kernel, {.blocks = blocks}, batch, each);
      });
  launch_tensors(stream, without_sums, each);
}

}  // namespace train::kernels::cuda
