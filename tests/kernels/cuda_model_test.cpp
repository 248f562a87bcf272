// CUDA twins of what a model is made of.
#include <random>

#include "tests/kernels/cuda_fixture.hpp"

namespace train::kernels::testing {
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

/// Heads of a fused projection: rows of `cols` at a stride, three heads of each token.
struct NormCase {
  NormKind kind;
  std::int64_t tokens, inner, cols;
  bool rotated, accumulate;
  [[nodiscard]] std::string name() const {
    return fmt::format("{} {}x{}x{}{}{}", kind == NormKind::layer ? "layer" : "rms", tokens, inner,
                       cols, rotated ? " rotated" : "", accumulate ? " accumulate" : "");
  }
  [[nodiscard]] RowLayout layout() const {
    return {.outer_stride = inner * cols + 5, .inner_stride = cols};
  }
  [[nodiscard]] std::int64_t size() const { return tokens * layout().outer_stride; }
};

const std::vector<NormCase>& norm_cases() {
  static const std::vector<NormCase> cases = {{NormKind::layer, 37, 1, 100, false, false},
                                              {NormKind::layer, 300, 1, 768, false, true},
                                              {NormKind::rms, 50, 3, 64, true, false},
                                              {NormKind::rms, 21, 1, 33, false, true},
                                              {NormKind::layer, 1, 1, 1, false, false}};
  return cases;
}

RowRotation rotation_of(Side& side, const NormCase& norm) {
  constexpr std::int64_t seq_len = 25;
  if (!norm.rotated) {
    return {};
  }
  float* cos = side.put(random_values(seq_len * norm.cols / 2, 11));
  float* sin = side.put(random_values(seq_len * norm.cols / 2, 12));
  return {.cos = cos, .sin = sin, .seq_len = seq_len};
}

TEST_CASE("cuda twins: norm", "[kernels][cuda][.gpu]") {
  for (const NormCase& norm : norm_cases()) {
    const std::int64_t rows = norm.tokens * norm.inner;
    // In bf16 the sum with the branch is rounded before it is normalised, by up to rstd = 2.
    const double bf16 = (norm.accumulate ? 4.0 : 1.0) * bf16_rounding + sum_of(norm.cols);
    compare_twins("norm_forward", norm.name(), sum_of(norm.cols), bf16, [&](Side& side) {
      NormForwardParams params{.kind = norm.kind,
                               .outer = norm.tokens,
                               .inner = norm.inner,
                               .cols = norm.cols,
                               .x_layout = norm.layout(),
                               .y_layout = norm.layout(),
                               .dtype = side.dtype};
      const auto x = side.element_result(random_values(norm.size(), 1));
      params.x = x;
      params.y = norm.rotated ? x : side.element_result(untouched_values(norm.size()));
      params.weight = side.elements(random_values(norm.cols, 2));
      params.mean = norm.kind == NormKind::layer ? side.result(zeros(rows)) : nullptr;
      params.rstd = side.result(zeros(rows));
      if (norm.accumulate) {  // The pass back adds to a gradient where this one added a branch.
        params.residual = {.base = side.elements(random_values(norm.size(), 6)),
                           .branch = side.elements(random_values(norm.size(), 7)),
                           .sum = x,
                           .scale = 0.4F};
      }
      params.rotation = rotation_of(side, norm);
      side.kernels.norm_forward(side.stream(), params);
    });
    // In bf16 the rotated gradient is rounded before it goes on, in dweight as many times as rows.
    const double back = (norm.rotated ? 8.0 : 1.0) * bf16_rounding + sum_of(norm.cols + rows);
    compare_twins("norm_backward", norm.name(), sum_of(norm.cols + rows), back, [&](Side& side) {
      NormBackwardParams params{.kind = norm.kind,
                                .outer = norm.tokens,
                                .inner = norm.inner,
                                .cols = norm.cols,
                                .x_layout = norm.layout(),
                                .dy_layout = norm.layout(),
                                .dx_layout = norm.layout(),
                                .dy_scale = 0.7F,
                                .accumulate_dx = norm.accumulate,
                                .dtype = side.dtype};
      params.x = side.elements(random_values(norm.size(), 1));
      params.weight = side.elements(random_values(norm.cols, 2));
      params.mean = side.put(random_values(rows, 3, 0.1F));
      params.rstd = side.put(Values(at(rows), 1.7F));
      const auto dy = side.element_result(random_values(norm.size(), 4));
      params.dy = dy;
      params.dx = norm.accumulate ? side.element_result(random_values(norm.size(), 5)) : dy;
      params.dweight = side.result(untouched_values(norm.cols));
      params.rotation = rotation_of(side, norm);
      side.kernels.norm_backward(side.stream(), params);
    });
  }
}

TEST_CASE("cuda twins: rope", "[kernels][cuda][.gpu]") {
  compare_twins("rope_table", "50 x 64", transcendental, [](Side& side) {
    float* cos = side.result(zeros(50 * 32));
    float* sin = side.result(zeros(50 * 32));
    side.kernels.rope_table(side.stream(), {.cos = cos, .sin = sin, .seq_len = 50, .head_dim = 64});
  });
  for (const bool inverse : {false, true}) {
    compare_twins(
        "rope_apply", inverse ? "inverse" : "forward", same_bits, bf16_rounding, [&](Side& side) {
          RopeParams params{.tokens = 60,
                            .seq_len = 20,
                            .heads = 3,
                            .head_dim = 34,
                            .layout = {.outer_stride = 3 * 34 + 7, .inner_stride = 34},
                            .inverse = inverse,
                            .dtype = side.dtype};
          params.x = side.element_result(random_values(60 * params.layout.outer_stride, 1));
          params.cos = side.put(random_values(20 * 17, 2));
          params.sin = side.put(random_values(20 * 17, 3));
          side.kernels.rope_apply(side.stream(), params);
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
}  // namespace train::kernels::testing
