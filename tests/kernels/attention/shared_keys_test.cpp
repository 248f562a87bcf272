#include "kernels/attention/shared_keys.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/device/stream.hpp"
#include "kernels/experts/experts.hpp"
#include "kernels/optimizer/update_guard.hpp"

namespace train::kernels {
namespace {

std::vector<float> rising(std::int64_t count) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(i) + 0.25F);
  }
  return values;
}

}  // namespace

TEST_CASE("shared keys: heads are joined of their own part and a shared one, and split again",
          "[kernels][shared_keys]") {
  constexpr std::int64_t rows = 5, heads = 3, left = 4, right = 2;
  const auto stream = make_inline_stream(2);
  const std::vector<float> own = rising(rows * heads * left), shared = rising(rows * right);
  std::vector<float> joined(static_cast<std::size_t>(rows * heads * (left + right)));
  cpu_backend().join_heads(*stream, {.left = own.data(),
                                     .right = shared.data(),
                                     .out = joined.data(),
                                     .rows = rows,
                                     .heads = heads,
                                     .left_dim = left,
                                     .right_dim = right,
                                     .left_layout = {heads * left, left},
                                     .right_layout = {right, 0}});
  std::vector<float> own_again(own.size()), sums(shared.size());
  cpu_backend().split_heads(*stream, {.x = joined.data(),
                                      .left = own_again.data(),
                                      .right = sums.data(),
                                      .rows = rows,
                                      .heads = heads,
                                      .left_dim = left,
                                      .right_dim = right,
                                      .left_layout = {heads * left, left}});
  CHECK(own_again == own);
  for (std::size_t i = 0; i < shared.size(); ++i) {
    CHECK(sums[i] == 3.0F * shared[i]);
  }
  CHECK(joined[left] == shared[0]);
  CHECK(joined[left + right + left] == shared[0]);
}

TEST_CASE("choice bias: it moves towards even loads, and not where they are even",
          "[kernels][experts][choice_bias]") {
  const auto stream = make_inline_stream(1);
  const std::vector<float> counts = {4.0F, 0.0F, 2.0F, 2.0F};
  UpdateGuard guard;
  const auto moved = [&](const std::vector<float>& by) {
    std::vector<float> bias(by.size(), 1.0F);
    cpu_backend().choice_bias_update(*stream, {.bias = bias.data(),
                                               .counts = by.data(),
                                               .experts = std::ssize(by),
                                               .rate = 0.25F,
                                               .guard = &guard});
    return bias;
  };
  CHECK(moved(counts) == std::vector<float>{0.75F, 1.25F, 1.0F, 1.0F});
  // Compared as whole numbers: a third of 16,777,216 has no float.
  CHECK(moved({5592405.0F, 5592405.0F, 5592406.0F}) == std::vector<float>{1.25F, 1.25F, 0.75F});
  guard.nonfinite = 1;
  CHECK(moved(counts) == std::vector<float>(4, 1.0F));
}

}  // namespace train::kernels
