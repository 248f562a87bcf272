// As instruction_sets_test.cpp: the kernels that add up rows, and those made of products.
#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_cached.hpp"
#include "kernels/attention/shared_keys.hpp"
#include "kernels/experts/experts.hpp"
#include "kernels/gemm/matmul.hpp"
#include "kernels/head/head_loss.hpp"
#include "kernels/head/log_probs.hpp"
#include "kernels/head/row_distance.hpp"
#include "kernels/norm/norm.hpp"
#include "kernels/rope/rope.hpp"
#include "tests/kernels/instruction_sets.hpp"

namespace train::kernels::testing::instruction_sets_rows_test {
namespace {

std::string of(std::int64_t count) { return fmt::format("of {}", count); }

struct NormShape {
  NormKind kind = NormKind::layer;
  std::int64_t cols = 0;
  bool rotated = false;
  [[nodiscard]] RowLayout layout() const {
    return {.outer_stride = 2 * cols + 1, .inner_stride = cols};
  }
  [[nodiscard]] std::int64_t size() const { return tokens * layout().outer_stride; }
  [[nodiscard]] RowRotation rotation(Side& side, Source& values) const {
    if (!rotated) {
      return {};
    }
    return {
        .cos = side.put(values(4 * cols / 2)), .sin = side.put(values(4 * cols / 2)), .seq_len = 4};
  }
  static constexpr std::int64_t tokens = 19;
  static constexpr std::int64_t rows = 2 * tokens;
};

void norm_forward_of(const NormShape& norm, Side& side, Source& values) {
  float* x = side.result(zeros(norm.size()));
  side.kernels.norm_forward(side.stream(), {.kind = norm.kind,
                                            .x = x,
                                            .weight = side.put(values(norm.cols)),
                                            .y = side.result(zeros(norm.size())),
                                            .mean = side.result(zeros(NormShape::rows)),
                                            .rstd = side.result(zeros(NormShape::rows)),
                                            .outer = NormShape::tokens,
                                            .inner = 2,
                                            .cols = norm.cols,
                                            .x_layout = norm.layout(),
                                            .y_layout = norm.layout(),
                                            .gain_offset = 1.0F,
                                            .residual = {.base = side.put(values(norm.size())),
                                                         .branch = side.put(values(norm.size())),
                                                         .sum = x,
                                                         .scale = 0.7F},
                                            .rotation = norm.rotation(side, values)});
}

void norm_backward_of(const NormShape& norm, Side& side, Source& values) {
  float* dy = side.result(values(norm.size()));
  side.kernels.norm_backward(side.stream(),
                             {.kind = norm.kind,
                              .x = side.put(values(norm.size())),
                              .weight = side.put(values(norm.cols)),
                              .mean = side.put(values(NormShape::rows)),
                              .rstd = side.put(values.positive(NormShape::rows)),
                              .dy = dy,
                              .dx = norm.rotated ? dy : side.result(values(norm.size())),
                              .dweight = side.result(zeros(norm.cols)),
                              .outer = NormShape::tokens,
                              .inner = 2,
                              .cols = norm.cols,
                              .x_layout = norm.layout(),
                              .dy_layout = norm.layout(),
                              .dx_layout = norm.layout(),
                              .gain_offset = 1.0F,
                              .dy_scale = 0.7F,
                              .accumulate_dx = !norm.rotated,
                              .rotation = norm.rotation(side, values)});
}

TEST_CASE("instruction sets: norms", "[kernels][instruction_sets][P1]") {
  for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
    for (const std::int64_t cols : kWidths) {
      for (const bool rotated : {false, true}) {
        const NormShape norm{.kind = kind, .cols = cols, .rotated = rotated && cols % 2 == 0};
        compare_sets("norm_forward", of(cols),
                     [&](Side& side, Source& values) { norm_forward_of(norm, side, values); });
        compare_sets("norm_backward", of(cols),
                     [&](Side& side, Source& values) { norm_backward_of(norm, side, values); });
      }
    }
  }
}

TEST_CASE("instruction sets: distances of rows", "[kernels][instruction_sets][P1]") {
  constexpr std::int64_t rows = 5;
  for (const std::int64_t cols : kWidths) {
    compare_sets("row_distance", of(cols), [cols](Side& side, Source& values) {
      side.kernels.row_distance(side.stream(),
                                {.x = side.put(values(rows * cols)),
                                 .reference = side.result(values(rows * cols)),
                                 .targets = side.put(std::vector<std::int32_t>{0, -1, 2, 3, 4}),
                                 .row_weights = side.put(values(rows)),
                                 .sums = side.result(std::vector<LossSums>(1)),
                                 .row_terms = side.result(Exact(rows)),
                                 .rows = rows,
                                 .cols = cols});
    });
  }
}

TEST_CASE("instruction sets: rotary positions", "[kernels][instruction_sets][P1]") {
  constexpr std::int64_t tokens = 6;
  for (const std::int64_t pairs : kWidths) {
    compare_sets("rope_table", of(pairs), [=](Side& side, Source&) {
      side.kernels.rope_table(side.stream(), {.cos = side.result(zeros(tokens * pairs)),
                                              .sin = side.result(zeros(tokens * pairs)),
                                              .seq_len = tokens,
                                              .head_dim = 2 * pairs});
    });
    for (const RopePairing pairing : {RopePairing::interleaved, RopePairing::half}) {
      compare_sets("rope_apply", of(pairs), [=](Side& side, Source& values) {
        side.kernels.rope_apply(side.stream(), {.x = side.result(values(tokens * 4 * pairs)),
                                                .cos = side.put(values(3 * pairs)),
                                                .sin = side.put(values(3 * pairs)),
                                                .tokens = tokens,
                                                .seq_len = 3,
                                                .heads = 2,
                                                .head_dim = 2 * pairs,
                                                .layout = {4 * pairs, 2 * pairs},
                                                .pairing = pairing,
                                                .inverse = pairing == RopePairing::half});
      });
    }
  }
}

struct AttentionShape {
  std::int64_t seq_len = 0, head_dim = 0, window = 0, prefix = 0;
  float softcap = 0.0F;
  bool documents = false;
  static constexpr std::int64_t heads = 2;
  /// Documents of 29 tokens.
  [[nodiscard]] const std::int32_t* positions(Side& side) const {
    std::vector<std::int32_t> places(at(2 * seq_len));
    for (std::int64_t i = 0; i < 2 * seq_len; ++i) {
      places[at(i)] = static_cast<std::int32_t>(i % seq_len % 29);
    }
    return documents ? side.put(places) : nullptr;
  }
  [[nodiscard]] RowLayout layout(std::int64_t of_heads) const {
    return {.outer_stride = of_heads * head_dim + 1, .inner_stride = head_dim};
  }
  [[nodiscard]] std::int64_t size(std::int64_t of_heads) const {
    return 2 * seq_len * layout(of_heads).outer_stride;
  }
  [[nodiscard]] std::int64_t rows() const { return 2 * heads * seq_len; }
};

void attention_forward_of(const AttentionShape& s, Side& side, Source& values) {
  side.kernels.attention_forward(side.stream(), {.q = side.put(values(s.size(2))),
                                                 .k = side.put(values(s.size(1))),
                                                 .v = side.put(values(s.size(1))),
                                                 .out = side.result(zeros(s.size(2))),
                                                 .lse = side.result(zeros(s.rows())),
                                                 .positions = s.positions(side),
                                                 .sequences = 2,
                                                 .seq_len = s.seq_len,
                                                 .heads = AttentionShape::heads,
                                                 .head_dim = s.head_dim,
                                                 .kv_heads = 1,
                                                 .window = s.window,
                                                 .prefix = s.prefix,
                                                 .softcap = s.softcap,
                                                 .q_layout = s.layout(2),
                                                 .k_layout = s.layout(1),
                                                 .v_layout = s.layout(1),
                                                 .out_layout = s.layout(2),
                                                 .scale = 0.3F});
}

void attention_backward_of(const AttentionShape& s, Side& side, Source& values) {
  side.kernels.attention_backward(side.stream(), {.q = side.put(values(s.size(2))),
                                                  .k = side.put(values(s.size(1))),
                                                  .v = side.put(values(s.size(1))),
                                                  .out = side.put(values(s.size(2))),
                                                  .dout = side.put(values(s.size(2))),
                                                  .lse = side.put(values(s.rows())),
                                                  .positions = s.positions(side),
                                                  .delta = side.result(zeros(s.rows())),
                                                  .dq = side.result(zeros(s.size(2))),
                                                  .dk = side.result(zeros(s.size(1))),
                                                  .dv = side.result(zeros(s.size(1))),
                                                  .sequences = 2,
                                                  .seq_len = s.seq_len,
                                                  .heads = AttentionShape::heads,
                                                  .head_dim = s.head_dim,
                                                  .kv_heads = 1,
                                                  .window = s.window,
                                                  .prefix = s.prefix,
                                                  .softcap = s.softcap,
                                                  .q_layout = s.layout(2),
                                                  .k_layout = s.layout(1),
                                                  .v_layout = s.layout(1),
                                                  .out_layout = s.layout(2),
                                                  .dout_layout = s.layout(2),
                                                  .dq_layout = s.layout(2),
                                                  .dk_layout = s.layout(1),
                                                  .dv_layout = s.layout(1),
                                                  .scale = 0.3F});
}

void attention_with_sinks_of(const AttentionShape& s, Side& side, Source& values) {
  const RowLayout rows{2 * s.head_dim, s.head_dim};
  const float* sinks = side.put(values(2));
  float* lse = side.result(zeros(s.rows()));
  side.kernels.attention_forward(side.stream(),
                                 {.q = side.put(values(2 * s.seq_len * rows.outer_stride)),
                                  .k = side.put(values(2 * s.seq_len * rows.outer_stride)),
                                  .v = side.put(values(2 * s.seq_len * rows.outer_stride)),
                                  .out = side.result(zeros(2 * s.seq_len * rows.outer_stride)),
                                  .lse = lse,
                                  .sequences = 2,
                                  .seq_len = s.seq_len,
                                  .heads = 2,
                                  .head_dim = s.head_dim,
                                  .window = s.window,
                                  .softcap = s.softcap,
                                  .q_layout = rows,
                                  .k_layout = rows,
                                  .v_layout = rows,
                                  .out_layout = rows,
                                  .scale = 0.3F,
                                  .sinks = sinks});
  side.kernels.attention_sinks_backward(side.stream(), {.sinks = sinks,
                                                        .lse = lse,
                                                        .delta = side.put(values(s.rows())),
                                                        .dsinks = side.result(zeros(2)),
                                                        .sequences = 2,
                                                        .seq_len = s.seq_len,
                                                        .heads = 2});
}

TEST_CASE("instruction sets: attention", "[kernels][instruction_sets][P1]") {
  for (const AttentionShape& shape :
       {AttentionShape{.seq_len = 1, .head_dim = 5}, AttentionShape{.seq_len = 70, .head_dim = 33},
        AttentionShape{.seq_len = 100, .head_dim = 24, .window = 13},
        AttentionShape{.seq_len = 100, .head_dim = 24, .window = 13, .prefix = 5},
        AttentionShape{.seq_len = 133, .head_dim = 64, .softcap = 1.5F},
        AttentionShape{.seq_len = 133, .head_dim = 40, .documents = true}}) {
    const std::string what = fmt::format("{} x {}", shape.seq_len, shape.head_dim);
    compare_sets("attention_forward", what,
                 [&](Side& side, Source& values) { attention_forward_of(shape, side, values); });
    compare_sets("attention_backward", what,
                 [&](Side& side, Source& values) { attention_backward_of(shape, side, values); });
    compare_sets("attention_sinks_backward", what,
                 [&](Side& side, Source& values) { attention_with_sinks_of(shape, side, values); });
  }
}

/// Five positions of two texts, of which a window's cache has lost the first.
struct CacheShape {
  std::int64_t head_dim = 0, value_dim = 0, capacity = 0, window = 0, prefix = 0;
  float softcap = 0.0F;
  static constexpr std::int64_t kv_heads = 2;
  static constexpr std::int64_t slack = KeyValueCache::kSlack;
  [[nodiscard]] std::int64_t size(std::int64_t dim) const {
    return 2 * kv_heads * dim * capacity + slack;
  }
};

KeyValueCache cache_of(const CacheShape& s, float* keys, float* values) {
  return {.keys = keys,
          .values = values,
          .capacity = s.capacity,
          .kv_heads = CacheShape::kv_heads,
          .head_dim = s.head_dim,
          .value_dim = s.value_dim};
}

void key_value_append_of(const CacheShape& s, Side& side, Source& values) {
  const RowLayout k{CacheShape::kv_heads * s.head_dim, s.head_dim};
  const RowLayout v{CacheShape::kv_heads * s.value_dim, s.value_dim};
  float* keys = side.result(zeros(s.size(s.head_dim)));
  float* kept = side.result(zeros(s.size(s.value_dim)));
  side.kernels.key_value_append(side.stream(),
                                {.k = side.put(values(3 * k.outer_stride)),
                                 .v = side.put(values(3 * v.outer_stride)),
                                 .texts = side.put(std::vector<std::int32_t>{0, 1, 1}),
                                 .positions = side.put(std::vector<std::int32_t>{3, 7, 8}),
                                 .rows = 3,
                                 .k_layout = k,
                                 .v_layout = v,
                                 .cache = cache_of(s, keys, kept)});
}

void attention_cached_of(const CacheShape& s, Side& side, Source& values) {
  constexpr std::int64_t heads = 2 * CacheShape::kv_heads;
  const auto last =
      static_cast<std::int32_t>(s.window == 0 || s.prefix > 0 ? s.capacity - 1 : s.capacity + 5);
  side.kernels.attention_cached(
      side.stream(), {.q = side.put(values(3 * heads * s.head_dim)),
                      .out = side.result(zeros(3 * heads * s.value_dim)),
                      .texts = side.put(std::vector<std::int32_t>{0, 1, 1}),
                      .positions = side.put(std::vector<std::int32_t>{0, last - 1, last}),
                      .rows = 3,
                      .heads = heads,
                      .sinks = s.softcap == 0.0F ? nullptr : side.put(values(heads)),
                      .window = s.window,
                      .prefix = s.prefix,
                      .softcap = s.softcap,
                      .q_layout = {heads * s.head_dim, s.head_dim},
                      .out_layout = {heads * s.value_dim, s.value_dim},
                      .cache = cache_of(s, side.put(values(s.size(s.head_dim))),
                                        side.put(values(s.size(s.value_dim)))),
                      .scale = 0.3F});
}

TEST_CASE("instruction sets: attention with kept keys", "[kernels][instruction_sets][P1]") {
  for (const CacheShape& shape :
       {CacheShape{.head_dim = 5, .value_dim = 7, .capacity = 19},
        CacheShape{.head_dim = 24, .value_dim = 33, .capacity = 100, .softcap = 1.5F},
        CacheShape{.head_dim = 64, .value_dim = 64, .capacity = 41, .window = 40},
        CacheShape{.head_dim = 8, .value_dim = 12, .capacity = 41, .window = 9, .prefix = 3}}) {
    const std::string what = fmt::format("{} x {}", shape.capacity, shape.head_dim);
    compare_sets("key_value_append", what,
                 [&](Side& side, Source& values) { key_value_append_of(shape, side, values); });
    compare_sets("attention_cached", what,
                 [&](Side& side, Source& values) { attention_cached_of(shape, side, values); });
  }
}

struct LatentShape {
  std::int64_t heads, latent, rope, capacity;
};

void latent_append_of(const LatentShape& s, Side& side, Source& values) {
  side.kernels.latent_append(
      side.stream(), {.latent = side.put(values(2 * s.latent)),
                      .key = side.put(values(2 * s.rope)),
                      .texts = side.put(std::vector<std::int32_t>{0, 1}),
                      .positions = side.put(std::vector<std::int32_t>{3, 7}),
                      .rows = 2,
                      .latent_layout = {s.latent, 0},
                      .key_layout = {s.rope, 0},
                      .cache = {.rows = side.result(zeros(2 * s.capacity * (s.latent + s.rope))),
                                .capacity = s.capacity,
                                .latent_dim = s.latent,
                                .rope_dim = s.rope}});
}

void latent_cached_of(const LatentShape& s, Side& side, Source& values) {
  const std::int64_t width = s.latent + s.rope;
  const auto last = static_cast<std::int32_t>(s.capacity - 1);
  side.kernels.latent_cached(side.stream(),
                             {.q = side.put(values(2 * s.heads * width)),
                              .out = side.result(zeros(2 * s.heads * s.latent)),
                              .texts = side.put(std::vector<std::int32_t>{0, 1}),
                              .positions = side.put(std::vector<std::int32_t>{1, last}),
                              .rows = 2,
                              .heads = s.heads,
                              .q_layout = {s.heads * width, width},
                              .out_layout = {s.heads * s.latent, s.latent},
                              .cache = {.rows = side.put(values(2 * s.capacity * width)),
                                        .capacity = s.capacity,
                                        .latent_dim = s.latent,
                                        .rope_dim = s.rope},
                              .scale = 0.3F});
}

TEST_CASE("instruction sets: attention over latents", "[kernels][instruction_sets][P1]") {
  for (const LatentShape& shape :
       {LatentShape{1, 5, 3, 19}, LatentShape{8, 32, 8, 300}, LatentShape{20, 33, 16, 600}}) {
    const std::string what = fmt::format("{} x {}", shape.capacity, shape.latent);
    compare_sets("latent_append", what,
                 [&](Side& side, Source& values) { latent_append_of(shape, side, values); });
    compare_sets("latent_cached", what,
                 [&](Side& side, Source& values) { latent_cached_of(shape, side, values); });
  }
}

TEST_CASE("instruction sets: products", "[kernels][instruction_sets][P1]") {
  for (const int orientation : {0, 1, 2, 3}) {
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                  {3, 5, 7},
                                  {7, 31, 33},
                                  {5, 100, 390},
                                  {13, 48, 385},
                                  {101, 150, 500}}) {
      const bool of_a = (orientation & 1) != 0;
      const bool of_b = (orientation & 2) != 0;
      const MatmulParams shape{.m = m,
                               .n = n,
                               .k = k,
                               .lda = (of_a ? m : k) + 1,
                               .ldb = (of_b ? k : n) + 1,
                               .ldc = n + 1,
                               .transpose_a = of_a,
                               .transpose_b = of_b,
                               .accumulate = orientation == 3};
      compare_sets("matmul", fmt::format("{} x {} x {}", m, n, k), [&](Side& side, Source& values) {
        MatmulParams product = shape;
        product.a = side.put(values((of_a ? shape.k : shape.m) * shape.lda));
        product.b = side.put(values((of_b ? shape.n : shape.k) * shape.ldb));
        product.c = side.result(values(shape.m * shape.ldc));
        side.kernels.matmul(side.stream(), product);
      });
    }
  }
}

