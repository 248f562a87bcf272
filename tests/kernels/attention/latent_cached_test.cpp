#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "kernels/attention/attention_cached.hpp"
#include "tests/kernels/kernel_fixture.hpp"

namespace train::kernels::testing::latent_cached_test {
namespace {

constexpr std::int64_t texts = 3;

struct Case {
  std::int64_t heads, latent, rope, capacity;

  [[nodiscard]] std::int64_t width() const { return latent + rope; }
  [[nodiscard]] RowLayout query() const { return {heads * width() + 5, width()}; }
  [[nodiscard]] RowLayout out() const { return {heads * (latent + 1), latent + 1}; }
  [[nodiscard]] std::string name() const {
    return std::to_string(heads) + " heads over " + std::to_string(latent) + " + " +
           std::to_string(rope) + ", " + std::to_string(capacity) + " slots";
  }
};

/// Rows of a call: token positions[i] of text texts[i].
struct Rows {
  std::vector<std::int32_t> texts, positions;

  void add(std::int64_t text, std::int64_t position) {
    texts.push_back(static_cast<std::int32_t>(text));
    positions.push_back(static_cast<std::int32_t>(position));
  }
  [[nodiscard]] std::int64_t count() const { return std::ssize(texts); }
};

/// A cache whose rows are written by latent_append; what was never written is NaN.
struct Cache {
  explicit Cache(const Case& c)
      : of(c), rows(at(texts * c.capacity * c.width()), std::numeric_limits<float>::quiet_NaN()) {}

  [[nodiscard]] LatentCache view() {
    return {
        .rows = rows.data(), .capacity = of.capacity, .latent_dim = of.latent, .rope_dim = of.rope};
  }

  /// Appends tokens [0, length) of a text, the same ones for any length.
  void append(std::int64_t text, std::int64_t length) {
    Rows added;
    for (std::int64_t i = 0; i < length; ++i) {
      added.add(text, i);
    }
    const RowLayout latent{of.latent + 2, 0};
    const RowLayout key{of.rope + 1, 0};
    const auto seed = static_cast<unsigned>(10 * text);
    const Values latents = random_values(of.capacity * latent.outer_stride, seed, 2.0F);
    const Values keys = random_values(of.capacity * key.outer_stride, seed + 1, 2.0F);
    run([&](Stream& stream) {
      cpu::latent_append(stream, {.latent = latents.data(),
                                  .key = keys.data(),
                                  .texts = added.texts.data(),
                                  .positions = added.positions.data(),
                                  .rows = length,
                                  .latent_layout = latent,
                                  .key_layout = key,
                                  .cache = view()});
    });
    for (std::int64_t i = 0; i < length; ++i) {
      const float* row = rows.data() + (text * of.capacity + i) * of.width();
      REQUIRE(std::equal(row, row + of.latent, latents.begin() + i * latent.outer_stride));
      REQUIRE(std::equal(row + of.latent, row + of.width(), keys.begin() + i * key.outer_stride));
    }
  }

