// CUDA twins of convolutions and scans of state spaces.
#include "kernels/state_space/gated_norm.hpp"
#include "tests/kernels/cuda_fixture.hpp"
#include "tests/kernels/state_space_call.hpp"

namespace train::kernels::testing::cuda_state_space_test {
namespace {

std::string name_of(std::int64_t channels, std::int64_t other) {
  return fmt::format("{} channels, {}", channels, other);
}

/// Rows of bf16 whose errors grow with what a state sums up.
constexpr double scan_rounding = 4.0 * bf16_rounding;

TEST_CASE("cuda twins: causal convolutions", "[kernels][cuda][.gpu]") {
  const std::vector<std::int64_t> lengths = {1, 2, 3, 9, 40};
  const Places places = places_of(lengths);
  const Places texts = texts_of(lengths);
  const std::int64_t rows = std::ssize(places);
  for (const std::int64_t taps : {1, 3, 4}) {
    for (const std::int64_t channels : {5, 64, 130}) {
      const std::string name = name_of(channels, taps);
      const std::int64_t stride = 2 * channels;
      const auto documents = [&](Side& side) {
        return DocumentRows{.positions = side.put(places), .sequences = 1, .seq_len = rows};
      };
      compare_twins("causal_conv_forward", name, transcendental, bf16_rounding, [&](Side& side) {
        side.kernels.causal_conv_forward(
            side.stream(), {.rows = documents(side),
                            .x = side.elements(random_values(rows * stride, 1)),
                            .weight = side.elements(random_values(channels * taps, 2)),
                            .bias = side.elements(random_values(channels, 3)),
                            .y = side.element_result(untouched_values(rows * channels)),
                            .channels = channels,
                            .taps = taps,
                            .x_stride = stride,
                            .y_stride = channels,
                            .states = {.data = side.element_result(
                                           zeros(std::ssize(lengths) * (taps - 1) * channels + 1)),
                                       .texts = side.put(texts)},
                            .dtype = side.dtype});
      });
      compare_twins("causal_conv_backward", name, sum_of(rows), bf16_rounding, [&](Side& side) {
        side.kernels.causal_conv_backward(
            side.stream(), {.rows = documents(side),
                            .x = side.elements(random_values(rows * stride, 4)),
                            .weight = side.elements(random_values(channels * taps, 5)),
                            .bias = side.elements(random_values(channels, 6)),
                            .dy = side.elements(random_values(rows * channels, 7)),
                            .dx = side.element_result(untouched_values(rows * stride)),
                            .dweight = side.result(untouched_values(channels * taps)),
                            .dbias = side.result(untouched_values(channels)),
                            .channels = channels,
                            .taps = taps,
                            .x_stride = stride,
                            .y_stride = channels,
                            .dx_stride = stride,
                            .dtype = side.dtype});
      });
    }
  }
}

TEST_CASE("cuda twins: a text's next rows of a convolution and a scan", "[kernels][cuda][.gpu]") {
  constexpr std::int64_t rows = 3;
  constexpr std::int64_t channels = 70;
  constexpr std::int64_t states = 16;
  constexpr std::int64_t taps = 4;
  const ScanCase s{.rows = rows, .channels = channels, .states = states};
  const Places places = {0, 2, 9};
  const Places texts = {2, 0, 1};
  const auto documents = [&](Side& side) {
    return DocumentRows{.positions = side.put(places), .sequences = rows, .seq_len = 1};
  };
  compare_twins("causal_conv_forward", "next rows", transcendental, bf16_rounding, [&](Side& side) {
    side.kernels.causal_conv_forward(
        side.stream(),
        {.rows = documents(side),
         .x = side.elements(random_values(rows * channels, 1)),
         .weight = side.elements(random_values(channels * taps, 2)),
         .y = side.element_result(untouched_values(rows * channels)),
         .channels = channels,
         .taps = taps,
         .x_stride = channels,
         .y_stride = channels,
         .states = {.data = side.element_result(random_values(3 * (taps - 1) * channels, 4)),
                    .texts = side.put(texts),
                    .extend = true},
         .dtype = side.dtype});
  });
  compare_twins(
      "selective_scan_forward", "next rows", sum_of(states), scan_rounding, [&](Side& side) {
        const auto bc = side.elements(s.bc);
        side.kernels.selective_scan_forward(
            side.stream(), {.in = {.rows = documents(side),
                                   .u = side.elements(s.u),
                                   .delta = side.elements(s.delta),
                                   .b = bc,
                                   .c = bc + states,
                                   .z = side.elements(s.z),
                                   .a_log = side.put(s.a_log),
                                   .d = side.put(s.d),
                                   .delta_bias = side.put(s.bias),
                                   .channels = channels,
                                   .states = states,
                                   .u_stride = s.u_stride,
                                   .delta_stride = channels,
                                   .b_stride = s.b_stride,
                                   .z_stride = s.z_stride},
                            .y = side.element_result(untouched_values(rows * channels)),
                            .y_stride = channels,
                            .states = {.data = side.result(random_values(3 * states * channels, 9)),
                                       .texts = side.put(texts),
                                       .extend = true},
                            .dtype = side.dtype});
      });
}

TEST_CASE("cuda twins: selective scans", "[kernels][cuda][.gpu]") {
  const Places places = places_of({1, 2, kScanChunk + 1, kScanChunk, 5});
  const std::int64_t rows = std::ssize(places);
  for (const std::int64_t states : {1, 16}) {
    for (const std::int64_t channels : {5, 64, 130}) {
      const ScanCase s{.rows = rows, .channels = channels, .states = states};
      const std::string name = name_of(channels, states);
      const auto inputs = [&](Side& side) {
        const auto bc = side.elements(s.bc);
        return ScanInputs{.rows = {.positions = side.put(places), .sequences = 1, .seq_len = rows},
                          .u = side.elements(s.u),
                          .delta = side.elements(s.delta),
                          .b = bc,
                          .c = bc + states,
                          .z = side.elements(s.z),
                          .a_log = side.put(s.a_log),
                          .d = side.put(s.d),
                          .delta_bias = side.put(s.bias),
                          .channels = channels,
                          .states = states,
                          .u_stride = s.u_stride,
                          .delta_stride = channels,
                          .b_stride = s.b_stride,
                          .z_stride = s.z_stride};
      };
      compare_twins("selective_scan_forward", name, sum_of(rows), scan_rounding, [&](Side& side) {
        side.kernels.selective_scan_forward(
            side.stream(), {.in = inputs(side),
                            .y = side.element_result(untouched_values(rows * channels)),
                            .y_stride = channels,
                            .kept = side.result(zeros(scan_kept(rows, channels, states))),
                            .dtype = side.dtype});
      });
      compare_twins("selective_scan_backward", name, sum_of(rows * channels), scan_rounding,
                    [&](Side& side) {
                      const auto dbc = side.element_result(untouched_values(rows * s.b_stride));
                      side.kernels.selective_scan_backward(
                          side.stream(),
                          {.in = inputs(side),
                           .kept = side.put(random_values(scan_kept(rows, channels, states), 9)),
                           .y = side.element_result(s.dy),
                           .y_stride = channels,
                           .du = side.element_result(untouched_values(rows * channels)),
                           .ddelta = side.element_result(untouched_values(rows * channels)),
                           .dz = side.element_result(untouched_values(rows * s.z_stride)),
                           .db = dbc,
                           .dc = dbc + states,
                           .da_log = side.result(untouched_values(channels * states)),
                           .dd = side.result(untouched_values(channels)),
                           .ddelta_bias = side.result(untouched_values(channels)),
                           .partial = side.put(zeros(scan_partial(rows, channels, states))),
                           .dtype = side.dtype});
                    });
    }
  }
}

TEST_CASE("cuda twins: scans of heads", "[kernels][cuda][.gpu]") {
  const Places places = places_of({1, 2, kHeadPiece + 1, 5});
  const std::int64_t rows = std::ssize(places);
  for (const std::int64_t states : {1, 16, 70}) {
    const HeadCase s{.rows = rows, .heads = 4, .groups = 2, .width = 5, .states = states};
    const std::string name = name_of(s.inner(), states);
    const std::int64_t size = s.inner() * states;
    const auto inputs = [&](Side& side) {
      const auto x = side.elements(s.xbc);
      HeadScanInputs in =
          s.inputs({.positions = side.put(places), .sequences = 1, .seq_len = rows});
      in.x = x;
      in.b = x + s.inner();
      in.c = x + s.inner() + s.groups * states;
      in.delta = side.elements(s.delta);
      in.a_log = side.put(s.a_log);
      in.d = side.put(s.d);
      in.delta_bias = side.put(s.bias);
      return in;
    };
    compare_twins("head_scan_forward", name, sum_of(rows), scan_rounding, [&](Side& side) {
      side.kernels.head_scan_forward(side.stream(),
                                     {.in = inputs(side),
                                      .y = side.element_result(untouched_values(rows * s.inner())),
                                      .y_stride = s.inner(),
                                      .kept = side.result(zeros(head_scan_kept(rows, size))),
                                      .dtype = side.dtype});
    });
    compare_twins(
        "head_scan_forward", name + ", next rows", sum_of(rows), scan_rounding, [&](Side& side) {
          HeadScanInputs in = inputs(side);
          in.rows = {.positions = side.put(Places{0, 2, 9}), .sequences = 3, .seq_len = 1};
          side.kernels.head_scan_forward(
              side.stream(), {.in = in,
                              .y = side.element_result(untouched_values(3 * s.inner())),
                              .y_stride = s.inner(),
                              .states = {.data = side.result(random_values(3 * size, 9)),
                                         .texts = side.put(Places{2, 0, 1}),
                                         .extend = true},
                              .dtype = side.dtype});
        });
    compare_twins("head_scan_backward", name, sum_of(rows * size), scan_rounding, [&](Side& side) {
      const auto dx = side.element_result(untouched_values(rows * s.stride()));
      side.kernels.head_scan_backward(
          side.stream(), {.in = inputs(side),
                          .kept = side.put(zeros(head_scan_kept(rows, size))),
                          .dy = side.elements(s.dy),
                          .y_stride = s.inner(),
                          .dx = dx,
                          .db = dx + s.inner(),
                          .dc = dx + s.inner() + s.groups * states,
                          .dx_stride = s.stride(),
                          .ddelta = side.element_result(untouched_values(rows * s.heads)),
                          .da_log = side.result(untouched_values(s.heads)),
                          .dd = side.result(untouched_values(s.heads)),
                          .ddelta_bias = side.result(untouched_values(s.heads)),
                          .partial = side.put(zeros(head_scan_partial(rows, s.heads, states))),
                          .dtype = side.dtype});
    });
  }
}

TEST_CASE("cuda twins: gated norms", "[kernels][cuda][.gpu]") {
  constexpr std::int64_t rows = 21;
  for (const std::int64_t groups : {1, 2}) {
    for (const std::int64_t cols : {6, 130, 600}) {
      const std::string name = name_of(cols, groups);
      compare_twins("gated_norm_forward", name, sum_of(cols), bf16_rounding, [&](Side& side) {
        side.kernels.gated_norm_forward(side.stream(),
                                        {.y = side.elements(random_values(rows * cols, 1)),
                                         .z = side.elements(random_values(rows * cols, 2, 3.0F)),
                                         .weight = side.elements(random_values(cols, 3)),
                                         .out = side.element_result(untouched_values(rows * cols)),
                                         .rstd = side.result(untouched_values(rows * groups)),
                                         .rows = rows,
                                         .cols = cols,
                                         .groups = groups,
                                         .y_stride = cols,
                                         .z_stride = cols,
                                         .dtype = side.dtype});
      });
      compare_twins("gated_norm_backward", name, sum_of(rows * cols), scan_rounding,
                    [&](Side& side) {
                      side.kernels.gated_norm_backward(
                          side.stream(), {.y = side.elements(random_values(rows * cols, 1)),
                                          .z = side.elements(random_values(rows * cols, 2, 3.0F)),
                                          .weight = side.elements(random_values(cols, 3)),
                                          .rstd = side.put(random_values(rows * groups, 4)),
                                          .out = side.element_result(random_values(rows * cols, 5)),
                                          .dy = side.element_result(untouched_values(rows * cols)),
                                          .dz = side.element_result(untouched_values(rows * cols)),
                                          .dweight = side.result(untouched_values(cols)),
                                          .rows = rows,
                                          .cols = cols,
                                          .groups = groups,
                                          .y_stride = cols,
                                          .z_stride = cols,
                                          .dtype = side.dtype});
                    });
    }
  }
}

}  // namespace
}  // namespace train::kernels::testing::cuda_state_space_test
