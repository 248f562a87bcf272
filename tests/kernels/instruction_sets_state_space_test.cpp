// As instruction_sets_test.cpp: convolutions and scans of state spaces.
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

}  // namespace
}  // namespace train::kernels::testing::instruction_sets_state_space_test
