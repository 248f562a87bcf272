#include "kernels/norm/norm.hpp"

#include <algorithm>

#include "kernels/cpu_support.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm/norm_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/simd-inl.hpp"

#ifndef TRAIN_KERNELS_NORM_ROW
#define TRAIN_KERNELS_NORM_ROW
namespace train::kernels::cpu {

/// Rows whose statistics are computed together: their dependency chains overlap, and the rows are
/// still in L1 when they are normalised.
inline constexpr std::int64_t kNormBatch = 16;

/// Prefetch distance in elements, for reads and writes: other kernels have replaced the cache's
/// contents since, and the heads of a fused projection are not contiguous.
inline constexpr std::int64_t kFetchAhead = 512;

/// Iterates over the rows of a RowLayout without a division per row.
class RowWalk {
 public:
  RowWalk(std::int64_t row, std::int64_t inner)
      : inner_count_(inner), outer_(row / inner), inner_(row % inner) {}
  [[nodiscard]] std::int64_t outer() const { return outer_; }
  [[nodiscard]] std::int64_t offset(const RowLayout& layout) const {
    return outer_ * layout.outer_stride + inner_ * layout.inner_stride;
  }
  void next() {
    if (++inner_ == inner_count_) {
      inner_ = 0;
      ++outer_;
    }
  }

 private:
  std::int64_t inner_count_, outer_, inner_;
};

/// One row of the backward pass.
struct NormBackwardRow {
  const float* x;
  const float* weight;
  const float* dy;
  float* dx;
  float* dweight;  // Partial sum of this block, added to.
  float mean, rstd, dy_scale, gain_offset;
  bool layer, accumulate_dx;
  std::int64_t cols;
};

}  // namespace train::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// written: prefetch for writing instead of reading.
template <bool written = false>
HWY_INLINE void fetch_row(const float* row, std::int64_t cols) {
  constexpr std::int64_t line = 64 / sizeof(float);
  for (std::int64_t i = 0; i < cols; i += line) {
    __builtin_prefetch(row + i, written ? 1 : 0);
  }
}

/// Mean of the row (0 unless `centred`) and mean squared distance from it.
HWY_INLINE void moments_row(const float* x, std::int64_t cols, bool centred, float* mean,
                            float* square) {
  const Floats d;
  const auto n = static_cast<float>(cols);
  *mean = 0.0F;
  if (centred) {
    Floats16 sums(0.0F);
    each_sixteen(0, cols, [&](std::int64_t i, auto part, auto which) {
      sums[which] = hn::Add(sums[which], load(d, x + i, part));
    });
    *mean = sum_of(sums) / n;
  }
  const FloatVec centre = hn::Set(d, *mean);
  Floats16 squares(0.0F);
  each_sixteen(0, cols, [&](std::int64_t i, auto part, auto which) {
    const FloatVec distance =
        counted_or(hn::Sub(load(d, x + i, part), centre), hn::Zero(d), d, part);
    squares[which] = hn::MulAdd(distance, distance, squares[which]);
  });
  *square = sum_of(squares) / n;
}

/// Arithmetic of residual_add.
HWY_INLINE void add_branch_row(const NormResidual& residual, std::int64_t offset,
                               std::int64_t cols) {
  const Floats d;
  const FloatVec scale = hn::Set(d, residual.scale);
  const auto* base = static_cast<const float*>(residual.base);
  const auto* branch = static_cast<const float*>(residual.branch);
  auto* sum = static_cast<float*>(residual.sum);
  each_vector(offset, offset + cols, [&](std::int64_t i, auto part) {
    store(hn::MulAdd(scale, load(d, branch + i, part), load(d, base + i, part)), d, sum + i, part);
  });
}

HWY_INLINE void normalise_row(const float* x, const float* weight, float* y, std::int64_t cols,
                              float mean, float rstd, float gain_offset) {
  const Floats d;
  const FloatVec offset = hn::Set(d, gain_offset);
  each_vector(0, cols, [&](std::int64_t i, auto part) {
    const FloatVec xhat =
        hn::Mul(hn::Sub(load(d, x + i, part), hn::Set(d, mean)), hn::Set(d, rstd));
    store(hn::Mul(xhat, hn::Add(load(d, weight + i, part), offset)), d, y + i, part);
  });
}