TEST_CASE("instruction sets: loss of the head", "[kernels][instruction_sets][P1]") {
  constexpr std::int64_t rows = 11;
  for (const std::int64_t vocab : {1, 7, 16, 33, 1003, 9001}) {
    for (const float softcap : {0.0F, 1.5F}) {
      compare_sets("head_loss", of(vocab), [=](Side& side, Source& values) {
        const std::int64_t cols = 24;
        std::vector<std::int32_t> targets(rows);
        for (std::int64_t i = 0; i < rows; ++i) {
          targets[at(i)] = static_cast<std::int32_t>(i == 3 ? -1 : i * 7919 % vocab);
        }
        side.kernels.head_loss(side.stream(), {.x = side.put(values(rows * cols)),
                                               .weight = side.put(values(vocab * cols)),
                                               .targets = side.put(targets),
                                               .sums = side.result(std::vector<LossSums>(1)),
                                               .dx = side.result(zeros(rows * cols)),
                                               .dweight = side.result(zeros(vocab * cols)),
                                               .logits = side.put(zeros(4 * vocab)),
                                               .row_terms = side.result(Exact(at(rows * 4))),
                                               .rows = rows,
                                               .cols = cols,
                                               .vocab = vocab,
                                               .chunk_rows = 4,
                                               .loss_scale = 0.3F,
                                               .z_scale = 1e-3F,
                                               .softcap = softcap});
      });
    }
  }
}

