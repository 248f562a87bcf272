#include "kernels/activation/bias.hpp"

#include <algorithm>

#include "kernels/cpu_support.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/activation/bias_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// to[c] += from[c].
void add_row(const float* from, float* to, std::int64_t cols) {
  const Floats d;
  each_vector(0, cols, [&](std::int64_t c, auto part) {
    store(hn::Add(load(d, to + c, part), load(d, from + c, part)), d, to + c, part);
  });
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(add_row);

namespace {

template <class Params>
void check_positions(const char* kernel, const Params& p) {
  for (std::int64_t row = 0; p.positions != nullptr && row < p.rows; ++row) {
    TRAIN_CHECK(p.positions[row] >= 0 && p.positions[row] < p.period,
                "{}: position {} of row {}, of {}", kernel, p.positions[row], row, p.period);
  }
}

}  // namespace

void bias_add(const BiasAddParams& p, int threads) {
  const auto add = HWY_DYNAMIC_DISPATCH(add_row);
  auto* y = static_cast<float*>(p.y);
  const auto* bias = static_cast<const float*>(p.bias);
  check_positions("bias_add", p);
  each_row(threads, p.rows, p.cols, [&](std::int64_t row) {
    const std::int64_t at = p.positions == nullptr ? row % p.period : p.positions[row];
    add(bias + at * p.cols, y + row * p.stride, p.cols);
  });
}

namespace {

/// Divides the columns among threads, so that every sum adds its rows in order.
void gradient_of_positions(const BiasGradientParams& p, int threads) {
  constexpr std::int64_t columns = 64;
  const auto add = HWY_DYNAMIC_DISPATCH(add_row);
  const auto* dy = static_cast<const float*>(p.dy);
  std::fill_n(p.dbias, p.period * p.cols, 0.0F);
  parallel_blocks(threads, p.cols, columns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < p.rows; ++row) {
      add(dy + row * p.stride + begin, p.dbias + p.positions[row] * p.cols + begin, end - begin);
    }
  });
}

}  // namespace

void bias_gradient(const BiasGradientParams& p, int threads) {
  check_positions("bias_gradient", p);
  if (p.positions != nullptr) {
    gradient_of_positions(p, threads);
    return;
  }
  static thread_local Scratch scratch;
  const auto add = HWY_DYNAMIC_DISPATCH(add_row);
  const auto* dy = static_cast<const float*>(p.dy);
  const std::int64_t of_each = divide_up(p.rows, p.period);
  const std::int64_t blocks = divide_up(of_each, BiasGradientParams::kBlock);
  auto* partial = scratch.get<float>(std::max<std::int64_t>(1, blocks * p.period * p.cols));
  each_row(threads, blocks * p.period, BiasGradientParams::kBlock * p.cols, [&](std::int64_t i) {
    float* sum = partial + i * p.cols;
    std::fill_n(sum, p.cols, 0.0F);
    const std::int64_t first = i / p.period * BiasGradientParams::kBlock;
    for (std::int64_t k = first; k < first + BiasGradientParams::kBlock; ++k) {
      const std::int64_t row = k * p.period + i % p.period;
      if (row < p.rows) {
        add(dy + row * p.stride, sum, p.cols);
      }
    }
  });
  each_row(threads, p.period, blocks * p.cols, [&](std::int64_t t) {
    float* sum = p.dbias + t * p.cols;
    std::fill_n(sum, p.cols, 0.0F);
    for (std::int64_t b = 0; b < blocks; ++b) {
      add(partial + (b * p.period + t) * p.cols, sum, p.cols);
    }
  });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
