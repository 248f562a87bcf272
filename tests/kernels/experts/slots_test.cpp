#include <algorithm>

#include "base/check.hpp"
#include "tests/kernels/experts_call.hpp"

namespace train::kernels::testing::slots_test {
namespace {

constexpr std::int64_t kCols[] = {1, 7, 16, 33, 257};

TEST_CASE("gather_rows: a place has its row's bits", "[kernels][slots][P1]") {
  const ExpertSizes sizes{.rows = 13, .experts = 5, .slots = 3};
  const Sorted order = sorted(drawn_choices(sizes, 31), sizes);
  for (const std::int64_t cols : kCols) {
    const Values x = random_values(sizes.rows * cols, 32);
    Values expected;
    for (const std::int32_t row : order.row_of) {
      expected.insert(expected.end(), x.begin() + row * cols, x.begin() + (row + 1) * cols);
    }
    for (const int threads : {1, 2, 3}) {
      Values y = untouched_values(std::ssize(expected));
      run(
          [&](Stream& stream) {
            cpu::gather_rows(stream, {.x = x.data(),
                                      .index = order.row_of.data(),
                                      .y = y.data(),
                                      .count = sizes.places(),
                                      .cols = cols});
          },
          threads);
      REQUIRE(y == expected);
    }
  }
}

/// Rows made of the parts of their slots.
struct Combine {
  ExpertSizes sizes;
  std::int64_t cols = 1;
  bool weighted = true, accumulate = false;

  [[nodiscard]] Numbers places() const { return sorted(drawn_choices(sizes, 33), sizes).places; }
  [[nodiscard]] Values parts() const { return random_values(sizes.places() * cols, 34); }
  [[nodiscard]] Values weights() const { return random_values(sizes.places(), 35); }
  [[nodiscard]] Values before() const {
    return accumulate ? random_values(sizes.rows * cols, 36) : untouched_values(sizes.rows * cols);
  }

  [[nodiscard]] Values combined(int threads) const {
    const Numbers at_places = places();
    const Values of_parts = parts();
    const Values of_weights = weights();
    Values y = before();
    run(
        [&](Stream& stream) {
          cpu::combine_rows(stream, {.parts = of_parts.data(),
                                     .places = at_places.data(),
                                     .weights = weighted ? of_weights.data() : nullptr,
                                     .y = y.data(),
                                     .rows = sizes.rows,
                                     .slots = sizes.slots,
                                     .cols = cols,
                                     .accumulate = accumulate});
        },
        threads);
    return y;
  }

