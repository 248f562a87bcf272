#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/activation/bias.hpp"
#include "kernels/cpu_support.hpp"
#include "kernels/experts/experts.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/experts/expert_bias_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Adds one row to each of `rows` rows of y.
void add_to_rows(const float* bias, float* y, std::int64_t rows, std::int64_t stride,
                 std::int64_t cols) {
  const Floats d;
  each_vector(0, cols, [&](std::int64_t c, auto part) {
    const FloatVec addend = load(d, bias + c, part);
    for (std::int64_t row = 0; row < rows; ++row) {
      float* to = y + row * stride + c;
      store(hn::Add(load(d, to, part), addend), d, to, part);
    }
  });
}

/// sum = +0 plus the rows of x, in order.
void sum_rows_of(const float* x, float* sum, std::int64_t rows, std::int64_t stride,
                 std::int64_t cols) {
  const Floats d;
  each_vector(0, cols, [&](std::int64_t c, auto part) {
    FloatVec total = hn::Zero(d);
    for (std::int64_t row = 0; row < rows; ++row) {
      total = hn::Add(total, load(d, x + row * stride + c, part));
    }
    store(total, d, sum + c, part);
  });
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(add_to_rows);
HWY_EXPORT(sum_rows_of);

namespace {

/// Neighbouring places of one expert, at most BiasGradientParams::kBlock, counted from its first.
struct PlaceBlock {
  std::int64_t expert = 0, first = 0, count = 0;
};

/// Blocks of all experts, in their order.
template <class Params>
std::vector<PlaceBlock> blocks_of(const char* kernel, const Params& p) {
  constexpr std::int64_t block = BiasGradientParams::kBlock;
  std::vector<PlaceBlock> blocks;
  for (std::int64_t expert = 0; expert < p.experts; ++expert) {
    const std::int64_t end = p.offsets[expert + 1];
    TRAIN_CHECK(p.offsets[expert] >= 0 && p.offsets[expert] <= end && end <= p.places,
                "{}: places of expert {} from {} to {} of {}", kernel, expert, p.offsets[expert],
                end, p.places);
    for (std::int64_t first = p.offsets[expert]; first < end; first += block) {
      blocks.push_back({.expert = expert, .first = first, .count = std::min(block, end - first)});
    }
  }
  return blocks;
}

}  // namespace

void expert_bias_forward(const ExpertBiasForwardParams& p, int threads) {
  const auto add = HWY_DYNAMIC_DISPATCH(add_to_rows);
  const std::vector<PlaceBlock> blocks = blocks_of("expert_bias_forward", p);
  const auto* bias = static_cast<const float*>(p.bias);
  auto* y = static_cast<float*>(p.y);
  each_row(threads, std::ssize(blocks), BiasGradientParams::kBlock * p.cols, [&](std::int64_t i) {
    const PlaceBlock& one = blocks[static_cast<std::size_t>(i)];
    add(bias + one.expert * p.stride, y + one.first * p.y_stride, one.count, p.y_stride, p.cols);
  });
}

void expert_bias_backward(const ExpertBiasBackwardParams& p, int threads) {
  static thread_local Scratch scratch;
  const auto sum_rows = HWY_DYNAMIC_DISPATCH(sum_rows_of);
  const std::vector<PlaceBlock> blocks = blocks_of("expert_bias_backward", p);
  const auto* dy = static_cast<const float*>(p.dy);
  auto* partial = scratch.get<float>(std::max<std::int64_t>(1, std::ssize(blocks) * p.cols));
  each_row(threads, std::ssize(blocks), BiasGradientParams::kBlock * p.cols, [&](std::int64_t i) {
    const PlaceBlock& one = blocks[static_cast<std::size_t>(i)];
    sum_rows(dy + one.first * p.dy_stride, partial + i * p.cols, one.count, p.dy_stride, p.cols);
  });
  std::vector<std::int64_t> begin(static_cast<std::size_t>(p.experts + 1), 0);
  for (const PlaceBlock& one : blocks) {
    ++begin[static_cast<std::size_t>(one.expert + 1)];
  }
  for (std::size_t expert = 1; expert < begin.size(); ++expert) {
    begin[expert] += begin[expert - 1];
  }
  each_row(threads, p.experts, p.cols, [&](std::int64_t expert) {
    const std::int64_t first = begin[static_cast<std::size_t>(expert)];
    const std::int64_t count = begin[static_cast<std::size_t>(expert + 1)] - first;
    sum_rows(partial + first * p.cols, p.dbias + expert * p.stride, count, p.cols, p.cols);
  });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
