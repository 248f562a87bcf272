#include <algorithm>

#include "base/check.hpp"
#include "tests/kernels/experts_call.hpp"

namespace train::kernels::testing::expert_sort_test {
namespace {

/// As a stable sort by expert has it.
Sorted expected_of(const Numbers& chosen, const ExpertSizes& sizes) {
  Numbers order(chosen.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return chosen[at(a)] < chosen[at(b)]; });
  Sorted result{.offsets = {}, .row_of = {}, .slot_of = order, .places = Numbers(order.size())};
  for (std::int64_t e = 0; e <= sizes.experts; ++e) {
    result.offsets.push_back(static_cast<std::int32_t>(
        std::count_if(chosen.begin(), chosen.end(), [e](std::int32_t of) { return of < e; })));
  }
  for (std::size_t place = 0; place < order.size(); ++place) {
    result.row_of.push_back(static_cast<std::int32_t>(order[place] / sizes.slots));
    result.places[at(order[place])] = static_cast<std::int32_t>(place);
  }
  return result;
}

void check_sorted(const Numbers& chosen, const ExpertSizes& sizes) {
  CAPTURE(sizes.name());
  const Sorted expected = expected_of(chosen, sizes);
  for (const int threads : {1, 2, 3}) {
    const Sorted found = sorted(chosen, sizes, threads);
    CHECK(found.offsets == expected.offsets);
    CHECK(found.row_of == expected.row_of);
    CHECK(found.slot_of == expected.slot_of);
    CHECK(found.places == expected.places);
  }
}

TEST_CASE("expert_sort: places are in the order of experts, then of rows",
          "[kernels][expert_sort][P1]") {
  for (const ExpertSizes& sizes : kExpertSizes) {
    check_sorted(drawn_choices(sizes, 21), sizes);
  }
}

TEST_CASE("expert_sort: all rows may be of one expert, and there may be none",
          "[kernels][expert_sort]") {
  check_sorted(Numbers(9, 2), {9, 4, 1});
  check_sorted({}, {0, 4, 2});
}

TEST_CASE("expert_sort: an expert that does not exist fails the stream", "[kernels][expert_sort]") {
  for (const std::int32_t wrong : {-1, 4}) {
    CHECK_THROWS_WITH(sorted({0, 1, wrong, 2}, {2, 4, 2}),
                      Catch::Contains("row 1 has chosen expert " + std::to_string(wrong)));
  }
}

}  // namespace
}  // namespace train::kernels::testing::expert_sort_test