  Case of;
  Values rows;
};

/// Queries of a text's position, whatever else is in a call.
Values query_of(const Case& c, std::int64_t text, std::int64_t position) {
  return random_values(c.query().outer_stride, static_cast<unsigned>(1000 * text + position), 2.0F);
}

constexpr float scale = 0.21F;

Values attend(const KernelTable& kernels, const Case& c, Cache& cache, const Rows& rows,
              int threads) {
  Values q;
  for (std::int64_t i = 0; i < rows.count(); ++i) {
    const Values one = query_of(c, rows.texts[at(i)], rows.positions[at(i)]);
    q.insert(q.end(), one.begin(), one.end());
  }
  Values out = untouched_values(rows.count() * c.out().outer_stride);
  run(
      [&](Stream& stream) {
        kernels.latent_cached(stream, {.q = q.data(),
                                       .out = out.data(),
                                       .texts = rows.texts.data(),
                                       .positions = rows.positions.data(),
                                       .rows = rows.count(),
                                       .heads = c.heads,
                                       .q_layout = c.query(),
                                       .out_layout = c.out(),
                                       .cache = cache.view(),
                                       .scale = scale});
      },
      threads);
  return out;
}

/// The formula in double.
Exact formula(const Case& c, const Cache& cache, const Rows& rows) {
  Exact out(at(rows.count() * c.out().outer_stride), static_cast<double>(untouched));
  for (std::int64_t i = 0; i < rows.count(); ++i) {
    const std::int64_t text = rows.texts[at(i)];
    const std::int64_t keys = rows.positions[at(i)] + 1;
    const Values query = query_of(c, text, keys - 1);
    const float* cached = cache.rows.data() + text * c.capacity * c.width();
    for (std::int64_t head = 0; head < c.heads; ++head) {
      Exact p(at(keys));
      for (std::int64_t j = 0; j < keys; ++j) {
        for (std::int64_t k = 0; k < c.width(); ++k) {
          p[at(j)] += static_cast<double>(scale) *
                      static_cast<double>(query[at(head * c.width() + k)]) *
                      static_cast<double>(cached[j * c.width() + k]);
        }
      }
      const double largest = *std::max_element(p.begin(), p.end());
      double sum = 0.0;
      for (double& score : p) {
        score = std::exp(score - largest);
        sum += score;
      }
      const std::size_t first = at(i * c.out().outer_stride + head * c.out().inner_stride);
      for (std::int64_t k = 0; k < c.latent; ++k) {
        out[first + at(k)] = 0.0;
        for (std::int64_t j = 0; j < keys; ++j) {
          out[first + at(k)] += p[at(j)] / sum * static_cast<double>(cached[j * c.width() + k]);
        }
      }
    }
  }
  return out;
}

// Heads and latents that fill no vector, one, and several; texts of a part of a chunk of 256, of
// one, and of several.
constexpr Case cases[] = {{1, 1, 0, 5},       {3, 5, 2, 40},      {8, 128, 32, 600},
                          {16, 32, 8, 256},   {17, 33, 7, 513},   {40, 48, 16, 300},
                          {4, 512, 64, 1100}, {128, 64, 16, 130}, {2, 16, 1, 1025}};

/// A row of each text: the first token, one in the middle and the last one of the cache.
Rows some_rows(const Case& c) {
  Rows rows;
  rows.add(0, 0);
  rows.add(1, c.capacity / 2);
  rows.add(2, c.capacity - 1);
  return rows;
}

void fill(Cache& cache, const Rows& rows) {
  for (std::int64_t i = 0; i < rows.count(); ++i) {
    cache.append(rows.texts[at(i)], rows.positions[at(i)] + 1);
  }
}

TEST_CASE("latent_cached: agrees with a double reference", "[kernels][attention]") {
  for (const Case& c : cases) {
    Cache cache(c);
    const Rows rows = some_rows(c);
    fill(cache, rows);
    const Exact expected = formula(c, cache, rows);
    // Scores of up to 20, whose rounding is an exponential's relative error.
    require_near(attend(cpu_backend(), c, cache, rows, 2), expected, 4e-5, c.name());
    if (cpu_bf16_backend() != nullptr) {
      // Rounded queries and latents move a score by some hundredths.
      require_near(attend(*cpu_bf16_backend(), c, cache, rows, 2), expected, 0.2,
                   "bf16, " + c.name());
    }
  }
}

TEST_CASE("latent_cached: a row's bits depend on its text alone", "[kernels][attention][P1]") {
  const KernelTable* const kernels = GENERATE(from_range(cpu_kernel_sets()));
  for (const Case& c : cases) {
    CAPTURE(kernels->kernel_set(), c.name());
    Cache cache(c);
    fill(cache, some_rows(c));
    // Rows of one text at several positions, rows of another between them, in one call.
    Rows rows;
    for (std::int64_t i = 0; i < 7; ++i) {
      rows.add(2, i * (c.capacity - 1) / 6);
      rows.add(1, c.capacity / 2);
    }
    const Values together = attend(*kernels, c, cache, rows, 2);
    const std::int64_t width = c.out().outer_stride;
    for (std::int64_t i = 0; i < rows.count(); ++i) {
      Rows alone;
      alone.add(rows.texts[at(i)], rows.positions[at(i)]);
      for (const int threads : {1, 2, 3}) {  // A row on one thread, or its chunks on several.
        CAPTURE(i, threads);
        const Values one = attend(*kernels, c, cache, alone, threads);
        REQUIRE(std::memcmp(one.data(), together.data() + i * width, at(width) * sizeof(float)) ==
                0);
      }
    }
    // Rows behind a text's end change nothing, in another cache of other texts either.
    Cache longer(c);
    longer.append(2, c.capacity);
    longer.append(1, c.capacity);
    REQUIRE(attend(*kernels, c, longer, rows, 3) == together);
  }
}

TEST_CASE("latent_cached: large scores do not overflow, NaN is not lost", "[kernels][attention]") {
  const KernelTable* const kernels = GENERATE(from_range(cpu_kernel_sets()));
  const Case c{3, 20, 4, 600};
  Cache cache(c);
  Rows rows = some_rows(c);
  fill(cache, rows);
  for (float& value : cache.rows) {
    value *= 100.0F;
  }
  const auto finite = [&](const Values& out, std::int64_t row) {
    return std::all_of(out.begin() + row * c.out().outer_stride,
                       out.begin() + (row + 1) * c.out().outer_stride,
                       [](float v) { return std::isfinite(v); });
  };
  const Values before = attend(*kernels, c, cache, rows, 2);
  CHECK((finite(before, 0) && finite(before, 1) && finite(before, 2)));
  for (const std::int64_t key : {3, 300, 599}) {
    Cache with = cache;
    with.rows[at((2 * c.capacity + key) * c.width() + 1)] = std::nanf("");
    const Values out = attend(*kernels, c, with, rows, 2);
    CHECK((finite(out, 0) && finite(out, 1)));
    for (std::int64_t head = 0; head < c.heads; ++head) {
      CHECK(std::isnan(out[at(2 * c.out().outer_stride + head * c.out().inner_stride)]));
    }
  }
}

TEST_CASE("latent caches: positions outside are refused, and params that name no cache",
          "[kernels][attention]") {
  const Case c{2, 4, 2, 8};
  Cache cache(c);
  cache.append(0, 8);
  Rows rows;
  rows.add(0, 7);
  REQUIRE_NOTHROW(attend(cpu_backend(), c, cache, rows, 1));
  for (const std::int64_t position : {8, -1}) {
    Rows outside;
    outside.add(0, position);
    REQUIRE_THROWS_AS(attend(cpu_backend(), c, cache, outside, 1), CheckFailed);
    const Values token(4);
    REQUIRE_THROWS_AS(run([&](Stream& stream) {
                        cpu::latent_append(stream, {.latent = token.data(),
                                                    .key = token.data(),
                                                    .texts = outside.texts.data(),
                                                    .positions = outside.positions.data(),
                                                    .rows = 1,
                                                    .latent_layout = {4, 0},
                                                    .key_layout = {2, 0},
                                                    .cache = cache.view()});
                      }),
                      CheckFailed);
  }
  const auto refuses = [&](const auto& change) {
    LatentAppendParams append{.latent = cache.rows.data(),
                              .key = cache.rows.data(),
                              .texts = rows.texts.data(),
                              .positions = rows.positions.data(),
                              .rows = 1,
                              .latent_layout = {4, 0},
                              .key_layout = {2, 0},
                              .cache = cache.view()};
    LatentCachedParams cached{.q = cache.rows.data(),
                              .out = cache.rows.data(),
                              .texts = rows.texts.data(),
                              .positions = rows.positions.data(),
                              .rows = 1,
                              .heads = 2,
                              .q_layout = c.query(),
                              .out_layout = c.out(),
                              .cache = cache.view()};
    REQUIRE_NOTHROW(check_params(append));
    REQUIRE_NOTHROW(check_params(cached));
    change(append, cached);
    REQUIRE_THROWS_AS(check_params(append), CheckFailed);
    REQUIRE_THROWS_AS(check_params(cached), CheckFailed);
  };
  refuses([](auto& append, auto& cached) { append.cache = cached.cache = {}; });
  refuses([](auto& append, auto& cached) {
    append.key = nullptr;
    cached.heads = 0;
  });
  refuses([](auto& append, auto& cached) {
    append.latent = nullptr;
    cached.q = nullptr;
  });
  refuses([](auto& append, auto& cached) {
    append.positions = nullptr;
    cached.scale = -1.0F;
  });
}

}  // namespace
}  // namespace train::kernels::testing::latent_cached_test
