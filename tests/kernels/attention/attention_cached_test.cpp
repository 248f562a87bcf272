#include "kernels/attention/attention_cached.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "kernels/attention/attention.hpp"
#include "tests/kernels/kernel_fixture.hpp"

namespace train::kernels::testing::attention_cached_test {
namespace {

struct Case {
  std::int64_t length, heads, kv_heads, head_dim, value_dim;
  std::int64_t capacity;
  std::int64_t window = 0;
  float softcap = 0.0F;
  bool with_sinks = false;
  std::int64_t prefix = 0;
  const KernelTable* kernels = &cpu_backend();

  [[nodiscard]] RowLayout query() const { return {heads * head_dim + 3, head_dim}; }
  [[nodiscard]] RowLayout key() const { return {kv_heads * head_dim + 1, head_dim}; }
  [[nodiscard]] RowLayout value() const { return {kv_heads * value_dim, value_dim}; }
  [[nodiscard]] RowLayout out() const { return {heads * value_dim, value_dim}; }
  [[nodiscard]] std::string name() const {
    return kernels->kernel_set() + ", " + std::to_string(length) + " tokens, " +
           std::to_string(heads) + " heads of " + std::to_string(head_dim) + ", " +
           std::to_string(kv_heads) + " of keys, " + std::to_string(capacity) + " slots, window " +
           std::to_string(window) + (with_sinks ? ", sinks" : "") + " and " +
           std::to_string(prefix);
  }
  [[nodiscard]] Values sinks() const { return random_values(with_sinks ? heads : 0, 77, 3.0F); }
};

const float* pointer_to(const Values& sinks) { return sinks.empty() ? nullptr : sinks.data(); }

constexpr std::int64_t texts = 3;

/// Keys and values of `texts` texts; what was never written is NaN.
struct Cache {
  explicit Cache(const Case& t)
      : keys(filled(t, t.head_dim)), values(filled(t, t.value_dim)), of(t) {}

  static Values filled(const Case& t, std::int64_t width) {
    const std::int64_t count = texts * t.kv_heads * width * t.capacity + KeyValueCache::kSlack;
    return Values(static_cast<std::size_t>(count), std::numeric_limits<float>::quiet_NaN());
  }
  [[nodiscard]] KeyValueCache view() {
    return {.keys = keys.data(),
            .values = values.data(),
            .capacity = of.capacity,
            .kv_heads = of.kv_heads,
            .head_dim = of.head_dim,
            .value_dim = of.value_dim};
  }