/// With g = dy * w: dx = rstd * (g - mean(g) - xhat * mean(g xhat)); mean(g) is absent in the RMS
/// norm.
HWY_INLINE void norm_backward_row(const NormBackwardRow& r) {
  const Floats d;
  const FloatVec scale = hn::Set(d, r.dy_scale);
  const FloatVec mean = hn::Set(d, r.mean);
  const FloatVec rstd = hn::Set(d, r.rstd);
  const FloatVec offset = hn::Set(d, r.gain_offset);
  Floats16 g_sum(0.0F);
  Floats16 gx_sum(0.0F);
  each_sixteen(0, r.cols, [&](std::int64_t i, auto part, auto which) {
    const FloatVec xhat = hn::Mul(hn::Sub(load(d, r.x + i, part), mean), rstd);
    const FloatVec dy = hn::Mul(scale, load(d, r.dy + i, part));
    const FloatVec g = hn::Mul(dy, hn::Add(load(d, r.weight + i, part), offset));
    g_sum[which] = hn::Add(g_sum[which], g);
    gx_sum[which] = hn::MulAdd(g, xhat, gx_sum[which]);
    store(hn::MulAdd(dy, xhat, load(d, r.dweight + i, part)), d, r.dweight + i, part);
  });
  const auto n = static_cast<float>(r.cols);
  const FloatVec g_mean = hn::Set(d, r.layer ? sum_of(g_sum) / n : 0.0F);
  const FloatVec gx_mean = hn::Set(d, sum_of(gx_sum) / n);
  each_vector(0, r.cols, [&](std::int64_t i, auto part) {
    const FloatVec xhat = hn::Mul(hn::Sub(load(d, r.x + i, part), mean), rstd);
    const FloatVec g = hn::Mul(hn::Mul(scale, load(d, r.dy + i, part)),
                               hn::Add(load(d, r.weight + i, part), offset));
    FloatVec dx = hn::Mul(rstd, hn::NegMulAdd(xhat, gx_mean, hn::Sub(g, g_mean)));
    if (r.accumulate_dx) {
      dx = hn::Add(load(d, r.dx + i, part), dx);
    }
    store(dx, d, r.dx + i, part);
  });
}

/// rstd = 1 / sqrt(square + eps) for a whole batch, in place.
HWY_INLINE void invert_roots(float* square, float eps) {
  const Floats d;
  each_vector(0, kNormBatch, [&](std::int64_t i, auto part) {
    const FloatVec root = hn::Sqrt(hn::Add(load(d, square + i, part), hn::Set(d, eps)));
    store(hn::Div(hn::Set(d, 1.0F), root), d, square + i, part);
  });
}

HWY_INLINE void fetch_rows(const NormForwardParams& p, const RowWalk& walk) {
  const std::int64_t offset = walk.offset(p.x_layout);
  fetch_row<true>(static_cast<const float*>(p.y) + walk.offset(p.y_layout), p.cols);
  if (p.residual.branch == nullptr) {
    fetch_row(static_cast<const float*>(p.x) + offset, p.cols);
    return;
  }
  fetch_row(static_cast<const float*>(p.residual.base) + offset, p.cols);
  fetch_row(static_cast<const float*>(p.residual.branch) + offset, p.cols);
}

void norm_forward_rows(const NormForwardParams& p, std::int64_t begin, std::int64_t end) {
  const bool layer = p.kind == NormKind::layer;
  const auto* x = static_cast<const float*>(p.x);
  auto* y = static_cast<float*>(p.y);
  const std::int64_t distance = HWY_MAX(1, kFetchAhead / p.cols);
  float mean[kNormBatch];
  float rstd[kNormBatch] = {};  // Holds mean squares at first.
  for (std::int64_t first = begin; first < end; first += kNormBatch) {
    const std::int64_t count = HWY_MIN(kNormBatch, end - first);
    RowWalk walk(first, p.inner);
    RowWalk ahead(first + distance, p.inner);
    for (std::int64_t i = 0; i < count; ++i, walk.next(), ahead.next()) {
      if (first + i + distance < end) {
        fetch_rows(p, ahead);
      }
      if (p.residual.branch != nullptr) {
        add_branch_row(p.residual, walk.offset(p.x_layout), p.cols);
      }
      moments_row(x + walk.offset(p.x_layout), p.cols, layer, &mean[i], &rstd[i]);
    }
    invert_roots(rstd, p.eps);
    walk = RowWalk(first, p.inner);
    for (std::int64_t i = 0; i < count; ++i, walk.next()) {
      if (layer) {
        p.mean[first + i] = mean[i];
      }
      p.rstd[first + i] = rstd[i];
      float* row = y + walk.offset(p.y_layout);
      normalise_row(x + walk.offset(p.x_layout), static_cast<const float*>(p.weight), row, p.cols,
                    mean[i], rstd[i], p.gain_offset);
      if (p.rotation.cos != nullptr) {
        const std::int64_t entry = walk.outer() % p.rotation.seq_len * (p.cols / 2);
        rotate_row(row, p.rotation.cos + entry, p.rotation.sin + entry, p.cols / 2, 1.0F);
      }
    }
  }
}

