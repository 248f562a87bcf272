#include "kernels/state_space/gated_norm.hpp"

#include <algorithm>

#include "kernels/cpu_support.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/state_space/gated_norm_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// silu(z) and its slope.
struct Gate {
  FloatVec value, slope;
};

HWY_INLINE Gate gate_at(Floats d, FloatVec z) {
  const FloatVec s = sigmoid(d, z);
  const FloatVec value = hn::Mul(z, s);
  return {value, hn::MulAdd(value, hn::Sub(hn::Set(d, 1.0F), s), s)};
}

void gated_norm_row(const GatedNormForwardParams& p, std::int64_t row) {
  const auto* y = static_cast<const float*>(p.y) + row * p.y_stride;
  const auto* z = static_cast<const float*>(p.z) + row * p.z_stride;
  const auto* weight = static_cast<const float*>(p.weight);
  auto* out = static_cast<float*>(p.out) + row * p.cols;
  const std::int64_t cols = p.cols / p.groups;
  const Floats d;
  for (std::int64_t group = 0; group < p.groups; ++group) {
    const std::int64_t first = group * cols;
    Floats16 squares(0.0F);
    each_sixteen(0, cols, [&](std::int64_t i, auto part, auto which) {
      const FloatVec u =
          hn::Mul(load(d, y + first + i, part), gate_at(d, load(d, z + first + i, part)).value);
      store(u, d, out + first + i, part);
      const FloatVec counted = counted_or(u, hn::Zero(d), d, part);
      squares[which] = hn::MulAdd(counted, counted, squares[which]);
    });
    const FloatVec mean = hn::Set(d, sum_of(squares) / static_cast<float>(cols));
    const FloatVec rstd = hn::Div(hn::Set(d, 1.0F), hn::Sqrt(hn::Add(mean, hn::Set(d, p.eps))));
    p.rstd[row * p.groups + group] = hn::GetLane(rstd);
    each_vector(first, first + cols, [&](std::int64_t i, auto part) {
      const FloatVec normed = hn::Mul(load(d, out + i, part), rstd);
      store(hn::Mul(normed, load(d, weight + i, part)), d, out + i, part);
    });
  }
}

/// One row; adds to dweight.
HWY_INLINE void gated_norm_row_back(const GatedNormBackwardParams& p, std::int64_t row,
                                    float* dweight) {
  const auto* y = static_cast<const float*>(p.y) + row * p.y_stride;
  const auto* z = static_cast<const float*>(p.z) + row * p.z_stride;
  const auto* weight = static_cast<const float*>(p.weight);
  auto* out = static_cast<float*>(p.out) + row * p.cols;
  auto* dy = static_cast<float*>(p.dy) + row * p.y_stride;
  auto* dz = static_cast<float*>(p.dz) + row * p.z_stride;
  const std::int64_t cols = p.cols / p.groups;
  const Floats d;
  for (std::int64_t group = 0; group < p.groups; ++group) {
    const std::int64_t first = group * cols;
    const FloatVec rstd = hn::Set(d, p.rstd[row * p.groups + group]);
    Floats16 sums(0.0F);
    each_sixteen(first, first + cols, [&](std::int64_t i, auto part, auto which) {
      const FloatVec u = hn::Mul(load(d, y + i, part), gate_at(d, load(d, z + i, part)).value);
      const FloatVec normed = hn::Mul(u, rstd);
      const FloatVec dout = load(d, out + i, part);
      const FloatVec weighted = hn::Mul(dout, load(d, weight + i, part));
      sums[which] = counted_or(hn::MulAdd(weighted, normed, sums[which]), sums[which], d, part);
      store(hn::MulAdd(dout, normed, load(d, dweight + i, part)), d, dweight + i, part);
    });
    const FloatVec mean = hn::Set(d, sum_of(sums) / static_cast<float>(cols));
    each_vector(first, first + cols, [&](std::int64_t i, auto part) {
      const FloatVec value = load(d, y + i, part);
      const Gate gate = gate_at(d, load(d, z + i, part));
      const FloatVec normed = hn::Mul(hn::Mul(value, gate.value), rstd);
      const FloatVec w = load(d, weight + i, part);
      const FloatVec weighted = hn::Mul(load(d, out + i, part), w);
      const FloatVec du = hn::Mul(rstd, hn::NegMulAdd(normed, mean, weighted));
      store(hn::Mul(normed, w), d, out + i, part);
      store(hn::Mul(du, gate.value), d, dy + i, part);
      store(hn::Mul(hn::Mul(du, value), gate.slope), d, dz + i, part);
    });
  }
}

void gated_norm_rows_back(const GatedNormBackwardParams& p, float* dweight, std::int64_t begin,
                          std::int64_t end) {
  std::fill_n(dweight, p.cols, 0.0F);
  for (std::int64_t row = begin; row < end; ++row) {
    gated_norm_row_back(p, row, dweight);
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(gated_norm_row);
HWY_EXPORT(gated_norm_rows_back);

void gated_norm_forward(const GatedNormForwardParams& p, int threads) {
  const auto one = HWY_DYNAMIC_DISPATCH(gated_norm_row);
  each_row(threads, p.rows, p.cols, [&](std::int64_t row) { one(p, row); });
}

void gated_norm_backward(const GatedNormBackwardParams& p, int threads) {
  static thread_local Scratch scratch;
  constexpr std::int64_t most_blocks = 64;
  constexpr std::int64_t least_rows = 16;
  const std::int64_t block = std::max(least_rows, divide_up(p.rows, most_blocks));
  const std::int64_t blocks = divide_up(p.rows, block);
  auto* partial = scratch.get<float>(blocks * p.cols);
  const auto rows_of = HWY_DYNAMIC_DISPATCH(gated_norm_rows_back);
  parallel_blocks(threads, p.rows, block, [&](std::int64_t begin, std::int64_t end) {
    rows_of(p, partial + begin / block * p.cols, begin, end);
  });
  if (p.dweight != nullptr) {
    add_blocks(partial, blocks, p.cols, p.dweight);
  }
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
