// CUDA twins of attention: fp32 on shared memory tiles, bf16 on tensor cores.
#include <limits>

#include "kernels/attention/attention.hpp"
#include "tests/kernels/cuda_fixture.hpp"

namespace train::kernels::testing::cuda_attention_test {
namespace {

struct AttentionCase {
  std::int64_t sequences, seq_len, heads, head_dim;
  std::int64_t gap = 0;      ///< Between the rows of tokens: 1 leaves no chunk of 16 bytes aligned.
  bool shared_keys = false;  ///< All heads read the keys and values of the first one.
  unsigned seed = 1;

  [[nodiscard]] std::string name() const {
    return fmt::format("{} x {}, {} heads of {}{}{}", sequences, seq_len, heads, head_dim,
                       gap > 0 ? fmt::format(" gap {}", gap) : "",
                       shared_keys ? " shared keys" : "");
  }
  [[nodiscard]] std::int64_t tokens() const { return sequences * seq_len; }
  [[nodiscard]] std::int64_t width() const { return heads * head_dim; }
  [[nodiscard]] RowLayout fused() const {
    return {.outer_stride = 3 * width() + gap, .inner_stride = head_dim};
  }
  [[nodiscard]] RowLayout fused_keys() const {
    return {.outer_stride = 3 * width() + gap, .inner_stride = shared_keys ? 0 : head_dim};
  }
  [[nodiscard]] RowLayout plain() const {
    return {.outer_stride = width() + gap, .inner_stride = head_dim};
  }
  [[nodiscard]] Values qkv() const { return rows(fused().outer_stride, seed, 2.0F); }
  [[nodiscard]] Values dout() const { return rows(plain().outer_stride, seed + 1, 1.0F); }
  [[nodiscard]] float scale() const { return 1.0F / std::sqrt(static_cast<float>(head_dim)); }

