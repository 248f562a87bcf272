// CUDA twins of what a model is made of.
#include <random>

#include "kernels/activation/activation.hpp"
#include "kernels/embedding/embedding.hpp"
#include "kernels/gemm/matmul.hpp"
#include "kernels/head/head_loss.hpp"
#include "tests/kernels/cuda_fixture.hpp"

namespace train::kernels::testing::cuda_model_test {
namespace {

std::vector<std::int32_t> random_ids(std::int64_t count, std::int32_t least, std::int32_t most,
                                     unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<std::int32_t> uniform(least, most);
  std::vector<std::int32_t> ids(at(count));
  for (std::int32_t& id : ids) {
    id = uniform(generator);
  }
  return ids;
}

TEST_CASE("cuda twins: matmul", "[kernels][cuda][.gpu]") {
  constexpr std::int64_t m = 70;
  constexpr std::int64_t n = 96;
  for (const std::int64_t k : {0, 33, 128}) {
    for (const int flags : {0, 1, 2, 3, 4, 6}) {
      MatmulParams params{.m = m,
                          .n = n,
                          .k = k,
                          .transpose_a = (flags & 1) != 0,
                          .transpose_b = (flags & 2) != 0,
                          .accumulate = (flags & 4) != 0};
      params.lda = (params.transpose_a ? m : k) + 3;  // Rows that are no whole vectors.
      params.ldb = (params.transpose_b ? k : n) + 8;
      params.ldc = n + 4;
      const auto what =
          fmt::format("k={}{}{}{}", k, params.transpose_a ? " a^T" : "",
                      params.transpose_b ? " b^T" : "", params.accumulate ? " accumulate" : "");
      const auto multiply = [params](Side& side, bool wide_output) {
        MatmulParams p = params;
        p.a = side.elements(random_values((p.transpose_a ? p.k : p.m) * p.lda + 1, 1));
        p.b = side.elements(random_values((p.transpose_b ? p.n : p.k) * p.ldb + 1, 2));
        const Values c = random_values(p.m * p.ldc, 3);
        p.c = wide_output ? engine::Elements(side.result(c)) : side.element_result(c);
        p.dtype = side.dtype;
        p.output_dtype = wide_output ? DType::f32 : side.dtype;
        side.kernels.matmul(side.stream(), p);
      };
      compare_twins("matmul", what, sum_of(k), bf16_rounding + sum_of(k),
                    [&](Side& side) { multiply(side, false); });
      // Products of bf16 are exact in fp32.
      compare_sides("matmul", what + " bf16 to fp32", DType::bf16, sum_of(k),
                    [&](Side& side) { multiply(side, true); });
    }
  }
}

TEST_CASE("cuda twins: embedding", "[kernels][cuda][.gpu]") {
  constexpr std::int64_t rows = 300;
  constexpr std::int64_t vocab = 40;
  constexpr std::int64_t cols = 261;
  const std::vector<std::int32_t> tokens = random_ids(rows, 0, 30, 5);  // Some never come.
  compare_twins("embedding_forward", "300 tokens", same_bits, same_bits, [&](Side& side) {
    const auto weight = side.elements(random_values(vocab * cols, 1));
    const auto out = side.element_result(zeros(rows * cols));
    side.kernels.embedding_forward(side.stream(), {.tokens = side.put(tokens),
                                                   .weight = weight,
                                                   .out = out,
                                                   .rows = rows,
                                                   .cols = cols,
                                                   .vocab = vocab,
                                                   .dtype = side.dtype});
  });
  for (const bool accumulate : {false, true}) {
    compare_twins("embedding_backward", accumulate ? "accumulate" : "overwrite", same_bits,
                  same_bits, [&](Side& side) {
                    const auto dout = side.elements(random_values(rows * cols, 1));
                    float* dweight = side.result(random_values(vocab * cols, 2));
                    side.kernels.embedding_backward(side.stream(), {.tokens = side.put(tokens),
                                                                    .dout = dout,
                                                                    .dweight = dweight,
                                                                    .rows = rows,
                                                                    .cols = cols,
                                                                    .vocab = vocab,
                                                                    .accumulate = accumulate,
                                                                    .dtype = side.dtype});
                  });
  }
}

TEST_CASE("cuda twins: activation", "[kernels][cuda][.gpu]") {
  constexpr std::int64_t count = 2049;
  compare_twins("gelu_forward", "8 standard deviations", transcendental, bf16_rounding,
                [](Side& side) {
                  const auto x = side.elements(random_values(count, 1, 8.0F));
                  const auto y = side.element_result(zeros(count));
                  side.kernels.gelu_forward(side.stream(),
                                            {.x = x, .y = y, .count = count, .dtype = side.dtype});
                });
  compare_twins("gelu_backward", "in place, forward again", transcendental, bf16_rounding,
                [](Side& side) {
                  const auto x = side.elements(random_values(count, 1, 8.0F));
                  const auto dx = side.element_result(random_values(count, 2));
                  const auto y = side.element_result(zeros(count));
                  side.kernels.gelu_backward(
                      side.stream(),
                      {.x = x, .dy = dx, .dx = dx, .y = y, .count = count, .dtype = side.dtype});
                });
  compare_twins("swiglu_forward", "gates to 30", transcendental, bf16_rounding, [](Side& side) {
    const auto gate = side.elements(random_values(count, 1, 30.0F));
    const auto up = side.elements(random_values(count, 2));
    const auto y = side.element_result(zeros(count));
    side.kernels.swiglu_forward(
        side.stream(), {.gate = gate, .up = up, .y = y, .count = count, .dtype = side.dtype});
  });
  compare_twins("swiglu_backward", "in place, forward again", transcendental, bf16_rounding,
                [](Side& side) {
                  const auto gate = side.elements(random_values(count, 1, 30.0F));
                  const auto up = side.elements(random_values(count, 2));
                  const auto dup = side.element_result(random_values(count, 3));
                  const auto dgate = side.element_result(zeros(count));
                  const auto y = side.element_result(zeros(count));
                  side.kernels.swiglu_backward(side.stream(), {.gate = gate,
                                                               .up = up,
                                                               .dy = dup,
                                                               .dgate = dgate,
                                                               .dup = dup,
                                                               .y = y,
                                                               .count = count,
                                                               .dtype = side.dtype});
                });
}

TEST_CASE("cuda twins: sigmoid gate", "[kernels][cuda][.gpu]") {
  constexpr std::int64_t tokens = 29;
  constexpr std::int64_t heads = 3;
  const bool vectors = GENERATE(false, true);  // Rows of whole ones, at whole ones' places.
  const std::int64_t dim = vectors ? 24 : 20;
  const RowLayout wide{.outer_stride = heads * dim + (vectors ? 16 : 9), .inner_stride = dim};
  const RowLayout narrow{.outer_stride = heads * dim, .inner_stride = dim};
  compare_twins("sigmoid_gate_forward", vectors ? "in vectors" : "by layout", transcendental,
                bf16_rounding, [&](Side& side) {
                  const auto x = side.elements(random_values(tokens * wide.outer_stride, 1));
                  const auto gate =
                      side.elements(random_values(tokens * wide.outer_stride, 2, 9.0F));
                  const auto y = side.element_result(zeros(tokens * narrow.outer_stride));
                  side.kernels.sigmoid_gate_forward(side.stream(), {.x = x,
                                                                    .gate = gate,
                                                                    .y = y,
                                                                    .tokens = tokens,
                                                                    .heads = heads,
                                                                    .head_dim = dim,
                                                                    .x_layout = wide,
                                                                    .gate_layout = wide,
                                                                    .y_layout = narrow,
                                                                    .dtype = side.dtype});
                });
  compare_twins(
      "sigmoid_gate_backward", vectors ? "in vectors" : "dx is dy", transcendental, bf16_rounding,
      [&](Side& side) {
        const auto x = side.elements(random_values(tokens * wide.outer_stride, 1));
        const auto gate = side.elements(random_values(tokens * wide.outer_stride, 2, 9.0F));
        const auto dx = side.element_result(random_values(tokens * narrow.outer_stride, 3));
        const auto dgate = side.element_result(zeros(tokens * wide.outer_stride));
        side.kernels.sigmoid_gate_backward(side.stream(), {.x = x,
                                                           .gate = gate,
                                                           .dy = dx,
                                                           .dx = dx,
                                                           .dgate = dgate,
                                                           .tokens = tokens,
                                                           .heads = heads,
                                                           .head_dim = dim,
                                                           .x_layout = wide,
                                                           .gate_layout = wide,
                                                           .dy_layout = narrow,
                                                           .dx_layout = narrow,
                                                           .dgate_layout = wide,
                                                           .dtype = side.dtype});
      });
}

TEST_CASE("cuda twins: head loss", "[kernels][cuda][.gpu]") {
  constexpr std::int64_t rows = 45;
  constexpr std::int64_t cols = 48;
  constexpr std::int64_t vocab = 601;
  for (const bool gradient : {false, true}) {
    const double tolerance = transcendental + sum_of(cols + rows);
    // In bf16 gradients of logits are rounded before they are multiplied; the loss is not.
    const double bf16 = gradient ? 2.0 * bf16_rounding + tolerance : tolerance;
    compare_twins(
        "head_loss", gradient ? "with gradients" : "loss alone", tolerance, bf16, [&](Side& side) {
          HeadLossParams params{.rows = rows,
                                .cols = cols,
                                .vocab = vocab,
                                .chunk_rows = 16,
                                .loss_scale = 0.3F,
                                .z_scale = 1e-3F,
                                .dtype = side.dtype};
          params.x = side.elements(random_values(rows * cols, 1));
          params.weight = side.elements(random_values(vocab * cols, 2));
          params.targets = side.put(random_ids(rows, -1, vocab - 1, 3));
          params.sums = side.result(std::vector<LossSums>(1));
          params.dx =
              gradient ? side.element_result(untouched_values(rows * cols)) : engine::Elements();
          params.dweight = gradient ? side.result(untouched_values(vocab * cols)) : nullptr;
          params.logits = side.put(zeros(16 * vocab));
          params.row_terms = side.put(Exact(at(rows * 4)));
          side.kernels.head_loss(side.stream(), params);
        });
  }
  compare_twins("head_loss", "no rows", same_bits, [](Side& side) {
    HeadLossParams params{.cols = cols, .vocab = 7, .chunk_rows = 4};
    params.sums = side.result(std::vector<LossSums>{{.cross_entropy = 3.0}});
    params.dx = side.put(zeros(1));
    params.dweight = side.result(untouched_values(7 * cols));
    side.kernels.head_loss(side.stream(), params);
  });
}

}  // namespace
}  // namespace train::kernels::testing::cuda_model_test