  [[nodiscard]] Exact reference() const {
    const Numbers at_places = places();
    const Values of_parts = parts();
    const Values of_weights = weights();
    Exact y = accumulate ? exact(before()) : Exact(before().size());
    for (std::int64_t i = 0; i < sizes.places(); ++i) {
      for (std::int64_t c = 0; c < cols; ++c) {
        y[at(i / sizes.slots * cols + c)] +=
            (weighted ? static_cast<double>(of_weights[at(i)]) : 1.0) *
            static_cast<double>(of_parts[at(at_places[at(i)] * cols + c)]);
      }
    }
    return y;
  }
};

TEST_CASE("combine_rows: a row is the weighted sum of its slots", "[kernels][slots][P1]") {
  for (const ExpertSizes& sizes : kExpertSizes) {
    for (const std::int64_t cols : kCols) {
      for (const bool weighted : {false, true}) {
        for (const bool accumulate : {false, true}) {
          const Combine t{
              .sizes = sizes, .cols = cols, .weighted = weighted, .accumulate = accumulate};
          require_near(t.combined(2), t.reference(), 2e-6, sizes.name());
          require_same_bits([&](int threads) { return t.combined(threads); }, sizes.name());
        }
      }
    }
  }
}

TEST_CASE("combine_rows: slots are added in their order, whatever the places",
          "[kernels][slots][P1]") {
  const Values parts = {1e8F, 1.0F, -1e8F};
  const Numbers places = {2, 1, 0, 1, 2, 0};  // -1e8 + 1 + 1e8; 1 - 1e8 + 1e8.
  Values y = zeros(2);
  run([&](Stream& stream) {
    cpu::combine_rows(stream, {.parts = parts.data(),
                               .places = places.data(),
                               .y = y.data(),
                               .rows = 2,
                               .slots = 3,
                               .cols = 1});
  });
  CHECK(y == Values{0.0F, 0.0F});
  const Numbers last = {0, 2, 1};
  run([&](Stream& stream) {
    cpu::combine_rows(stream, {.parts = parts.data(),
                               .places = last.data(),
                               .y = y.data(),
                               .rows = 1,
                               .slots = 3,
                               .cols = 1});
  });
  CHECK(y[0] == 1.0F);
}

struct Weighed {
  Values dh, h, dweights;
  [[nodiscard]] Values all() const { return joined({dh, h, dweights}); }
};

/// Of `count` places of the sizes' places.
Weighed weighed(const ExpertSizes& sizes, std::int64_t count, std::int64_t cols, int threads) {
  const Numbers slot_of = sorted(drawn_choices(sizes, 37), sizes).slot_of;
  const Values weights = random_values(sizes.places(), 38);
  Weighed t{.dh = random_values(count * cols, 39),
            .h = random_values(count * cols, 40),
            .dweights = untouched_values(sizes.places())};
  run(
      [&](Stream& stream) {
        cpu::slot_weights_backward(stream, {.dh = t.dh.data(),
                                            .h = t.h.data(),
                                            .slot_of = slot_of.data(),
                                            .weights = weights.data(),
                                            .dweights = t.dweights.data(),
                                            .count = count,
                                            .cols = cols});
      },
      threads);
  return t;
}

TEST_CASE("slot_weights_backward: is the gradient of the weighted sum", "[kernels][slots][P1]") {
  for (const ExpertSizes& sizes : kExpertSizes) {
    for (const std::int64_t cols : kCols) {
      const std::int64_t count = sizes.places();
      const Numbers slot_of = sorted(drawn_choices(sizes, 37), sizes).slot_of;
      const Values weights = random_values(count, 38);
      const Exact dh = exact(random_values(count * cols, 39));
      const Values h = random_values(count * cols, 40);
      // Of sum over places of weight <dh, h>: by the weights, by h and, as dh is weighed, by dh.
      const auto loss = [&](const Exact& w, const Exact& x, const Exact& gradient) {
        double sum = 0.0;
        for (std::int64_t i = 0; i < count * cols; ++i) {
          sum += w[at(slot_of[at(i / cols)])] * x[at(i)] * gradient[at(i)];
        }
        return sum;
      };
      const Weighed found = weighed(sizes, count, cols, 2);
      require_near(
          found.dweights,
          finite_differences(exact(weights), [&](const Exact& w) { return loss(w, exact(h), dh); }),
          1e-5, sizes.name() + ": weights");
      Exact of_h = exact(h);
      Exact of_dh = dh;
      for (std::int64_t i = 0; i < count * cols; ++i) {
        const auto weight = static_cast<double>(weights[at(slot_of[at(i / cols)])]);
        of_h[at(i)] *= weight;
        of_dh[at(i)] *= weight;
      }
      require_near(found.dh, of_dh, 1e-7, sizes.name() + ": dh");
      require_near(found.h, of_h, 1e-7, sizes.name() + ": h");
    }
  }
}

TEST_CASE("slot_weights_backward: bits depend neither on the threads nor on the other places",
          "[kernels][slots][P1]") {
  const ExpertSizes sizes{.rows = 70, .experts = 9, .slots = 4};
  for (const std::int64_t cols : kCols) {
    require_same_bits(
        [&](int threads) { return weighed(sizes, sizes.places(), cols, threads).all(); },
        "slot_weights_backward");
    const Weighed all = weighed(sizes, sizes.places(), cols, 2);
    const Weighed one = weighed(sizes, 1, cols, 2);
    const std::int32_t slot = sorted(drawn_choices(sizes, 37), sizes).slot_of[0];
    CHECK(one.dweights[at(slot)] == all.dweights[at(slot)]);
    CHECK(std::equal(one.dh.begin(), one.dh.end(), all.dh.begin()));
    CHECK(std::equal(one.h.begin(), one.h.end(), all.h.begin()));
  }
}

TEST_CASE("slots: mistakes of the caller are caught before anything runs", "[kernels][slots]") {
  const auto stream = make_inline_stream(1);
  CHECK_THROWS_AS(cpu::gather_rows(*stream, {.count = 1, .cols = 1}), CheckFailed);
  CHECK_THROWS_WITH(cpu::combine_rows(*stream, {.rows = 1, .cols = 1}), Catch::Contains("slots=0"));
  CHECK_THROWS_AS(cpu::slot_weights_backward(*stream, {.count = 1, .cols = 1}), CheckFailed);
}

}  // namespace
}  // namespace train::kernels::testing::slots_test
