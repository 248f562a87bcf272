// CUDA twins of attention with kept keys and values.
#include "kernels/attention/attention_cached.hpp"
#include "tests/kernels/cuda_fixture.hpp"

namespace train::kernels::testing::cuda_attention_cached_test {
namespace {

struct CachedCase {
  std::int64_t heads, kv_heads, head_dim, value_dim, capacity;
  std::int64_t window = 0;
  float softcap = 0.0F;
  bool sinks = false;
  std::int64_t prefix = 0;

  [[nodiscard]] std::string name() const {
    return fmt::format("{}/{} of {}/{}, {} slots, window {} and {}{}{}", heads, kv_heads, head_dim,
                       value_dim, capacity, window, prefix, softcap > 0.0F ? " capped" : "",
                       sinks ? " sinks" : "");
  }
  [[nodiscard]] RowLayout query() const { return {heads * head_dim + 3, head_dim}; }
  [[nodiscard]] RowLayout key() const { return {kv_heads * head_dim + 1, head_dim}; }
  [[nodiscard]] RowLayout value() const { return {kv_heads * value_dim, value_dim}; }
  [[nodiscard]] RowLayout out() const { return {heads * value_dim + 2, value_dim}; }
};

constexpr std::int64_t texts = 3;

/// Rows of a call: token positions[i] of text texts[i].
struct CachedRows {
  std::vector<std::int32_t> texts, positions;

  void add(std::int64_t text, std::int64_t first, std::int64_t end) {
    for (std::int64_t position = first; position < end; ++position) {
      texts.push_back(static_cast<std::int32_t>(text));
      positions.push_back(static_cast<std::int32_t>(position));
    }
  }
  [[nodiscard]] std::int64_t count() const { return std::ssize(texts); }
};

/// An empty cache; what it holds in the end is compared too.
KeyValueCache cache_of(Side& side, const CachedCase& c) {
  const auto values = [&](std::int64_t width) {
    return zeros(texts * c.kv_heads * width * c.capacity + KeyValueCache::kSlack);
  };
  return {.keys = side.element_result(values(c.head_dim)),
          .values = side.element_result(values(c.value_dim)),
          .capacity = c.capacity,
          .kv_heads = c.kv_heads,
          .head_dim = c.head_dim,
          .value_dim = c.value_dim};
}

void append(Side& side, const CachedCase& c, const KeyValueCache& cache, const CachedRows& rows,
            unsigned seed) {
  side.kernels.key_value_append(
      side.stream(),
      {.k = side.elements(random_values(rows.count() * c.key().outer_stride, seed, 2.0F)),
       .v = side.elements(random_values(rows.count() * c.value().outer_stride, seed + 1, 2.0F)),
       .texts = side.put(rows.texts),
       .positions = side.put(rows.positions),
       .rows = rows.count(),
       .k_layout = c.key(),
       .v_layout = c.value(),
       .cache = cache,
       .dtype = side.dtype});
}

void attend(Side& side, const CachedCase& c, const KeyValueCache& cache, const CachedRows& rows) {
  side.kernels.attention_cached(
      side.stream(),
      {.q = side.elements(random_values(rows.count() * c.query().outer_stride, 7, 2.0F)),
       .out = side.element_result(untouched_values(rows.count() * c.out().outer_stride)),
       .texts = side.put(rows.texts),
       .positions = side.put(rows.positions),
       .rows = rows.count(),
       .heads = c.heads,
       .sinks = c.sinks ? side.put(random_values(c.heads, 9, 3.0F)) : nullptr,
       .window = c.window,
       .prefix = c.prefix,
       .softcap = c.softcap,
       .q_layout = c.query(),
       .out_layout = c.out(),
       .cache = cache,
       .scale = 0.3F,
       .dtype = side.dtype});
}

TEST_CASE("cuda twins: attention with a cache", "[kernels][cuda][.gpu]") {
  for (const CachedCase& c :
       {CachedCase{2, 2, 64, 64, 300}, CachedCase{4, 2, 128, 128, 270},
        CachedCase{3, 1, 24, 40, 300}, CachedCase{2, 1, 256, 256, 64, 40},
        CachedCase{4, 2, 12, 20, 33, 17, 3.0F}, CachedCase{2, 1, 7, 5, 600, 0, 2.0F},
        CachedCase{1, 1, 8, 8, 40, 1}, CachedCase{2, 2, 192, 128, 270, 0, 0.0F, true},
        CachedCase{4, 2, 12, 20, 33, 17, 3.0F, true},
        CachedCase{5, 1, 64, 128, 400, 20, 0.0F, false, 128}}) {
    // Texts of three lengths, then a row of each; a window's ring has been filled more than once.
    const std::int64_t longest = c.window > 0 && c.prefix == 0 ? 3 * c.capacity : c.capacity - 1;
    CachedRows first;
    CachedRows last;
    for (std::int64_t text = 0; text < texts; ++text) {
      const std::int64_t length = longest * (text + 1) / texts;
      first.add(text, 0, length);
      last.add(text, length, length + 1);
    }
    const double error = transcendental + sum_of(c.head_dim + c.capacity);
    compare_twins("attention_cached", c.name(), error, bf16_rounding + error, [&](Side& side) {
      const KeyValueCache cache = cache_of(side, c);
      append(side, c, cache, first, 1);
      append(side, c, cache, last, 3);
      attend(side, c, cache, last);
    });
  }
}

TEST_CASE("cuda twins: keys and values are kept, the later one of a slot",
          "[kernels][cuda][.gpu]") {
  const CachedCase c{2, 2, 20, 12, 16, 16};
  CachedRows rows;
  rows.add(1, 0, 40);
  rows.add(0, 3, 9);
  compare_twins("key_value_append", c.name(), same_bits, same_bits,
                [&](Side& side) { append(side, c, cache_of(side, c), rows, 1); });
  compare_twins("key_value_append", "no rows", same_bits, same_bits,
                [&](Side& side) { append(side, c, cache_of(side, c), {}, 1); });
}

TEST_CASE("cuda attention with a cache: one that cannot hold what a query sees fails the stream",
          "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  const CachedCase c{1, 1, 8, 8, 4};
  for (const std::int64_t position : {3, 4}) {
    Side side = cuda_side();
    const KeyValueCache cache = cache_of(side, c);
    CachedRows rows;
    rows.add(0, 0, position + 1);
    append(side, c, cache, rows, 1);
    attend(side, c, cache, rows);
    if (position < c.capacity) {
      CHECK_NOTHROW(side.stream().synchronize());
    } else {
      CHECK_THROWS_WITH(side.stream().synchronize(),
                        Catch::Contains("attention_cached: position 4 of row 4"));
    }
  }
}

struct LatentCase {
  std::int64_t heads, latent, rope, capacity;