/// Results of every kind, of `rows` rows.
LogProbResults log_prob_results(Side& side, std::int64_t rows) {
  return {.log_probs = side.result(zeros(rows)),
          .lse = side.result(zeros(rows)),
          .argmax = side.result(std::vector<std::int32_t>(at(rows))),
          .entropy = side.result(zeros(rows)),
          .log_square_sum = side.result(zeros(rows)),
          .top_lse = side.result(zeros(rows)),
          .top_mean = side.result(zeros(rows)),
          .top_k = 5};
}

TEST_CASE("instruction sets: log-probabilities have the same bits on each",
          "[kernels][instruction_sets]") {
  constexpr std::int64_t rows = 6;
  constexpr std::int64_t cols = 24;
  for (const std::int64_t vocab : {1, 7, 16, 33, 1003, 9001}) {
    std::vector<std::int32_t> targets(rows);
    for (std::int64_t i = 0; i < rows; ++i) {
      targets[at(i)] = static_cast<std::int32_t>(i == 3 ? -1 : i * 7919 % vocab);
    }
    for (const float softcap : {0.0F, 1.5F}) {
      compare_sets("logits_log_probs", of(vocab), [=](Side& side, Source& values) {
        side.kernels.logits_log_probs(side.stream(), {.logits = side.put(values(rows * vocab)),
                                                      .targets = side.put(targets),
                                                      .results = log_prob_results(side, rows),
                                                      .rows = rows,
                                                      .vocab = vocab,
                                                      .softcap = softcap});
      });
      compare_sets("token_log_probs", of(vocab), [=](Side& side, Source& values) {
        side.kernels.token_log_probs(side.stream(), {.x = side.put(values(rows * cols)),
                                                     .weight = side.put(values(vocab * cols)),
                                                     .targets = side.put(targets),
                                                     .results = log_prob_results(side, rows),
                                                     .logits = side.put(zeros(4 * vocab)),
                                                     .rows = rows,
                                                     .cols = cols,
                                                     .vocab = vocab,
                                                     .chunk_rows = 4,
                                                     .softcap = softcap});
      });
    }
  }
}