  Values keys, values;
  Case of;
};

struct Text {
  Values q, k, v, out;
};

Text random_text(const Case& t, unsigned seed) {
  return {.q = random_values(t.length * t.query().outer_stride, seed, 2.0F),
          .k = random_values(t.length * t.key().outer_stride, seed + 1, 2.0F),
          .v = random_values(t.length * t.value().outer_stride, seed + 2),
          .out = untouched_values(t.length * t.out().outer_stride)};
}

void forward(const Case& t, Text& text) {
  Values lse = zeros(t.heads * t.length);
  const Values sinks = t.sinks();
  run([&](Stream& stream) {
    t.kernels->attention_forward(stream, {.q = text.q.data(),
                                          .k = text.k.data(),
                                          .v = text.v.data(),
                                          .out = text.out.data(),
                                          .lse = lse.data(),
                                          .sequences = 1,
                                          .seq_len = t.length,
                                          .heads = t.heads,
                                          .head_dim = t.head_dim,
                                          .value_dim = t.value_dim,
                                          .kv_heads = t.kv_heads,
                                          .window = t.window,
                                          .prefix = t.prefix,
                                          .softcap = t.softcap,
                                          .q_layout = t.query(),
                                          .k_layout = t.key(),
                                          .v_layout = t.value(),
                                          .out_layout = t.out(),
                                          .scale = 0.4F,
                                          .sinks = pointer_to(sinks)});
  });
}

/// The rows of all texts that have a token at `position`, one after the other: text i began i
/// positions later than text 0.
Values step(const Case& t, const std::vector<Text>& all, std::int64_t time, Cache& cache,
            int threads) {
  std::vector<std::int32_t> of_text;
  std::vector<std::int32_t> positions;
  Values q;
  Values k;
  Values v;
  const auto add_row = [](Values& to, const Values& from, const RowLayout& layout,
                          std::int64_t row) {
    to.insert(to.end(), from.begin() + row * layout.outer_stride,
              from.begin() + (row + 1) * layout.outer_stride);
  };
  for (std::int64_t i = 0; i < texts; ++i) {
    const std::int64_t position = time - i;
    if (position >= 0 && position < t.length) {
      of_text.push_back(static_cast<std::int32_t>(i));
      positions.push_back(static_cast<std::int32_t>(position));
      add_row(q, all[at(i)].q, t.query(), position);
      add_row(k, all[at(i)].k, t.key(), position);
      add_row(v, all[at(i)].v, t.value(), position);
    }
  }
  const auto rows = static_cast<std::int64_t>(positions.size());
  Values out = untouched_values(rows * t.out().outer_stride);
  const Values sinks = t.sinks();
  run(
      [&](Stream& stream) {
        cpu::key_value_append(stream, {.k = k.data(),
                                       .v = v.data(),
                                       .texts = of_text.data(),
                                       .positions = positions.data(),
                                       .rows = rows,
                                       .k_layout = t.key(),
                                       .v_layout = t.value(),
                                       .cache = cache.view()});
        t.kernels->attention_cached(stream, {.q = q.data(),
                                             .out = out.data(),
                                             .texts = of_text.data(),
                                             .positions = positions.data(),
                                             .rows = rows,
                                             .heads = t.heads,
                                             .sinks = pointer_to(sinks),
                                             .window = t.window,
                                             .prefix = t.prefix,
                                             .softcap = t.softcap,
                                             .q_layout = t.query(),
                                             .out_layout = t.out(),
                                             .cache = cache.view(),
                                             .scale = 0.4F});
      },
      threads);
  return out;
}

TEST_CASE("attention_cached: row by row, in any batch, the bits of the forward pass",
          "[kernels][attention]") {
  Case cases[] = {{70, 2, 2, 16, 16, 80},
                  {130, 4, 2, 8, 8, 130},
                  {90, 3, 1, 24, 24, 96, 0, 3.0F},
                  {100, 2, 1, 16, 16, 32, 32},
                  {100, 4, 2, 12, 20, 33, 17},
                  {40, 2, 2, 8, 8, 40, 1},
                  {30, 6, 3, 7, 5, 31, 1000, 2.0F},
                  {70, 2, 2, 192, 128, 70},
                  {50, 2, 1, 96, 64, 50},
                  {70, 3, 3, 40, 16, 80, 20},
                  {60, 2, 2, 24, 12, 60, 0, 2.0F},
                  {90, 4, 2, 16, 16, 96, 0, 0.0F, true},
                  {80, 4, 1, 12, 20, 33, 17, 2.0F, true},
                  {90, 4, 2, 8, 12, 96, 17, 0.0F, false, 3},
                  {70, 2, 1, 16, 16, 80, 1, 0.0F, false, 20}};
  const KernelTable* const kernels = GENERATE(from_range(cpu_kernel_sets()));
  for (Case& t : cases) {
    t.kernels = kernels;
    for (const int threads : {1, 2}) {
      std::vector<Text> all;
      for (unsigned i = 0; i < texts; ++i) {
        all.push_back(random_text(t, 10 * i));
        forward(t, all.back());
      }
      Cache cache(t);
      for (std::int64_t time = 0; time < t.length + texts - 1; ++time) {
        const Values out = step(t, all, time, cache, threads);
        auto found = out.begin();
        for (std::int64_t i = 0; i < texts; ++i) {
          const std::int64_t position = time - i;
          if (position >= 0 && position < t.length) {
            const auto expected = all[at(i)].out.begin() + position * t.out().outer_stride;
            CAPTURE(t.name(), threads, i, position);
            REQUIRE(std::equal(found, found + t.out().outer_stride, expected));
            found += t.out().outer_stride;
          }
        }
      }
    }
  }
}

TEST_CASE("attention_cached: a cache that cannot hold what a query sees is refused",
          "[kernels][attention]") {
  const Case t{5, 1, 1, 4, 4, 4};
  std::vector<Text> all(texts, random_text(t, 1));
  Cache cache(t);
  REQUIRE_NOTHROW(step(t, all, 3, cache, 1));
  REQUIRE_THROWS_AS(step(t, all, 4, cache, 1), CheckFailed);
}

}  // namespace
}  // namespace train::kernels::testing::attention_cached_test