void norm_backward_rows(const NormBackwardParams& p, float* dweight, std::int64_t begin,
                        std::int64_t end) {
  const bool layer = p.kind == NormKind::layer;
  std::fill_n(dweight, p.cols, 0.0F);
  const std::int64_t distance = HWY_MAX(1, kFetchAhead / p.cols);
  RowWalk walk(begin, p.inner);
  RowWalk ahead(begin + distance, p.inner);
  for (std::int64_t row = begin; row < end; ++row, walk.next(), ahead.next()) {
    if (row + distance < end) {
      fetch_row(static_cast<const float*>(p.x) + ahead.offset(p.x_layout), p.cols);
      fetch_row(static_cast<const float*>(p.dy) + ahead.offset(p.dy_layout), p.cols);
      if (p.accumulate_dx) {
        fetch_row<true>(static_cast<const float*>(p.dx) + ahead.offset(p.dx_layout), p.cols);
      }
    }
    float* dx = static_cast<float*>(p.dx) + walk.offset(p.dx_layout);
    if (p.rotation.cos != nullptr) {
      const std::int64_t entry = walk.outer() % p.rotation.seq_len * (p.cols / 2);
      rotate_row(dx, p.rotation.cos + entry, p.rotation.sin + entry, p.cols / 2, -1.0F);
    }
    norm_backward_row({.x = static_cast<const float*>(p.x) + walk.offset(p.x_layout),
                       .weight = static_cast<const float*>(p.weight),
                       .dy = static_cast<const float*>(p.dy) + walk.offset(p.dy_layout),
                       .dx = dx,
                       .dweight = dweight,
                       .mean = layer ? p.mean[row] : 0.0F,
                       .rstd = p.rstd[row],
                       .dy_scale = p.dy_scale,
                       .gain_offset = p.gain_offset,
                       .layer = layer,
                       .accumulate_dx = p.accumulate_dx,
                       .cols = p.cols});
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(norm_forward_rows);
HWY_EXPORT(norm_backward_rows);

namespace {

/// Rows per block. Each block has its own sums of dy * xhat, which are then added in order; the
/// number of blocks depends only on the rows.
std::int64_t backward_block(std::int64_t rows) {
  constexpr std::int64_t max_blocks = 64;
  constexpr std::int64_t min_rows = 16;
  return std::max(min_rows, divide_up(rows, max_blocks));
}

}  // namespace

void norm_forward(const NormForwardParams& p, int threads) {
  const auto rows_of = HWY_DYNAMIC_DISPATCH(norm_forward_rows);
  parallel_blocks(threads, p.outer * p.inner, row_block(p.cols),
                  [&](std::int64_t begin, std::int64_t end) { rows_of(p, begin, end); });
}

void norm_backward(const NormBackwardParams& p, int threads) {
  static thread_local Scratch scratch;
  const std::int64_t rows = p.outer * p.inner;
  const std::int64_t block = backward_block(rows);
  const std::int64_t blocks = divide_up(rows, block);
  auto* partial = scratch.get<float>(blocks * p.cols);
  const auto rows_of = HWY_DYNAMIC_DISPATCH(norm_backward_rows);
  parallel_blocks(threads, rows, block, [&](std::int64_t begin, std::int64_t end) {
    rows_of(p, partial + begin / block * p.cols, begin, end);
  });
  if (p.dweight != nullptr) {
    add_blocks(partial, blocks, p.cols, p.dweight);
  }
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
