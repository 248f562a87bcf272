// CUDA twins of attention where a query does not see all keys before it, heads share keys or have
// sinks, values have a width of their own, or scores are capped.
#include <limits>

#include "kernels/attention/attention.hpp"
#include "tests/kernels/cuda_fixture.hpp"

namespace train::kernels::testing::cuda_attention_sight_test {
namespace {

struct SightCase {
  std::int64_t sequences = 1, seq_len = 0, heads = 1, kv_heads = 1, head_dim = 0;
  std::int64_t value_dim = 0;  ///< 0: head_dim.
  std::int64_t window = 0;
  float softcap = 0.0F;
  std::vector<std::int64_t> documents = {};  ///< Lengths; the last one again, to a sequence's end.
  std::int64_t gap = 0;                      ///< Elements between the rows of tokens.
  bool sinks = false;
  std::int64_t prefix = 0;

  [[nodiscard]] std::string name() const {
    return fmt::format("{}x{}, {}/{} of {}/{}{}{}{}{}{}{}", sequences, seq_len, heads, kv_heads,
                       head_dim, values(), window > 0 ? fmt::format(" window {}", window) : "",
                       softcap > 0.0F ? " capped" : "", documents.empty() ? "" : " documents",
                       gap > 0 ? " gap" : "", sinks ? " sinks" : "",
                       prefix > 0 ? fmt::format(" prefix {}", prefix) : "");
  }
  [[nodiscard]] std::int64_t values() const { return value_dim == 0 ? head_dim : value_dim; }
  [[nodiscard]] std::int64_t tokens() const { return sequences * seq_len; }
  [[nodiscard]] RowLayout query() const { return layout(heads, head_dim); }
  [[nodiscard]] RowLayout key() const { return layout(kv_heads, head_dim); }
  [[nodiscard]] RowLayout value() const { return layout(kv_heads, values()); }
  [[nodiscard]] RowLayout out() const { return layout(heads, values()); }
  [[nodiscard]] Values random(const RowLayout& rows, unsigned seed, float largest) const {
    return random_values(tokens() * rows.outer_stride, seed, largest);
  }
  [[nodiscard]] std::vector<std::int32_t> positions() const {
    std::vector<std::int32_t> all;
    for (std::int64_t sequence = 0; sequence < sequences && !documents.empty(); ++sequence) {
      const std::int64_t end = (sequence + 1) * seq_len;
      for (std::size_t d = 0; std::ssize(all) < end; d = std::min(d + 1, documents.size() - 1)) {
        for (std::int64_t t = 0; t < documents[d] && std::ssize(all) < end; ++t) {
          all.push_back(static_cast<std::int32_t>(t));
        }
      }
    }
    return all;
  }