 private:
  /// The same values of a row whatever lies between rows, and of a sequence wherever it comes.
  [[nodiscard]] Values rows(std::int64_t stride, unsigned row_seed, float largest) const {
    Values all = untouched_values(tokens() * stride);
    const Values packed = random_values(tokens() * (stride - gap), row_seed, largest);
    for (std::int64_t token = 0; token < tokens(); ++token) {
      std::copy_n(packed.begin() + token * (stride - gap), stride - gap,
                  all.begin() + token * stride);
    }
    return all;
  }
};

struct AttentionResults {
  engine::Elements out, dqkv;
  float* lse = nullptr;
  float* delta = nullptr;
};

AttentionForwardParams forward_params(const Side& side, const AttentionCase& c,
                                      engine::Elements qkv, const AttentionResults& to) {
  return {.q = qkv,
          .k = qkv + c.width(),
          .v = qkv + 2 * c.width(),
          .out = to.out,
          .lse = to.lse,
          .sequences = c.sequences,
          .seq_len = c.seq_len,
          .heads = c.heads,
          .head_dim = c.head_dim,
          .q_layout = c.fused(),
          .k_layout = c.fused_keys(),
          .v_layout = c.fused_keys(),
          .out_layout = c.plain(),
          .scale = c.scale(),
          .dtype = side.dtype};
}

void run_forward(Side& side, const AttentionCase& c, const AttentionResults& to) {
  const auto qkv = side.elements(c.qkv());
  side.kernels.attention_forward(side.stream(), forward_params(side, c, qkv, to));
}

/// REQUIRES: to.out and to.lse are run_forward()'s.
void run_backward(Side& side, const AttentionCase& c, const AttentionResults& to) {
  const auto qkv = side.elements(c.qkv());
  const auto dout = side.elements(c.dout());
  side.kernels.attention_backward(side.stream(), {.q = qkv,
                                                  .k = qkv + c.width(),
                                                  .v = qkv + 2 * c.width(),
                                                  .out = to.out,
                                                  .dout = dout,
                                                  .lse = to.lse,
                                                  .delta = to.delta,
                                                  .dq = to.dqkv,
                                                  .dk = to.dqkv + c.width(),
                                                  .dv = to.dqkv + 2 * c.width(),
                                                  .sequences = c.sequences,
                                                  .seq_len = c.seq_len,
                                                  .heads = c.heads,
                                                  .head_dim = c.head_dim,
                                                  .q_layout = c.fused(),
                                                  .k_layout = c.fused_keys(),
                                                  .v_layout = c.fused_keys(),
                                                  .out_layout = c.plain(),
                                                  .dout_layout = c.plain(),
                                                  .dq_layout = c.fused(),
                                                  .dk_layout = c.fused(),
                                                  .dv_layout = c.fused(),
                                                  .scale = c.scale(),
                                                  .dtype = side.dtype});
}

// What rounding costs, in roundings of fp32 of 1 + |result|.

/// Sums in fp32, in another order and with other exponentials than the CPU's.
double fp32_error(const AttentionCase& c) {
  return transcendental + sum_of(c.head_dim + c.seq_len);
}

/// Half a unit in the last place of a bf16 near one.
constexpr double half_ulp = 1 << 15;

/// The result is rounded, and before it every probability: an average of values, which are at most
/// 2, moves by no more than half a unit of them.
double forward_bf16_error(const AttentionCase& c) { return (1.0 + 2.0) * half_ulp + fp32_error(c); }

/// Gradients are sums over all rows that saw a key, of products with a rounded probability (of
/// dout, at most 1) or score gradient (of queries or keys, at most 2, times a scale that leaves
/// about one of the head's columns): roundings of either sign, whose sum grows as the root of what
/// is summed, here no more than a few rows' worth of probability; five times that is far beyond
/// chance. The result is rounded too, and the forward result, which delta is made of.
double backward_bf16_error(const AttentionCase& c) {
  return (1.0 + 1.0 + 5.0 * 2.0) * half_ulp + 4.0 * fp32_error(c);
}

void compare_forward(const AttentionCase& c, DType dtype, double roundings) {
  const std::string what = c.name() + (dtype == DType::bf16 ? " bf16" : "");
  compare_sides("attention_forward", what, dtype, roundings, [&](Side& side) {
    const auto out = side.element_result(untouched_values(c.tokens() * c.plain().outer_stride));
    float* lse = side.result(untouched_values(c.tokens() * c.heads));
    run_forward(side, c, {.out = out, .dqkv = {}, .lse = lse});
  });
}

void compare_backward(const AttentionCase& c, DType dtype, double roundings) {
  const std::string what = c.name() + (dtype == DType::bf16 ? " bf16" : "");
  compare_sides("attention_backward", what, dtype, roundings, [&](Side& side) {
    const AttentionResults to{
        .out = side.elements(zeros(c.tokens() * c.plain().outer_stride)),
        .dqkv = side.element_result(untouched_values(c.tokens() * c.fused().outer_stride)),
        .lse = side.put(zeros(c.tokens() * c.heads)),
        .delta = side.result(zeros(c.tokens() * c.heads))};
    run_forward(side, c, to);
    run_backward(side, c, to);
  });
}

/// All results of one call of each pass on the device, in bf16.
Exact device_results(const AttentionCase& c) {
  Side side = cuda_side();
  side.dtype = DType::bf16;
  const AttentionResults to{
      .out = side.element_result(untouched_values(c.tokens() * c.plain().outer_stride)),
      .dqkv = side.element_result(untouched_values(c.tokens() * c.fused().outer_stride)),
      .lse = side.result(untouched_values(c.tokens() * c.heads)),
      .delta = side.result(untouched_values(c.tokens() * c.heads))};
  run_forward(side, c, to);
  run_backward(side, c, to);
  return side.results();
}

/// Of results, the part that is one sequence's, without what lies between rows.
Exact of_sequence(const AttentionCase& c, const Exact& results, std::int64_t sequence) {
  Exact part;
  auto from = results.begin();
  const auto take = [&](std::int64_t rows, std::int64_t stride, std::int64_t width) {
    for (std::int64_t row = 0; row < rows * c.sequences; ++row, from += stride) {
      if (row / rows == sequence) {
        part.insert(part.end(), from, from + width);
      }
    }
  };
  take(c.seq_len, c.plain().outer_stride, c.width());
  take(c.seq_len, c.fused().outer_stride, 3 * c.width());
  take(c.heads * c.seq_len, 1, 1);
  take(c.heads * c.seq_len, 1, 1);
  REQUIRE(from == results.end());
  return part;
}

TEST_CASE("cuda twins: attention in fp32", "[kernels][cuda][.gpu]") {
  // Every compiled width; sequences of one tile, a part of one, and several.
  const std::vector<AttentionCase> cases = {
      {2, 1, 1, 8}, {1, 64, 2, 64}, {2, 150, 2, 40}, {1, 130, 1, 128}, {1, 70, 1, 200}};
  for (const AttentionCase& c : cases) {
    compare_forward(c, DType::f32, fp32_error(c));
    compare_backward(c, DType::f32, 4.0 * fp32_error(c));
  }
}

void compare_in_bf16(std::int64_t head_dim, const std::vector<std::int64_t>& lengths) {
  for (const std::int64_t seq_len : lengths) {
    const std::int64_t heads = head_dim == 64 ? 2 : 1;
    const AttentionCase c{.sequences = 1, .seq_len = seq_len, .heads = heads, .head_dim = head_dim};
    compare_forward(c, DType::bf16, forward_bf16_error(c));
    compare_backward(c, DType::bf16, backward_bf16_error(c));
  }
}

TEST_CASE("cuda twins: attention in bf16", "[kernels][cuda][.gpu]") {
  // Widths that are compiled, and that are parts of one; lengths around the 16 rows of an
  // instruction, the tiles of 32, 64 and 128 rows, and of several.
  compare_in_bf16(64, {1, 15, 16, 17, 63, 64, 65, 200});
  compare_in_bf16(128, {1, 16, 33, 64, 130});
  compare_in_bf16(256, {1, 17, 32, 65, 130});
  compare_in_bf16(32, {17, 64});
  compare_in_bf16(80, {15, 63, 129});
}

TEST_CASE("cuda twins: attention in bf16 of every width and length",
          "[kernels][cuda][.gpu][soak]") {
  for (const std::int64_t head_dim : {32, 64, 80, 128, 256}) {
    compare_in_bf16(head_dim, {1, 15, 16, 17, 63, 64, 65, 200, 257});
  }
}

TEST_CASE("cuda twins: attention in bf16 of other layouts", "[kernels][cuda][.gpu]") {
  const std::vector<AttentionCase> cases = {
      {.sequences = 3, .seq_len = 70, .heads = 2, .head_dim = 64},
      {.sequences = 2, .seq_len = 130, .heads = 3, .head_dim = 128, .gap = 8},
      {.sequences = 2, .seq_len = 66, .heads = 4, .head_dim = 64, .gap = 0, .shared_keys = true},
      {.sequences = 2, .seq_len = 40, .heads = 2, .head_dim = 12},  // No whole chunks.
      {.sequences = 1, .seq_len = 40, .heads = 2, .head_dim = 96, .gap = 3}};
  for (const AttentionCase& c : cases) {
    compare_forward(c, DType::bf16, forward_bf16_error(c));
    compare_backward(c, DType::bf16, backward_bf16_error(c));
  }
}

TEST_CASE("cuda attention: the same bits again, for any number of sequences, wherever they lie",
          "[kernels][cuda][.gpu][P1]") {
  if (no_device()) {
    return;
  }
  // Of each width the first tile of every kernel, and a part of the next.
  const std::vector<AttentionCase> cases = {
      {.sequences = 3, .seq_len = 70, .heads = 2, .head_dim = 64},
      {.sequences = 2, .seq_len = 140, .heads = 1, .head_dim = 128},
      {.sequences = 2, .seq_len = 135, .heads = 1, .head_dim = 256}};
  for (const AttentionCase& several : cases) {
    INFO("head_dim " << several.head_dim);
    const Exact all = device_results(several);
    const bool again = device_results(several) == all;
    CHECK(again);
    AttentionCase one = several;
    one.sequences = 1;
    // Values come one sequence after the other, so the first one's are the same.
    const bool alone = device_results(one) == of_sequence(several, all, 0);
    CHECK(alone);
    // By whole chunks of 16 bytes: rows that begin elsewhere may be another kernel's.
    AttentionCase apart = several;
    apart.gap = 8;
    const Exact moved = device_results(apart);
    for (std::int64_t sequence = 0; sequence < several.sequences; ++sequence) {
      const bool same = of_sequence(apart, moved, sequence) == of_sequence(several, all, sequence);
      CHECK(same);
    }
  }
}

TEST_CASE("cuda attention: what is not a number comes through", "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  const AttentionCase c{.sequences = 1, .seq_len = 100, .heads = 1, .head_dim = 64};
  constexpr std::int64_t nonfinite = 70;
  for (const std::int64_t tensor : {0, 1, 2}) {  // q, k, v.
    INFO("tensor " << tensor);
    Side side = cuda_side();
    side.dtype = DType::bf16;
    Values values = c.qkv();
    values[at(nonfinite * c.fused().outer_stride + tensor * c.head_dim)] =
        std::numeric_limits<float>::quiet_NaN();
    const AttentionResults to{.out = side.element_result(zeros(c.tokens() * c.head_dim)),
                              .dqkv = {},
                              .lse = side.put(zeros(c.tokens()))};
    side.kernels.attention_forward(side.stream(),
                                   forward_params(side, c, side.elements(values), to));
    const Exact out = side.results();
    for (std::int64_t row = 0; row < c.seq_len; ++row) {
      // A value is multiplied by the zeros of rows of its tile that do not see it.
      const bool may_be = tensor == 2 && row >= nonfinite / 128 * 128;
      const bool reached = tensor == 0 ? row == nonfinite : row >= nonfinite;
      INFO("row " << row);
      CHECK((std::isnan(out[at(row * c.head_dim)]) == reached || may_be));
    }
  }
}

}  // namespace
}  // namespace train::kernels::testing::cuda_attention_test
