// CUDA twins that move several elements of a thread at once: every count leaves some over, and what
// is not aligned goes one by one.
#include <limits>

#include "kernels/activation/activation.hpp"
#include "kernels/activation/bias.hpp"
#include "kernels/activation/clamp.hpp"
#include "kernels/activation/elementwise.hpp"
#include "tests/kernels/cuda_fixture.hpp"

namespace train::kernels::testing::cuda_elementwise_test {
namespace {

/// Calls with every count and every first element that decide how a kernel goes through memory.
void each_extent(const std::function<void(std::int64_t, std::int64_t)>& with) {
  for (const std::int64_t count : {0, 1, 7, 8, 31, 1003}) {
    for (const std::int64_t first : {0, 1}) {
      with(count, first);
    }
  }
}

std::string extent_name(std::int64_t count, std::int64_t first) {
  return fmt::format("{} from {}", count, first);
}

TEST_CASE("cuda twins: several elements at once, tree_add and conversions",
          "[kernels][cuda][.gpu]") {
  each_extent([](std::int64_t count, std::int64_t first) {
    const std::int64_t size = first + count + 3;  // What comes after stays.
    const Values left = random_values(size, 1);
    const Values right = random_values(size, 2);
    compare_twins("tree_add", extent_name(count, first), same_bits, [&](Side& side) {
      float* out = side.result(untouched_values(size));
      side.kernels.tree_add(side.stream(), {.left = side.put(left) + first,
                                            .right = side.put(right) + first,
                                            .out = out + first,
                                            .count = count});
    });
    compare_twins("pack_bf16", extent_name(count, first), same_bits, [&](Side& side) {
      auto* out = side.result(std::vector<std::uint16_t>(at(size), 7));
      side.kernels.pack_bf16(side.stream(),
                             {.in = side.put(left) + first, .out = out + first, .count = count});
    });
    compare_twins("unpack_bf16", extent_name(count, first), same_bits, [&](Side& side) {
      float* out = side.result(untouched_values(size));
      side.kernels.unpack_bf16(
          side.stream(),
          {.in = side.put(halves_of(left)) + first, .out = out + first, .count = count});
    });
  });
}

TEST_CASE("cuda twins: activations over the range where they bend, and beyond",
          "[kernels][cuda][.gpu]") {
  constexpr std::int64_t count = 8 * 1024;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  Values x(at(count));
  for (std::int64_t i = 0; i < count; ++i) {  // -16 to 16; beyond 13 exp(-x^2 / 2) is no float.
    x[at(i)] = static_cast<float>(i - count / 2) * (32.0F / static_cast<float>(count));
  }
  for (const float large : {100.0F, 1e4F, 3e38F, infinity}) {
    x.insert(x.end(), {large, -large});
  }
  const auto size = static_cast<std::int64_t>(x.size());
  const Values dy = random_values(size, 3);
  const double bf16 = bf16_rounding + transcendental;
  compare_twins("gelu_forward", "wide", transcendental, bf16, [&](Side& side) {
    side.kernels.gelu_forward(side.stream(), {.x = side.elements(x),
                                              .y = side.element_result(untouched_values(size)),
                                              .count = size,
                                              .dtype = side.dtype});
  });
  compare_twins("gelu_backward", "wide", transcendental, bf16, [&](Side& side) {
    side.kernels.gelu_backward(side.stream(), {.x = side.elements(x),
                                               .dy = side.elements(dy),
                                               .dx = side.element_result(untouched_values(size)),
                                               .y = side.element_result(untouched_values(size)),
                                               .count = size,
                                               .dtype = side.dtype});
  });
  compare_twins("swiglu_forward", "wide", transcendental, bf16, [&](Side& side) {
    side.kernels.swiglu_forward(side.stream(), {.gate = side.elements(x),
                                                .up = side.elements(dy),
                                                .y = side.element_result(untouched_values(size)),
                                                .count = size,
                                                .dtype = side.dtype});
  });
}

TEST_CASE("cuda twins: several elements at once, activations", "[kernels][cuda][.gpu]") {
  each_extent([](std::int64_t count, std::int64_t first) {
    const std::int64_t size = first + count + 3;
    compare_twins("swiglu_backward", extent_name(count, first), transcendental,
                  bf16_rounding + transcendental, [&](Side& side) {
                    const auto dup = side.element_result(random_values(size, 3));
                    side.kernels.swiglu_backward(
                        side.stream(),
                        {.gate = side.elements(random_values(size, 1, 9.0F)) + first,
                         .up = side.elements(random_values(size, 2)) + first,
                         .dy = dup + first,
                         .dgate = side.element_result(untouched_values(size)) + first,
                         .dup = dup + first,
                         .y = side.element_result(untouched_values(size)) + first,
                         .count = count,
                         .dtype = side.dtype});
                  });
    compare_twins("residual_add", extent_name(count, first), elementwise,
                  bf16_rounding + elementwise, [&](Side& side) {
                    side.kernels.residual_add(
                        side.stream(), {.x = side.elements(random_values(size, 1)) + first,
                                        .branch = side.elements(random_values(size, 2)) + first,
                                        .out = side.element_result(untouched_values(size)) + first,
                                        .scale = 0.3F,
                                        .count = count,
                                        .dtype = side.dtype});
                  });
  });
}

TEST_CASE("cuda twins: clamps of rows that lie apart", "[kernels][cuda][.gpu]") {
  const auto cols = GENERATE(as<std::int64_t>(), 0, 1, 8, 37, 1024);
  constexpr std::int64_t rows = 3;
  const std::int64_t stride = cols + 8;
  Values x = random_values(rows * stride, 1, 2.0F);
  x[0] = std::numeric_limits<float>::quiet_NaN();
  x[1] = 0.5F;
  x[2] = -0.5F;
  const Values dy = random_values(rows * stride, 2);
  const std::string what = "columns " + std::to_string(cols);
  compare_twins("clamp_forward", what, same_bits, same_bits, [&](Side& side) {
    side.kernels.clamp_forward(side.stream(),
                               {.x = side.elements(x),
                                .y = side.element_result(untouched_values(rows * stride)),
                                .bound = 0.5F,
                                .rows = rows,
                                .cols = cols,
                                .x_stride = stride,
                                .y_stride = stride,
                                .dtype = side.dtype});
  });
  compare_twins("clamp_backward", what, same_bits, same_bits, [&](Side& side) {
    side.kernels.clamp_backward(side.stream(),
                                {.x = side.elements(x),
                                 .dy = side.elements(dy),
                                 .dx = side.element_result(untouched_values(rows * stride)),
                                 .bound = 0.5F,
                                 .rows = rows,
                                 .cols = cols,
                                 .x_stride = stride,
                                 .dy_stride = stride,
                                 .dtype = side.dtype});
  });
}

TEST_CASE("cuda twins: activations of rows that lie apart", "[kernels][cuda][.gpu]") {
  constexpr std::int64_t rows = 37;
  constexpr std::int64_t cols = 45;
  const auto kind = GENERATE(ActivationKind::silu, ActivationKind::gelu, ActivationKind::gelu_tanh,
                             ActivationKind::relu, ActivationKind::clamped_swiglu);
  constexpr float limit = 2.5F;  // Of clamped_swiglu: inside the values.
  const std::string what = "kind " + std::to_string(static_cast<int>(kind));
  const Values x = random_values(rows * 2 * cols, 1, 4.0F);
  const Values dy = random_values(rows * cols, 2);
  compare_twins("activation_forward", what, transcendental, bf16_rounding + transcendental,
                [&](Side& side) {
                  const auto in = side.elements(x);
                  side.kernels.activation_forward(
                      side.stream(), {.kind = kind,
                                      .x = in,
                                      .up = in + cols,
                                      .y = side.element_result(untouched_values(rows * cols)),
                                      .rows = rows,
                                      .cols = cols,
                                      .x_stride = 2 * cols,
                                      .y_stride = cols,
                                      .limit = limit,
                                      .dtype = side.dtype});
                });
  compare_twins("activation_backward", what, transcendental, bf16_rounding + transcendental,
                [&](Side& side) {
                  const auto in = side.elements(x);
                  const auto dx = side.element_result(untouched_values(rows * 2 * cols));
                  side.kernels.activation_backward(
                      side.stream(), {.kind = kind,
                                      .x = in,
                                      .up = in + cols,
                                      .dy = side.elements(dy),
                                      .dx = dx,
                                      .dup = dx + cols,
                                      .y = side.element_result(untouched_values(rows * cols)),
                                      .rows = rows,
                                      .cols = cols,
                                      .x_stride = 2 * cols,
                                      .dy_stride = cols,
                                      .dx_stride = 2 * cols,
                                      .limit = limit,
                                      .dtype = side.dtype});
                });
}

TEST_CASE("cuda twins: biases and learned positions", "[kernels][cuda][.gpu]") {
  constexpr std::int64_t rows = 150;
  constexpr std::int64_t cols = 33;
  const std::int64_t period = GENERATE(1, 50);
  const std::string what = "period " + std::to_string(period);
  const Values y = random_values(rows * cols, 1);
  compare_twins("bias_add", what, elementwise, bf16_rounding + elementwise, [&](Side& side) {
    side.kernels.bias_add(side.stream(), {.y = side.element_result(y),
                                          .bias = side.elements(random_values(period * cols, 2)),
                                          .rows = rows,
                                          .cols = cols,
                                          .stride = cols,
                                          .period = period,
                                          .dtype = side.dtype});
  });
  compare_twins("bias_gradient", what, elementwise, elementwise, [&](Side& side) {
    side.kernels.bias_gradient(side.stream(),
                               {.dy = side.elements(y),
                                .dbias = side.result(untouched_values(period * cols)),
                                .rows = rows,
                                .cols = cols,
                                .stride = cols,
                                .period = period,
                                .dtype = side.dtype});
  });
}

TEST_CASE("cuda twins: learned positions that are given", "[kernels][cuda][.gpu]") {
  constexpr std::int64_t rows = 300;
  constexpr std::int64_t period = 90;  // The last ten never come, the first one often.
  std::vector<std::int32_t> positions;
  for (std::int32_t length = 1; std::ssize(positions) < rows; length = length % 80 + 3) {
    for (std::int32_t t = 0; t < length && std::ssize(positions) < rows; ++t) {
      positions.push_back(t);
    }
  }
  std::fill_n(positions.begin() + 100, 100, 0);
  for (const std::int64_t cols : {33, 64}) {
    for (const std::int64_t stride : {cols, cols + 8, cols + 3}) {
      const std::string what = fmt::format("{} columns, every {}", cols, stride);
      const Values y = random_values(rows * stride, 1);
      compare_twins("bias_add", what, elementwise, bf16_rounding + elementwise, [&](Side& side) {
        side.kernels.bias_add(side.stream(),
                              {.y = side.element_result(y),
                               .bias = side.elements(random_values(period * cols, 2)),
                               .positions = side.put(positions),
                               .rows = rows,
                               .cols = cols,
                               .stride = stride,
                               .period = period,
                               .dtype = side.dtype});
      });
      compare_twins("bias_gradient", what, same_bits, same_bits, [&](Side& side) {
        side.kernels.bias_gradient(side.stream(),
                                   {.dy = side.elements(y),
                                    .dbias = side.result(untouched_values(period * cols)),
                                    .positions = side.put(positions),
                                    .rows = rows,
                                    .cols = cols,
                                    .stride = stride,
                                    .period = period,
                                    .dtype = side.dtype});
      });
    }
  }
}

TEST_CASE("cuda learned positions: one outside the table fails the stream",
          "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  for (const std::int32_t bad : {-1, 3}) {
    for (const bool backward : {false, true}) {
      Side side = cuda_side();
      const std::int32_t* positions = side.put(std::vector<std::int32_t>{2, bad});
      float* y = side.put(zeros(8));
      if (backward) {
        side.kernels.bias_gradient(side.stream(), {.dy = y,
                                                   .dbias = side.put(zeros(12)),
                                                   .positions = positions,
                                                   .rows = 2,
                                                   .cols = 4,
                                                   .stride = 4,
                                                   .period = 3});
      } else {
        side.kernels.bias_add(side.stream(), {.y = y,
                                              .bias = side.put(zeros(12)),
                                              .positions = positions,
                                              .rows = 2,
                                              .cols = 4,
                                              .stride = 4,
                                              .period = 3});
      }
      CHECK_THROWS_WITH(
          side.stream().synchronize(),
          Catch::Contains(fmt::format("{}: position {} of row 1 is outside the 3 that there are",
                                      backward ? "bias_gradient" : "bias_add", bad)));
    }
  }
}

}  // namespace
}  // namespace train::kernels::testing::cuda_elementwise_test
