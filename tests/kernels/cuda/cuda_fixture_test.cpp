#include "tests/kernels/cuda_fixture.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/optimizer/update_guard.hpp"

#include <limits>

namespace train::kernels::testing::cuda_fixture_test {
namespace {

TEST_CASE("cuda fixture: a twin that differs is found", "[kernels][cuda]") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const Exact expected{1.0, -3.0, nan, infinity};
  CHECK(largest_error(expected, expected) == 0.0);
  CHECK(largest_error({1.0, -3.5, nan, infinity}, expected) == 0.125);
  CHECK(largest_error({1.0, -3.0, 0.0, infinity}, expected) == infinity);
  CHECK(largest_error({1.0, nan, nan, infinity}, expected) == infinity);
  CHECK(largest_error({1.0, -3.0, nan, -infinity}, expected) == infinity);
  CHECK(largest_error({1.0, -3.0, nan}, expected) == infinity);
}

TEST_CASE("cuda fixture: a side gives a kernel its memory and reads it back", "[kernels][cuda]") {
  Side side = cpu_side();
  float* y = side.result(Values{1.0F, 2.0F, 3.0F});
  const float* x = side.put(Values{10.0F, 20.0F, 30.0F});
  const UpdateGuard* gate =
      side.result(std::vector<UpdateGuard>{{.grad_scale = 0.5F, .loss = 7.0}});
  REQUIRE(gate != nullptr);
  side.kernels.tree_add(side.stream(), {.left = y, .right = x, .out = y, .count = 2});
  CHECK(side.results() == Exact{11.0, 22.0, 3.0, 0.5, 0.0, 0.0, 7.0});
}

}  // namespace
}  // namespace train::kernels::testing::cuda_fixture_test
