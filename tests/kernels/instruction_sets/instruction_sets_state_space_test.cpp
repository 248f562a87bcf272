// As instruction_sets_test.cpp: convolutions and scans of state spaces.
#include "kernels/state_space/gated_norm.hpp"
#include "tests/kernels/instruction_sets.hpp"
#include "tests/kernels/state_space_call.hpp"

namespace train::kernels::testing::instruction_sets_state_space_test {
namespace {

std::string of(std::int64_t count) { return fmt::format("of {}", count); }

constexpr std::int64_t kChannelCounts[] = {1, 7, 8, 9, 16, 17, 31, 33, 64, 100};

TEST_CASE("instruction sets: causal convolutions", "[kernels][instruction_sets][P1]") {
  const Places places = places_of({1, 2, 5, 9});
  const std::int64_t rows = std::ssize(places);
  for (const std::int64_t channels : kChannelCounts) {
    compare_sets("causal_conv_forward", of(channels), [&](Side& side, Source& values) {
      side.kernels.causal_conv_forward(
          side.stream(), {.rows = {.positions = side.put(places), .sequences = 1, .seq_len = rows},
                          .x = side.put(values(rows * channels)),
                          .weight = side.put(values(channels * 4)),
                          .bias = side.put(values(channels)),
                          .y = side.result(values(rows * channels)),
                          .channels = channels,
                          .taps = 4,
                          .x_stride = channels,
                          .y_stride = channels});
    });
    compare_sets("causal_conv_backward", of(channels), [&](Side& side, Source& values) {
      side.kernels.causal_conv_backward(
          side.stream(), {.rows = {.positions = side.put(places), .sequences = 1, .seq_len = rows},
                          .x = side.put(values(rows * channels)),
                          .weight = side.put(values(channels * 4)),
                          .bias = side.put(values(channels)),
                          .dy = side.put(values(rows * channels)),
                          .dx = side.result(values(rows * channels)),
                          .dweight = side.result(values(channels * 4)),
                          .dbias = side.result(values(channels)),
                          .channels = channels,
                          .taps = 4,
                          .x_stride = channels,
                          .y_stride = channels,
                          .dx_stride = channels});
    });
  }
}

TEST_CASE("instruction sets: selective scans", "[kernels][instruction_sets][P1]") {
  const Places places = places_of({1, 2, kScanChunk + 1});
  const std::int64_t rows = std::ssize(places);
  constexpr std::int64_t states = 5;
  for (const std::int64_t channels : kChannelCounts) {
    const auto inputs = [&](Side& side, Source& values) {
      const float* bc = side.put(values(rows * 2 * states));
      return ScanInputs{.rows = {.positions = side.put(places), .sequences = 1, .seq_len = rows},
                        .u = side.put(values(rows * channels)),
                        .delta = side.put(values(rows * channels)),
                        .b = bc,
                        .c = bc + states,
                        .z = side.put(values(rows * channels)),
                        .a_log = side.put(values(channels * states)),
                        .d = side.put(values(channels)),
                        .delta_bias = side.put(values(channels)),
                        .channels = channels,
                        .states = states,
                        .u_stride = channels,
                        .delta_stride = channels,
                        .b_stride = 2 * states,
                        .z_stride = channels};
    };
    compare_sets("selective_scan_forward", of(channels), [&](Side& side, Source& values) {
      side.kernels.selective_scan_forward(
          side.stream(), {.in = inputs(side, values),
                          .y = side.result(values(rows * channels)),
                          .y_stride = channels,
                          .kept = side.result(zeros(scan_kept(rows, channels, states)))});
    });
    compare_sets("selective_scan_backward", of(channels), [&](Side& side, Source& values) {
      const ScanInputs in = inputs(side, values);
      float* dbc = side.result(values(rows * 2 * states));
      side.kernels.selective_scan_backward(
          side.stream(), {.in = in,
                          .kept = side.put(values(scan_kept(rows, channels, states))),
                          .y = side.result(values(rows * channels)),
                          .y_stride = channels,
                          .du = side.result(values(rows * channels)),
                          .ddelta = side.result(values(rows * channels)),
                          .dz = side.result(values(rows * channels)),
                          .db = dbc,
                          .dc = dbc + states,
                          .da_log = side.result(values(channels * states)),
                          .dd = side.result(values(channels)),
                          .ddelta_bias = side.result(values(channels)),
                          .partial = side.put(values(scan_partial(rows, channels, states)))});
    });
  }
}

TEST_CASE("instruction sets: scans of heads", "[kernels][instruction_sets][P1]") {
  const Places places = places_of({1, 2, kHeadPiece + 1, kHeadChunk + kHeadPiece + 5});
  const std::int64_t rows = std::ssize(places);
  // Fewer channels than go side by side, some more, and whole vectors.
  for (const auto& [states, width] : {std::pair<std::int64_t, std::int64_t>(1, 3),
                                      {7, 3},
                                      {16, 3},
                                      {33, 3},
                                      {20, 7},
                                      {64, 16},
                                      {80, 20}}) {
    constexpr std::int64_t heads = 4;
    const std::int64_t inner = heads * width;
    const std::int64_t stride = inner + 4 * states;
    const auto inputs = [&](Side& side, Source& values) {
      const float* x = side.put(values(rows * stride));
      return HeadScanInputs{
          .rows = {.positions = side.put(places), .sequences = 1, .seq_len = rows},
          .x = x,
          .b = x + inner,
          .c = x + inner + 2 * states,
          .delta = side.put(values(rows * heads)),
          .a_log = side.put(values(heads)),
          .d = side.put(values(heads)),
          .delta_bias = side.put(values(heads)),
          .heads = heads,
          .groups = 2,
          .width = width,
          .states = states,
          .x_stride = stride,
          .delta_stride = heads,
          .least_step = 0.1F,
          .most_step = 3.0F};
    };
    const std::int64_t state = inner * states;
    compare_sets("head_scan_forward", of(width * states), [&](Side& side, Source& values) {
      side.kernels.head_scan_forward(side.stream(),
                                     {.in = inputs(side, values),
                                      .y = side.result(values(rows * inner)),
                                      .y_stride = inner,
                                      .kept = side.result(zeros(head_scan_kept(rows, state)))});
    });
    compare_sets("head_scan_backward", of(width * states), [&](Side& side, Source& values) {
      const HeadScanInputs in = inputs(side, values);
      float* dx = side.result(values(rows * stride));
      side.kernels.head_scan_backward(
          side.stream(), {.in = in,
                          .kept = side.put(values(head_scan_kept(rows, state))),
                          .dy = side.put(values(rows * inner)),
                          .y_stride = inner,
                          .dx = dx,
                          .db = dx + inner,
                          .dc = dx + inner + 2 * states,
                          .dx_stride = stride,
                          .ddelta = side.result(values(rows * heads)),
                          .da_log = side.result(values(heads)),
                          .dd = side.result(values(heads)),
                          .ddelta_bias = side.result(values(heads)),
                          .partial = side.put(values(head_scan_partial(rows, heads, states)))});
    });
  }
}

TEST_CASE("instruction sets: gated norms", "[kernels][instruction_sets][P1]") {
  constexpr std::int64_t rows = 20;
  constexpr std::int64_t groups = 2;
  for (const std::int64_t half : kChannelCounts) {
    const std::int64_t cols = groups * half;
    compare_sets("gated_norm_forward", of(cols), [&](Side& side, Source& values) {
      side.kernels.gated_norm_forward(side.stream(), {.y = side.put(values(rows * cols)),
                                                      .z = side.put(values(rows * cols)),
                                                      .weight = side.put(values(cols)),
                                                      .out = side.result(values(rows * cols)),
                                                      .rstd = side.result(zeros(rows * groups)),
                                                      .rows = rows,
                                                      .cols = cols,
                                                      .groups = groups,
                                                      .y_stride = cols,
                                                      .z_stride = cols});
    });
    compare_sets("gated_norm_backward", of(cols), [&](Side& side, Source& values) {
      side.kernels.gated_norm_backward(side.stream(), {.y = side.put(values(rows * cols)),
                                                       .z = side.put(values(rows * cols)),
                                                       .weight = side.put(values(cols)),
                                                       .rstd = side.put(values(rows * groups)),
                                                       .out = side.result(values(rows * cols)),
                                                       .dy = side.result(values(rows * cols)),
                                                       .dz = side.result(values(rows * cols)),
                                                       .dweight = side.result(values(cols)),
                                                       .rows = rows,
                                                       .cols = cols,
                                                       .groups = groups,
                                                       .y_stride = cols,
                                                       .z_stride = cols});
    });
  }
}

}  // namespace
}  // namespace train::kernels::testing::instruction_sets_state_space_test