TEST_CASE("instruction sets: parts of heads, and a correction bias",
          "[kernels][instruction_sets]") {
  constexpr std::int64_t rows = 19, heads = 3;
  for (const std::int64_t dim : {1, 8, 21}) {
    compare_sets("join_heads", of(dim), [=](Side& side, Source& values) {
      side.kernels.join_heads(side.stream(), {.left = side.put(values(rows * heads * dim)),
                                              .right = side.put(values(rows * 7)),
                                              .out = side.result(zeros(rows * heads * (dim + 7))),
                                              .rows = rows,
                                              .heads = heads,
                                              .left_dim = dim,
                                              .right_dim = 7,
                                              .left_layout = {heads * dim, dim},
                                              .right_layout = {7, 0}});
    });
    compare_sets("split_heads", of(dim), [=](Side& side, Source& values) {
      side.kernels.split_heads(side.stream(), {.x = side.put(values(rows * heads * (dim + 7))),
                                               .left = side.result(zeros(rows * heads * dim)),
                                               .right = side.result(zeros(rows * 7)),
                                               .rows = rows,
                                               .heads = heads,
                                               .left_dim = dim,
                                               .right_dim = 7,
                                               .left_layout = {heads * dim, dim}});
    });
    compare_sets("choice_bias_update", of(dim), [=](Side& side, Source& values) {
      side.kernels.choice_bias_update(side.stream(), {.bias = side.result(values(dim)),
                                                      .counts = side.put(values(dim)),
                                                      .experts = dim,
                                                      .rate = 0.1F});
    });
  }
}

}  // namespace
}  // namespace train::kernels::testing::instruction_sets_rows_test
