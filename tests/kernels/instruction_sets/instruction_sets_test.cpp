// The CPU's kernels have the same bits with every instruction set they are compiled for.
#include "tests/kernels/instruction_sets.hpp"
#include "kernels/activation/activation.hpp"
#include "kernels/activation/bias.hpp"
#include "kernels/activation/clamp.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/embedding/embedding.hpp"

namespace train::kernels::testing::instruction_sets_test {
namespace {

std::string of(std::int64_t count) { return fmt::format("of {}", count); }

TEST_CASE("instruction sets: activations", "[kernels][instruction_sets][P1]") {
  for (const std::int64_t n : kWidths) {
    compare_sets("gelu_forward", of(n), [n](Side& side, Source& values) {
      side.kernels.gelu_forward(side.stream(),
                                {.x = side.put(values(n)), .y = side.result(zeros(n)), .count = n});
    });
    compare_sets("gelu_backward", of(n), [n](Side& side, Source& values) {
      side.kernels.gelu_backward(side.stream(), {.x = side.put(values(n)),
                                                 .dy = side.put(values(n)),
                                                 .dx = side.result(zeros(n)),
                                                 .y = side.result(zeros(n)),
                                                 .count = n});
    });
    compare_sets("swiglu_forward", of(n), [n](Side& side, Source& values) {
      side.kernels.swiglu_forward(side.stream(), {.gate = side.put(values(n)),
                                                  .up = side.put(values(n)),
                                                  .y = side.result(zeros(n)),
                                                  .count = n});
    });
    compare_sets("swiglu_backward", of(n), [n](Side& side, Source& values) {
      side.kernels.swiglu_backward(side.stream(), {.gate = side.put(values(n)),
                                                   .up = side.put(values(n)),
                                                   .dy = side.put(values(n)),
                                                   .dgate = side.result(zeros(n)),
                                                   .dup = side.result(zeros(n)),
                                                   .y = side.result(zeros(n)),
                                                   .count = n});
    });
  }
}

TEST_CASE("instruction sets: clamps", "[kernels][instruction_sets][P1]") {
  for (const std::int64_t cols : kWidths) {
    const std::int64_t stride = cols + 3;
    const std::int64_t size = 3 * stride;
    compare_sets("clamp_forward", of(cols), [=](Side& side, Source& values) {
      side.kernels.clamp_forward(side.stream(), {.x = side.put(values(size)),
                                                 .y = side.result(zeros(size)),
                                                 .bound = 0.5F,
                                                 .rows = 3,
                                                 .cols = cols,
                                                 .x_stride = stride,
                                                 .y_stride = stride});
    });
    compare_sets("clamp_backward", of(cols), [=](Side& side, Source& values) {
      side.kernels.clamp_backward(side.stream(), {.x = side.put(values(size)),
                                                  .dy = side.put(values(size)),
                                                  .dx = side.result(zeros(size)),
                                                  .bound = 0.5F,
                                                  .rows = 3,
                                                  .cols = cols,
                                                  .x_stride = stride,
                                                  .dy_stride = stride});
    });
  }
}

TEST_CASE("instruction sets: activations of every kind", "[kernels][instruction_sets][P1]") {
  for (const ActivationKind kind :
       {ActivationKind::silu, ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::relu,
        ActivationKind::clamped_swiglu}) {
    for (const std::int64_t cols : kWidths) {
      const std::int64_t stride = cols + 3;
      const std::int64_t size = 3 * stride;
      compare_sets("activation_forward", of(cols), [=](Side& side, Source& values) {
        side.kernels.activation_forward(side.stream(), {.kind = kind,
                                                        .x = side.put(values(size)),
                                                        .up = side.put(values(size)),
                                                        .y = side.result(zeros(size)),
                                                        .rows = 3,
                                                        .cols = cols,
                                                        .x_stride = stride,
                                                        .y_stride = stride});
      });
      compare_sets("activation_backward", of(cols), [=](Side& side, Source& values) {
        side.kernels.activation_backward(side.stream(), {.kind = kind,
                                                         .x = side.put(values(size)),
                                                         .up = side.put(values(size)),
                                                         .dy = side.put(values(size)),
                                                         .dx = side.result(zeros(size)),
                                                         .dup = side.result(zeros(size)),
                                                         .y = side.result(zeros(size)),
                                                         .rows = 3,
                                                         .cols = cols,
                                                         .x_stride = stride,
                                                         .dy_stride = stride,
                                                         .dx_stride = stride});
      });
    }
  }
}

/// The floats with bits offset, offset + stride, ... of the whole cycle of 2^32, in blocks.
void compare_functions(std::uint32_t stride, std::uint32_t offset = 0) {
  if (one_instruction_set()) {
    return;
  }
  constexpr std::int64_t block = std::int64_t{1} << 20;
  const auto stream = make_inline_stream(2);
  Values x(block), ones(block, 1.0F);
  const auto results = [&](ActivationKind kind) {
    Values y = zeros(block), dx = zeros(block);
    cpu_backend().activation_backward(*stream, {.kind = kind,
                                                .x = x.data(),
                                                .dy = ones.data(),
                                                .dx = dx.data(),
                                                .y = y.data(),
                                                .rows = 1,
                                                .cols = block,
                                                .x_stride = block,
                                                .dy_stride = block,
                                                .dx_stride = block});
    y.insert(y.end(), dx.begin(), dx.end());
    return y;
  };
  const auto same = [](float left, float right) {
    return std::bit_cast<std::uint32_t>(left) == std::bit_cast<std::uint32_t>(right) ||
           (std::isnan(left) && std::isnan(right));
  };
  for (std::uint64_t first = offset; first < std::uint64_t{1} << 32U; first += block * stride) {
    for (std::int64_t i = 0; i < block; ++i) {
      x[at(i)] = std::bit_cast<float>(
          static_cast<std::uint32_t>(first + static_cast<std::uint64_t>(i) * stride));
    }
    for (const ActivationKind kind :
         {ActivationKind::silu, ActivationKind::gelu, ActivationKind::gelu_tanh}) {
      const Values wide = results(kind);
      const std::size_t of_wide = test::chosen_instructions();
      const test::WithoutAvx512 without;
      const Values narrow = results(kind);
      REQUIRE(test::chosen_instructions() != of_wide);
      const auto differ = std::mismatch(wide.begin(), wide.end(), narrow.begin(), same).first;
      INFO("kind " << static_cast<int>(kind) << " at " << x[at((differ - wide.begin()) % block)]);
      REQUIRE(differ == wide.end());
    }
  }
}

TEST_CASE("instruction sets: functions of some millions of floats",
          "[kernels][instruction_sets][P1]") {
  compare_functions(1021);
}

TEST_CASE("instruction sets: functions of a 32nd of all floats, another one each time",
          "[kernels][instruction_sets][.full][P1]") {
  compare_functions(32, Catch::rngSeed() % 32);
}

// Minutes of a core: by hand, where functions or their library have changed.
TEST_CASE("instruction sets: functions of every float",
          "[kernels][instruction_sets][.every_float][P1]") {
  compare_functions(1);
}

TEST_CASE("instruction sets: gates of heads", "[kernels][instruction_sets][P1]") {
  for (const std::int64_t cols : kWidths) {
    const RowLayout layout{.outer_stride = 2 * cols + 1, .inner_stride = cols};
    const std::int64_t size = 3 * layout.outer_stride;
    compare_sets("sigmoid_gate_forward", of(cols), [=](Side& side, Source& values) {
      side.kernels.sigmoid_gate_forward(side.stream(), {.x = side.put(values(size)),
                                                        .gate = side.put(values(size)),
                                                        .y = side.result(zeros(size)),
                                                        .tokens = 3,
                                                        .heads = 2,
                                                        .head_dim = cols,
                                                        .x_layout = layout,
                                                        .gate_layout = layout,
                                                        .y_layout = layout});
    });
    compare_sets("sigmoid_gate_backward", of(cols), [=](Side& side, Source& values) {
      side.kernels.sigmoid_gate_backward(side.stream(), {.x = side.put(values(size)),
                                                         .gate = side.put(values(size)),
                                                         .dy = side.put(values(size)),
                                                         .dx = side.result(zeros(size)),
                                                         .dgate = side.result(zeros(size)),
                                                         .tokens = 3,
                                                         .heads = 2,
                                                         .head_dim = cols,
                                                         .x_layout = layout,
                                                         .gate_layout = layout,
                                                         .dy_layout = layout,
                                                         .dx_layout = layout,
                                                         .dgate_layout = layout});
    });
  }
}

TEST_CASE("instruction sets: sums and masks of elements", "[kernels][instruction_sets][P1]") {
  for (const std::int64_t n : kWidths) {
    compare_sets("residual_add", of(n), [n](Side& side, Source& values) {
      side.kernels.residual_add(side.stream(), {.x = side.put(values(n)),
                                                .branch = side.put(values(n)),
                                                .out = side.result(zeros(n)),
                                                .scale = 0.3F,
                                                .count = n});
    });
    compare_sets("tree_add", of(n), [n](Side& side, Source& values) {
      side.kernels.tree_add(side.stream(), {.left = side.put(values(n)),
                                            .right = side.put(values(n)),
                                            .out = side.result(zeros(n)),
                                            .count = n});
    });
    compare_sets("scale", of(n), [n](Side& side, Source& values) {
      side.kernels.scale(
          side.stream(),
          {.x = side.put(values(n)), .y = side.result(zeros(n)), .scale = 0.3F, .count = n});
    });
    compare_sets("count_nonzero", of(n), [n](Side& side, Source& values) {
      side.kernels.count_nonzero(side.stream(),
                                 {.x = side.put(values(n)),
                                  .count = n,
                                  .nonzero = side.result(std::vector<std::int64_t>(1))});
    });
    compare_sets("mask_sign", of(n), [n](Side& side, Source& values) {
      side.kernels.mask_sign(
          side.stream(), {.g = side.result(values(n)), .other = side.put(values(n)), .count = n});
    });
    compare_sets("fill", of(n), [n](Side& side, Source& values) {
      side.kernels.fill(side.stream(),
                        {.out = side.result(zeros(n)), .value = values(1)[0], .count = n});
    });
    compare_sets("copy", of(n), [n](Side& side, Source& values) {
      side.kernels.copy(side.stream(), {.out = side.result(zeros(n)),
                                        .in = side.put(values(n)),
                                        .size_bytes = n * std::int64_t{sizeof(float)}});
    });
    compare_sets("count_nonfinite", of(n), [n](Side& side, Source& values) {
      side.kernels.count_nonfinite(side.stream(),
                                   {.x = side.put(values(n)),
                                    .count = n,
                                    .nonfinite = side.result(std::vector<std::int64_t>(1))});
    });
    compare_sets("pack_bf16", of(n), [n](Side& side, Source& values) {
      side.kernels.pack_bf16(side.stream(), {.in = side.put(values(n)),
                                             .out = side.result(std::vector<std::uint16_t>(at(n))),
                                             .count = n});
    });
    compare_sets("unpack_bf16", of(n), [n](Side& side, Source& values) {
      side.kernels.unpack_bf16(
          side.stream(),
          {.in = side.put(halves_of(values(n))), .out = side.result(zeros(n)), .count = n});
    });
  }
}

TEST_CASE("instruction sets: biases and embeddings", "[kernels][instruction_sets][P1]") {
  constexpr std::int64_t rows = 150;
  for (const std::int64_t cols : kWidths) {
    compare_sets("bias_add", of(cols), [=](Side& side, Source& values) {
      side.kernels.bias_add(side.stream(), {.y = side.result(values(rows * cols)),
                                            .bias = side.put(values(3 * cols)),
                                            .rows = rows,
                                            .cols = cols,
                                            .stride = cols,
                                            .period = 3});
    });
    compare_sets("bias_gradient", of(cols), [=](Side& side, Source& values) {
      side.kernels.bias_gradient(side.stream(), {.dy = side.put(values(rows * cols)),
                                                 .dbias = side.result(zeros(2 * cols)),
                                                 .rows = rows,
                                                 .cols = cols,
                                                 .stride = cols,
                                                 .period = 2});
    });
    std::vector<std::int32_t> tokens(rows);
    for (std::int32_t i = 0; i < rows; ++i) {
      tokens[at(i)] = i * i % 7;
    }
    compare_sets("embedding_forward", of(cols), [=](Side& side, Source& values) {
      side.kernels.embedding_forward(side.stream(), {.tokens = side.put(tokens),
                                                     .weight = side.put(values(7 * cols)),
                                                     .out = side.result(zeros(rows * cols)),
                                                     .rows = rows,
                                                     .cols = cols,
                                                     .vocab = 7,
                                                     .scale = 0.3F});
    });
    compare_sets("embedding_backward", of(cols), [=](Side& side, Source& values) {
      side.kernels.embedding_backward(side.stream(), {.tokens = side.put(tokens),
                                                      .dout = side.put(values(rows * cols)),
                                                      .dweight = side.result(values(7 * cols)),
                                                      .rows = rows,
                                                      .cols = cols,
                                                      .vocab = 7,
                                                      .accumulate = true,
                                                      .scale = 0.3F});
    });
  }
}

}  // namespace
}  // namespace train::kernels::testing::instruction_sets_test