 private:
  [[nodiscard]] RowLayout layout(std::int64_t count, std::int64_t width) const {
    return {.outer_stride = count * width + gap, .inner_stride = width};
  }
};

/// What a side's calls read and write.
struct Tensors {
  engine::Elements q, k, v, out, dout, dq, dk, dv;
  float* lse = nullptr;
  float* delta = nullptr;
  const float* sinks = nullptr;
  const std::int32_t* positions = nullptr;
};

Tensors tensors_of(Side& side, const SightCase& c) {
  Tensors t;
  t.q = side.elements(c.random(c.query(), 1, 2.0F));
  t.k = side.elements(c.random(c.key(), 2, 2.0F));
  t.v = side.elements(c.random(c.value(), 3, 2.0F));
  t.dout = side.elements(c.random(c.out(), 4, 1.0F));
  t.out = side.element_result(untouched_values(c.tokens() * c.out().outer_stride));
  t.lse = side.result(untouched_values(c.tokens() * c.heads));
  t.sinks = c.sinks ? side.put(random_values(c.heads, 5, 3.0F)) : nullptr;
  const std::vector<std::int32_t> positions = c.positions();
  t.positions = positions.empty() ? nullptr : side.put(positions);
  return t;
}

/// With what the backward pass leaves. One result more than the forward pass's.
Tensors all_tensors_of(Side& side, const SightCase& c) {
  Tensors t = tensors_of(side, c);
  t.delta = side.put(zeros(c.tokens() * c.heads));
  t.dq = side.element_result(untouched_values(c.tokens() * c.query().outer_stride));
  t.dk = side.element_result(untouched_values(c.tokens() * c.key().outer_stride));
  t.dv = side.element_result(untouched_values(c.tokens() * c.value().outer_stride));
  return t;
}

float scale_of(const SightCase& c) { return 1.0F / std::sqrt(static_cast<float>(c.head_dim)); }

void run_forward(Side& side, const SightCase& c, const Tensors& t) {
  side.kernels.attention_forward(side.stream(), {.q = t.q,
                                                 .k = t.k,
                                                 .v = t.v,
                                                 .out = t.out,
                                                 .lse = t.lse,
                                                 .positions = t.positions,
                                                 .sequences = c.sequences,
                                                 .seq_len = c.seq_len,
                                                 .heads = c.heads,
                                                 .head_dim = c.head_dim,
                                                 .value_dim = c.value_dim,
                                                 .kv_heads = c.kv_heads,
                                                 .window = c.window,
                                                 .prefix = c.prefix,
                                                 .softcap = c.softcap,
                                                 .q_layout = c.query(),
                                                 .k_layout = c.key(),
                                                 .v_layout = c.value(),
                                                 .out_layout = c.out(),
                                                 .scale = scale_of(c),
                                                 .dtype = side.dtype,
                                                 .sinks = t.sinks});
}

void run_backward(Side& side, const SightCase& c, const Tensors& t) {
  side.kernels.attention_backward(side.stream(), {.q = t.q,
                                                  .k = t.k,
                                                  .v = t.v,
                                                  .out = t.out,
                                                  .dout = t.dout,
                                                  .lse = t.lse,
                                                  .positions = t.positions,
                                                  .delta = t.delta,
                                                  .dq = t.dq,
                                                  .dk = t.dk,
                                                  .dv = t.dv,
                                                  .sequences = c.sequences,
                                                  .seq_len = c.seq_len,
                                                  .heads = c.heads,
                                                  .head_dim = c.head_dim,
                                                  .value_dim = c.value_dim,
                                                  .kv_heads = c.kv_heads,
                                                  .window = c.window,
                                                  .prefix = c.prefix,
                                                  .softcap = c.softcap,
                                                  .q_layout = c.query(),
                                                  .k_layout = c.key(),
                                                  .v_layout = c.value(),
                                                  .out_layout = c.out(),
                                                  .dout_layout = c.out(),
                                                  .dq_layout = c.query(),
                                                  .dk_layout = c.key(),
                                                  .dv_layout = c.value(),
                                                  .scale = scale_of(c),
                                                  .dtype = side.dtype});
}

/// Sums in fp32, in another order and with other exponentials than the CPU's; those of a group are
/// as many times longer.
double fp32_error(const SightCase& c) {
  return transcendental + sum_of(c.head_dim + c.seq_len * c.heads / c.kv_heads);
}

/// As in cuda_attention_test.cpp; gradients of keys and values are a group's, whose roundings of
/// either sign grow as a root.
double bf16_error(const SightCase& c, bool backward) {
  constexpr double half_ulp = 1 << 15;
  const double group = std::sqrt(static_cast<double>(c.heads) / static_cast<double>(c.kv_heads));
  return (backward ? 2.0 + 10.0 * group : 3.0) * half_ulp + 4.0 * fp32_error(c);
}

void compare(const SightCase& c, bool in_fp32, bool in_bf16) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    if (dtype == DType::f32 ? !in_fp32 : !in_bf16) {
      continue;
    }
    const bool half = dtype == DType::bf16;
    const std::string what = c.name() + (half ? " bf16" : "");
    compare_sides("attention_forward", what, dtype, half ? bf16_error(c, false) : fp32_error(c),
                  [&](Side& side) { run_forward(side, c, tensors_of(side, c)); });
    compare_sides("attention_backward", what, dtype,
                  half ? bf16_error(c, true) : 4.0 * fp32_error(c), [&](Side& side) {
                    const Tensors t = all_tensors_of(side, c);
                    run_forward(side, c, t);
                    run_backward(side, c, t);
                  });
  }
}

TEST_CASE("cuda twins: attention of grouped queries", "[kernels][cuda][.gpu]") {
  compare({.sequences = 2, .seq_len = 70, .heads = 4, .kv_heads = 2, .head_dim = 64}, true, true);
  compare({.seq_len = 150, .heads = 3, .kv_heads = 1, .head_dim = 128}, true, true);
  compare({.seq_len = 70, .heads = 4, .kv_heads = 2, .head_dim = 200}, true, true);
  compare({.seq_len = 66, .heads = 6, .kv_heads = 2, .head_dim = 20, .gap = 1}, true, true);
  compare({.seq_len = 1, .heads = 2, .kv_heads = 1, .head_dim = 64}, true, true);
}

