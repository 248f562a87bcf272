#include "kernels/optimizer/average.hpp"

#include <array>
#include <vector>

#include "kernels/activation/elementwise.hpp"
#include "tests/kernels/kernel_fixture.hpp"

namespace train::kernels::testing::average_test {
namespace {

TEST_CASE("average_update: what is taken away and what is added are rounded one by one",
          "[kernels][average][P1]") {
  constexpr float share = 0.07F;
  for (const std::int64_t count : {1, 7, 64, 257, 40'001}) {
    const Values weights = random_values(count, 1);
    Values average = random_values(count, 2);
    Values other = random_values(count, 3);
    const Values untouched = other;
    Values expected = average;
    run([&](Stream& stream) {
      for (const Values* branch : std::array<const Values*, 2>{&expected, &weights}) {
        cpu::residual_add(stream, {.x = expected.data(),
                                   .branch = branch->data(),
                                   .out = expected.data(),
                                   .scale = branch == &weights ? share : -share,
                                   .count = count});
      }
      cpu::average_update(
          stream, {.tensors = {{.average = average.data(), .p = weights.data(), .count = count},
                               {.average = other.data(), .p = weights.data(), .count = count - 1}},
                   .share = share});
    });
    REQUIRE(average == expected);
    CHECK(other.back() == untouched.back());
    CHECK((count == 1 || other.front() != untouched.front()));
  }
}

}  // namespace
}  // namespace train::kernels::testing::average_test
