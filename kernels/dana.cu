#include "kernels/dana.hpp"
#include "kernels/launch.cuh"
#include "kernels/optimizer_factors.hpp"
#include "kernels/row_sum.cuh"

namespace train::kernels::cuda {
namespace {

/// The quantities of one element that the diagnostics sum up.
struct DanaTerms {
  float alpha, ratio, m;
};

struct DanaEach {
  DanaParams p;
  DanaFactors f;

  /// One element's update. REQUIRES: the gate is not poisoned.
  __device__ DanaTerms update(std::int64_t i) const {
    const float g = p.gate->grad_scale * p.g[i];
    const float old_m = p.m[i];
    const float m = fmaf(f.a, g - old_m, old_m);
    const float v = fmaf(f.one_minus_a, p.v[i], f.a * (g * g));
    const float s = sqrtf(v) + f.eps;
    p.m[i] = m;
    p.v[i] = v;
    float scale = 1.0F / s;  // n
    float share = 1.0F;      // R
    float growth = f.growth;
    if (p.tau != nullptr) {
      const float old_tau = p.tau[i];
      const float seen = fabsf(g) / (fabsf(g) + s);
      const float tau = fmaf(f.a, seen - old_tau, old_tau);
      p.tau[i] = tau;
      const float c = fminf(tau, 0.5F);
      share = fmaxf(c / (1.0F - c), f.floor);
      scale = sqrtf(share) / s;
      growth = expf(f.exponent * logf(fmaxf(tau * f.step, 1.0F)));
    }
    const float scaled_m = fabsf(m) * scale;
    const float ratio = p.tau != nullptr ? scaled_m / share : scaled_m;
    const float alpha = fminf(growth * ratio, f.clip);
    const float momentum = copysignf(fmaf(share, alpha, scaled_m), m);
    const float moved = fmaf(-f.lr, g * scale, p.p[i]);
    p.p[i] = fmaf(-f.lr_gamma_3, momentum, moved) * f.keep;
    return {alpha, ratio, m};
  }

  __device__ void operator()(std::int64_t i) const {
    if (p.gate->poisoned == 0) {
      update(i);
    }
  }
};

/// The update, a half warp for each row, with the row's sums in the CPU's order.
__global__ void __launch_bounds__(block_threads) dana_rows_kernel(DanaEach each) {
  const DanaParams& p = each.p;
  if (p.gate->poisoned != 0) {
    return;
  }
  const std::int64_t row = thread_index() / row_sum_lanes;
  const int lane = static_cast<int>(threadIdx.x) % row_sum_lanes;
  const bool inside = row < p.rows;
  double alpha = 0.0;
  double ratio = 0.0;
  double square = 0.0;
  for (std::int64_t c = lane; inside && c < p.cols; c += row_sum_lanes) {
    const DanaTerms terms = each.update(row * p.cols + c);
    alpha += static_cast<double>(terms.alpha);
    ratio += static_cast<double>(terms.ratio);
    square += static_cast<double>(terms.m) * static_cast<double>(terms.m);
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

void dana_update(Stream& stream, const DanaParams& params) {
  submit(stream, params, [](CudaStream& native, const DanaParams& p) {
    const DanaEach each{p, factors_of(p)};
    if (p.row_sums == nullptr) {
      launch_each(native, p.rows * p.cols, each);
      return;
    }
    launch(native, dana_rows_kernel, {.blocks = blocks_of(p.rows * row_sum_lanes, block_threads)},
           each);
  });
}

}  // namespace train::kernels::cuda