TEST_CASE("cuda twins: attention with a window", "[kernels][cuda][.gpu]") {
  // Windows of one key, of less than a tile, of a tile and one more or less, of several tiles, and
  // of all.
  for (const std::int64_t window : {1, 63, 64, 65, 130}) {
    compare({.seq_len = 200, .head_dim = 64, .window = window}, true, true);
  }
  for (const std::int64_t window : {17, 1000}) {
    compare({.seq_len = 70, .head_dim = 64, .window = window}, true, true);
  }
  compare({.seq_len = 200, .heads = 2, .kv_heads = 1, .head_dim = 128, .window = 70}, true, true);
  compare({.seq_len = 135, .heads = 2, .kv_heads = 1, .head_dim = 256, .window = 40}, true, true);
}

TEST_CASE("cuda twins: attention with a window and a prefix", "[kernels][cuda][.gpu]") {
  for (const std::int64_t prefix : {1, 63, 64, 130, 300}) {
    compare({.seq_len = 200, .head_dim = 64, .window = 20, .prefix = prefix}, true, false);
  }
  compare({.seq_len = 200,
           .heads = 5,
           .kv_heads = 1,
           .head_dim = 64,
           .value_dim = 128,
           .window = 65,
           .prefix = 128},
          true, false);
  compare({.seq_len = 200, .head_dim = 16, .window = 9, .documents = {90, 3}, .prefix = 4}, true,
          false);
}

TEST_CASE("cuda twins: attention with capped scores", "[kernels][cuda][.gpu]") {
  // Scores are of size 1: a cap of 0.5 bends nearly all of them, one of 50 next to none.
  for (const float cap : {0.5F, 2.0F, 50.0F}) {
    compare({.seq_len = 130, .heads = 2, .kv_heads = 1, .head_dim = 64, .softcap = cap}, true,
            true);
  }
  compare({.seq_len = 140, .head_dim = 128, .window = 50, .softcap = 2.0F}, true, true);
  compare({.seq_len = 70, .head_dim = 256, .window = 50, .softcap = 2.0F}, true, true);
}

TEST_CASE("cuda twins: attention of documents", "[kernels][cuda][.gpu]") {
  const std::vector<std::vector<std::int64_t>> documents = {
      {1}, {200}, {64, 64}, {63, 2, 128}, {5, 1, 133, 1, 1, 40}};
  for (const auto& lengths : documents) {
    compare({.seq_len = 200, .head_dim = 64, .documents = lengths}, true, true);
  }
  compare({.sequences = 2, .seq_len = 140, .head_dim = 64, .documents = {90, 3}}, true, true);
  for (const std::int64_t head_dim : {128, 256}) {
    compare({.seq_len = 170,
             .heads = 2,
             .kv_heads = 1,
             .head_dim = head_dim,
             .window = 50,
             .softcap = 3.0F,
             .documents = {33, 80, 20}},
            true, true);
  }
}

TEST_CASE("cuda twins: attention with values of another width", "[kernels][cuda][.gpu]") {
  compare({.seq_len = 70, .heads = 2, .kv_heads = 2, .head_dim = 192, .value_dim = 128}, true,
          true);
  compare({.seq_len = 100, .heads = 2, .kv_heads = 1, .head_dim = 24, .value_dim = 40}, true, true);
  compare({.seq_len = 40, .head_dim = 16, .value_dim = 13, .documents = {7}, .gap = 2}, true, true);
}

TEST_CASE("cuda twins: attention with sinks", "[kernels][cuda][.gpu]") {
  for (const std::int64_t head_dim : {64, 128, 256}) {
    compare({.sequences = 2,
             .seq_len = 135,
             .heads = 2,
             .kv_heads = 1,
             .head_dim = head_dim,
             .sinks = true},
            true, true);
  }
  compare({.seq_len = 200, .heads = 2, .kv_heads = 1, .head_dim = 64, .window = 70, .sinks = true},
          true, true);
  compare({.seq_len = 70,
           .heads = 2,
           .kv_heads = 2,
           .head_dim = 40,
           .value_dim = 24,
           .softcap = 2.0F,
           .documents = {30, 9},
           .gap = 1,
           .sinks = true},
          true, true);
}