  [[nodiscard]] std::int64_t width() const { return latent + rope; }
  [[nodiscard]] std::string name() const {
    return fmt::format("{} heads over {} + {}, {} slots", heads, latent, rope, capacity);
  }
};

LatentCache cache_of(Side& side, const LatentCase& c) {
  return {.rows = side.element_result(zeros(texts * c.capacity * c.width())),
          .capacity = c.capacity,
          .latent_dim = c.latent,
          .rope_dim = c.rope};
}

void append(Side& side, const LatentCase& c, const LatentCache& cache, const CachedRows& rows) {
  side.kernels.latent_append(
      side.stream(), {.latent = side.elements(random_values(rows.count() * (c.latent + 3), 1)),
                      .key = side.elements(random_values(rows.count() * (c.rope + 1), 2)),
                      .texts = side.put(rows.texts),
                      .positions = side.put(rows.positions),
                      .rows = rows.count(),
                      .latent_layout = {c.latent + 3, 0},
                      .key_layout = {c.rope + 1, 0},
                      .cache = cache,
                      .dtype = side.dtype});
}

void attend(Side& side, const LatentCase& c, const LatentCache& cache, const CachedRows& rows) {
  const RowLayout query{c.heads * c.width() + 3, c.width()};
  const RowLayout out{c.heads * c.latent + 2, c.latent};
  side.kernels.latent_cached(
      side.stream(), {.q = side.elements(random_values(rows.count() * query.outer_stride, 7, 2.0F)),
                      .out = side.element_result(untouched_values(rows.count() * out.outer_stride)),
                      .texts = side.put(rows.texts),
                      .positions = side.put(rows.positions),
                      .rows = rows.count(),
                      .heads = c.heads,
                      .q_layout = query,
                      .out_layout = out,
                      .cache = cache,
                      .scale = 1.0F / std::sqrt(static_cast<float>(c.width())),
                      .dtype = side.dtype});
}

TEST_CASE("cuda twins: attention over latents", "[kernels][cuda][.gpu]") {
  for (const LatentCase& c : {LatentCase{8, 128, 32, 300}, LatentCase{2, 512, 64, 40},
                              LatentCase{3, 24, 5, 600}, LatentCase{1, 1, 0, 3}}) {
    CachedRows all;
    CachedRows last;
    for (std::int64_t text = 0; text < texts; ++text) {
      const std::int64_t length = c.capacity * (text + 1) / texts;
      all.add(text, 0, length);
      last.add(text, length - 1, length);
    }
    compare_twins("latent_append", c.name(), same_bits, same_bits,
                  [&](Side& side) { append(side, c, cache_of(side, c), all); });
    compare_twins("latent_append", "no rows", same_bits, same_bits,
                  [&](Side& side) { append(side, c, cache_of(side, c), {}); });
    const double error = transcendental + sum_of(c.width() + c.capacity);
    compare_twins("latent_cached", c.name(), error, bf16_rounding + error, [&](Side& side) {
      const LatentCache cache = cache_of(side, c);
      append(side, c, cache, all);
      attend(side, c, cache, last);
    });
  }
}

TEST_CASE("cuda attention over latents: a position outside the cache fails the stream",
          "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  const LatentCase c{1, 8, 4, 4};
  for (const std::int64_t position : {3, 4}) {
    Side side = cuda_side();
    CachedRows rows;
    rows.add(0, position, position + 1);
    attend(side, c, cache_of(side, c), rows);
    if (position < c.capacity) {
      CHECK_NOTHROW(side.stream().synchronize());
    } else {
      CHECK_THROWS_WITH(side.stream().synchronize(),
                        Catch::Contains("latent_cached: position 4 of row 0"));
    }
  }
  for (const std::int64_t position : {3, 4, -1}) {
    Side side = cuda_side();
    CachedRows rows;
    rows.add(0, 2, 3);
    rows.add(0, position, position + 1);
    append(side, c, cache_of(side, c), rows);
    if (position == 3) {
      CHECK_NOTHROW(side.stream().synchronize());
    } else {
      CHECK_THROWS_WITH(
          side.stream().synchronize(),
          Catch::Contains(fmt::format("latent_append: position {} of row 1", position)));
    }
  }
}

}  // namespace
}  // namespace train::kernels::testing::cuda_attention_cached_test
