#include <algorithm>

#include "base/check.hpp"
#include "kernels/activation/bias.hpp"
#include "tests/kernels/experts_call.hpp"

namespace train::kernels::testing::expert_bias_test {
namespace {

/// Experts without a place, with one, with a whole block and with more; places before the first
/// expert and behind the last.
const Numbers kOffsets = {3, 3, 4, 68, 68, 133, 400};
constexpr std::int64_t kExperts = 6;
constexpr std::int64_t kPlaces = 405;

struct Width {
  std::int64_t cols, stride;
};
constexpr Width kWidths[] = {{1, 1}, {5, 8}, {16, 16}, {33, 40}, {70, 70}};

Values gradient_of(const Values& dy, const Width& width, int threads) {
  Values dbias = untouched_values(kExperts * width.stride);
  run(
      [&](Stream& stream) {
        cpu::expert_bias_backward(stream, {.dy = dy.data(),
                                           .dbias = dbias.data(),
                                           .offsets = kOffsets.data(),
                                           .experts = kExperts,
                                           .places = kPlaces,
                                           .cols = width.cols,
                                           .dy_stride = width.stride,
                                           .stride = width.stride});
      },
      threads);
  return dbias;
}

}  // namespace

TEST_CASE("expert_bias: every place gets the bias of its expert, and no other row",
          "[kernels][experts]") {
  for (const Width& width : kWidths) {
    const Values before = random_values(kPlaces * width.stride, 1);
    const Values bias = random_values(kExperts * width.stride, 2);
    Values expected = before;
    for (std::int64_t expert = 0; expert < kExperts; ++expert) {
      for (std::int64_t place = kOffsets[at(expert)]; place < kOffsets[at(expert + 1)]; ++place) {
        for (std::int64_t c = 0; c < width.cols; ++c) {
          expected[at(place * width.stride + c)] += bias[at(expert * width.stride + c)];
        }
      }
    }
    require_same_bits(
        [&](int threads) {
          Values y = before;
          run(
              [&](Stream& stream) {
                cpu::expert_bias_forward(stream, {.y = y.data(),
                                                  .bias = bias.data(),
                                                  .offsets = kOffsets.data(),
                                                  .experts = kExperts,
                                                  .places = kPlaces,
                                                  .cols = width.cols,
                                                  .y_stride = width.stride,
                                                  .stride = width.stride});
              },
              threads);
          CHECK(y == expected);
          return y;
        },
        "expert_bias_forward");
  }
}

TEST_CASE("expert_bias: an expert's gradient has the bits of its places alone, +0 without any",
          "[kernels][experts][P1]") {
  for (const Width& width : kWidths) {
    const Values dy = random_values(kPlaces * width.stride, 3);
    const Values all = gradient_of(dy, width, 2);
    require_same_bits([&](int threads) { return gradient_of(dy, width, threads); },
                      "expert_bias_backward");
    for (std::int64_t expert = 0; expert < kExperts; ++expert) {
      CAPTURE(width.cols, expert);
      Values expected = untouched_values(width.stride);
      run([&](Stream& stream) {
        cpu::bias_gradient(stream, {.dy = dy.data() + kOffsets[at(expert)] * width.stride,
                                    .dbias = expected.data(),
                                    .rows = kOffsets[at(expert + 1)] - kOffsets[at(expert)],
                                    .cols = width.cols,
                                    .stride = width.stride});
      });
      const auto own = all.begin() + expert * width.stride;
      CHECK(Values(own, own + width.stride) == expected);
      if (expert == 0) {
        CHECK(std::none_of(own, own + width.cols, [](float g) { return std::signbit(g); }));
      }
    }
  }
}

TEST_CASE("expert_bias: mistakes of the caller are caught", "[kernels][experts]") {
  const auto stream = make_inline_stream(1);
  Values y(40);
  Values bias(16);
  const Numbers offsets = {0, 2, 4};
  ExpertBiasForwardParams p{.y = y.data(),
                            .bias = bias.data(),
                            .offsets = offsets.data(),
                            .experts = 2,
                            .places = 4,
                            .cols = 8,
                            .y_stride = 8,
                            .stride = 8};
  cpu::expert_bias_forward(*stream, p);
  p.stride = 7;
  CHECK_THROWS_WITH(cpu::expert_bias_forward(*stream, p), Catch::Contains("stride=7"));
  p.stride = 8;
  p.y_stride = 7;
  CHECK_THROWS_WITH(cpu::expert_bias_forward(*stream, p), Catch::Contains("7 elements"));
  p.y_stride = 8;
  p.bias = nullptr;
  CHECK_THROWS_AS(cpu::expert_bias_forward(*stream, p), CheckFailed);
  p.bias = bias.data();
  p.places = 3;  // The last expert's places are beyond.
  CHECK_THROWS_WITH(
      [&] {
        cpu::expert_bias_forward(*stream, p);
        stream->synchronize();
      }(),
      Catch::Contains("places of expert 1"));
  CHECK_THROWS_AS(cpu::expert_bias_backward(*stream, {.dy = y.data(),
                                                      .offsets = offsets.data(),
                                                      .experts = 2,
                                                      .places = 4,
                                                      .cols = 8,
                                                      .dy_stride = 8,
                                                      .stride = 8}),
                  CheckFailed);
}

}  // namespace train::kernels::testing::expert_bias_test