TEST_CASE("cuda twins: gradients of sinks", "[kernels][cuda][.gpu]") {
  for (const std::int64_t seq_len : {1, 255, 700}) {
    constexpr std::int64_t sequences = 2;
    constexpr std::int64_t heads = 3;
    compare_sides("attention_sinks_backward", fmt::format("{} rows", seq_len), DType::f32,
                  transcendental + sum_of(sequences * seq_len), [&](Side& side) {
                    Values lse = random_values(sequences * heads * seq_len, 6, 2.0F);
                    for (float& value : lse) {
                      value += 3.0F;  // At least the sink.
                    }
                    side.kernels.attention_sinks_backward(
                        side.stream(),
                        {.sinks = side.put(random_values(heads, 5)),
                         .lse = side.put(lse),
                         .delta = side.put(random_values(sequences * heads * seq_len, 7)),
                         .dsinks = side.result(untouched_values(heads)),
                         .sequences = sequences,
                         .seq_len = seq_len,
                         .heads = heads});
                  });
  }
}

/// All results of one call of each pass on the device.
Exact device_results(const SightCase& c, DType dtype) {
  Side side = cuda_side();
  side.dtype = dtype;
  const Tensors t = all_tensors_of(side, c);
  run_forward(side, c, t);
  run_backward(side, c, t);
  return side.results();
}

TEST_CASE("cuda attention: a window or documents that hold all change no bit that they need not",
          "[kernels][cuda][.gpu][P1]") {
  if (no_device()) {
    return;
  }
  for (const DType dtype : {DType::f32, DType::bf16}) {
    // At 64 columns tiles are the same with and without limits.
    SightCase c{.sequences = 2, .seq_len = 150, .heads = 2, .kv_heads = 1, .head_dim = 64};
    const Exact all = device_results(c, dtype);
    const auto same = [&] { return device_results(c, dtype) == all; };
    CHECK(same());
    c.window = 150;
    CHECK(same());
    c.documents = {150};
    CHECK(same());
  }
}

/// Forward results with a value of key `key` that is not a number.
Exact results_with_nan(const SightCase& c, DType dtype, std::int64_t key) {
  Side side = cuda_side();
  side.dtype = dtype;
  Tensors t = tensors_of(side, c);
  Values v = c.random(c.value(), 3, 2.0F);
  v[at(key * c.value().outer_stride)] = std::numeric_limits<float>::quiet_NaN();
  t.v = side.elements(v);
  run_forward(side, c, t);
  return side.results();
}

// A probability of zero times what is not a number is none: where that does not come through, the
// tile was left out.
TEST_CASE("cuda attention: tiles that nobody sees are skipped", "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t head_dim : {64, 128, 256}) {
      SightCase c{.seq_len = 450, .head_dim = head_dim, .window = 20};
      for (const bool documents : {false, true}) {
        if (documents) {
          c.window = 0;
          c.documents = {20};
        }
        const Exact out = results_with_nan(c, dtype, 0);
        std::int64_t reached = 0;
        for (std::int64_t row = 0; row < c.seq_len; ++row) {
          reached += std::isnan(out[at(row * c.out().outer_stride)]) ? 1 : 0;
        }
        INFO(c.name() << (dtype == DType::bf16 ? " bf16" : ""));
        CHECK(reached >= 20);
        CHECK(reached <= 194);  // 64 queries of a warpgroup, which see a key of 128 in one tile.
      }
    }
  }
}

TEST_CASE("cuda attention: positions that are no documents' fail the stream",
          "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  const std::vector<std::vector<std::int32_t>> wrong = {
      {1, 2, 3}, {0, 1, 3}, {0, 0, 2}, {0, -1, 0}, {0, 1000, 0}};
  const SightCase c{.seq_len = 3, .head_dim = 16};
  for (const auto& positions : wrong) {
    Side side = cuda_side();
    Tensors t = tensors_of(side, c);
    t.positions = side.put(positions);
    run_forward(side, c, t);
    CHECK_THROWS_WITH(side.stream().synchronize(),
                      Catch::Contains("attention_forward: position") &&
                          Catch::Contains("neither begins a document"));
  }
}

}  // namespace
}  // namespace train::kernels::testing::cuda_attention_sight_test
