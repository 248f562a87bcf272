#include "bench/kernels/cpu_scans.hpp"

#include <cstdlib>
#include <string>

#include "bench/kernels/exp_limit.hpp"
#include "kernels/state_space/causal_conv.hpp"
#include "kernels/state_space/head_scan.hpp"
#include "kernels/state_space/selective_scan.hpp"

namespace train::bench {
namespace {

using kernels::Stream;

constexpr std::int64_t kInner = 1536;

Floats room(std::int64_t count) { return Floats(static_cast<std::size_t>(count)); }

/// States of a channel of Mamba: a scan's time is told in as many calls of exp.
constexpr std::int64_t kScanStates = 16;

/// As many calls of exp as Mamba's states, divided among the threads as the scan is.
Work exps_of_states(const CpuKernelBench& bench, std::int64_t count) {
  return [of_thread = count * kScanStates / bench.threads()](Stream& stream) {
    stream.enqueue([of_thread] {
      if (!(exps_from_cache(of_thread) > 0.0)) {
        std::abort();
      }
    });
  };
}

/// Compares a scan of `count` elements of channels, forward and both ways, with those calls.
void compare_with_exps(CpuKernelBench& bench, const std::string& name, std::int64_t count,
                       const Work& forward, const Work& backward) {
  const Work exps = exps_of_states(bench, count);
  bench.compare(name, 2.5, {exps, forward});
  bench.compare("  and backward", 7.0, {exps, [&](Stream& stream) {
                                          forward(stream);
                                          backward(stream);
                                        }});
}

void bench_conv(CpuKernelBench& bench, std::int64_t rows) {
  constexpr std::int64_t taps = 4;
  const Floats x = values(rows * kInner);
  const Floats weight = values(kInner * taps);
  Floats y = room(rows * kInner);
  Floats dx = room(rows * kInner);
  Floats dweight = room(kInner * taps);
  const double bytes = 4.0 * static_cast<double>(rows * kInner);
  const std::string shape = fmt::format("{} x {}", rows, kInner);
  bench.row("causal_conv forward  " + shape, 0, 2 * bytes, [&](Stream& stream) {
    bench.kernels().causal_conv_forward(stream, {.rows = {.sequences = 1, .seq_len = rows},
                                                 .x = x.data(),
                                                 .weight = weight.data(),
                                                 .y = y.data(),
                                                 .channels = kInner,
                                                 .taps = taps,
                                                 .x_stride = kInner,
                                                 .y_stride = kInner});
  });
  bench.row("causal_conv backward " + shape, 0, 3 * bytes, [&](Stream& stream) {
    bench.kernels().causal_conv_backward(stream, {.rows = {.sequences = 1, .seq_len = rows},
                                                  .x = x.data(),
                                                  .weight = weight.data(),
                                                  .dy = y.data(),
                                                  .dx = dx.data(),
                                                  .dweight = dweight.data(),
                                                  .channels = kInner,
                                                  .taps = taps,
                                                  .x_stride = kInner,
                                                  .y_stride = kInner,
                                                  .dx_stride = kInner});
  });
}

void bench_selective_scan(CpuKernelBench& bench, std::int64_t rows) {
  constexpr std::int64_t states = kScanStates;
  const std::int64_t count = rows * kInner;
  const Floats u = values(count);
  const Floats delta = values(count);
  const Floats z = values(count);
  const Floats bc = values(rows * 2 * states);
  const Floats rates = values(kInner * states);
  const Floats channels = values(kInner);
  Floats y = values(count);
  Floats kept = room(kernels::scan_kept(rows, kInner, states));
  Floats partial = room(kernels::scan_partial(rows, kInner, states));
  Floats du = room(count);
  Floats ddelta = room(count);
  Floats dz = room(count);
  Floats dbc = room(rows * 2 * states);
  Floats drates = room(kInner * states);
  const kernels::ScanInputs in{.rows = {.sequences = 1, .seq_len = rows},
                               .u = u.data(),
                               .delta = delta.data(),
                               .b = bc.data(),
                               .c = bc.data() + states,
                               .z = z.data(),
                               .a_log = rates.data(),
                               .d = channels.data(),
                               .delta_bias = channels.data(),
                               .channels = kInner,
                               .states = states,
                               .u_stride = kInner,
                               .delta_stride = kInner,
                               .b_stride = 2 * states,
                               .z_stride = kInner};
  const double flop = 7.0 * static_cast<double>(count * states);
  const std::string shape = fmt::format("{} x {} x {}", rows, kInner, states);
  const Work forward = [&](Stream& stream) {
    bench.kernels().selective_scan_forward(
        stream, {.in = in, .y = y.data(), .y_stride = kInner, .kept = kept.data()});
  };
  const Work backward = [&](Stream& stream) {
    bench.kernels().selective_scan_backward(stream, {.in = in,
                                                     .kept = kept.data(),
                                                     .y = y.data(),
                                                     .y_stride = kInner,
                                                     .du = du.data(),
                                                     .ddelta = ddelta.data(),
                                                     .dz = dz.data(),
                                                     .db = dbc.data(),
                                                     .dc = dbc.data() + states,
                                                     .da_log = drates.data(),
                                                     .partial = partial.data()});
  };
  bench.row("selective_scan forward  " + shape, flop, 0, forward);
  bench.row("selective_scan backward " + shape, 2 * flop, 0, backward);
  compare_with_exps(bench, "selective_scan forward / exps from L1, " + shape, count, forward,
                    backward);
}

void bench_head_scan(CpuKernelBench& bench, std::int64_t rows) {
  constexpr std::int64_t heads = 24;
  constexpr std::int64_t width = 64;
  constexpr std::int64_t states = 128;
  constexpr std::int64_t stride = kInner + 2 * states;
  const Floats xbc = values(rows * stride);
  const Floats delta = values(rows * heads);
  const Floats of_heads = values(heads);
  Floats y = values(rows * kInner);
  Floats kept = room(kernels::head_scan_kept(rows, kInner * states));
  Floats partial = room(kernels::head_scan_partial(rows, heads, states));
  Floats dxbc = room(rows * stride);
  Floats ddelta = room(rows * heads);
  const kernels::HeadScanInputs in{.rows = {.sequences = 1, .seq_len = rows},
                                   .x = xbc.data(),
                                   .b = xbc.data() + kInner,
                                   .c = xbc.data() + kInner + states,
                                   .delta = delta.data(),
                                   .a_log = of_heads.data(),
                                   .d = of_heads.data(),
                                   .delta_bias = of_heads.data(),
                                   .heads = heads,
                                   .width = width,
                                   .states = states,
                                   .x_stride = stride,
                                   .delta_stride = heads};
  const double flop = 5.0 * static_cast<double>(rows * kInner * states);
  const std::string shape = fmt::format("{} x {} x {}", rows, kInner, states);
  const Work forward = [&](Stream& stream) {
    bench.kernels().head_scan_forward(
        stream, {.in = in, .y = y.data(), .y_stride = kInner, .kept = kept.data()});
  };
  const Work backward = [&](Stream& stream) {
    bench.kernels().head_scan_backward(stream, {.in = in,
                                                .kept = kept.data(),
                                                .dy = y.data(),
                                                .y_stride = kInner,
                                                .dx = dxbc.data(),
                                                .db = dxbc.data() + kInner,
                                                .dc = dxbc.data() + kInner + states,
                                                .dx_stride = stride,
                                                .ddelta = ddelta.data(),
                                                .partial = partial.data()});
  };
  bench.row("head_scan forward  " + shape, flop, 0, forward);
  bench.row("head_scan backward " + shape, 2 * flop, 0, backward);
  compare_with_exps(bench, "head_scan forward / exps of 16 states from L1, " + shape, rows * kInner,
                    forward, backward);
}

}  // namespace

void bench_scans(CpuKernelBench& bench, std::int64_t rows) {
  bench_conv(bench, rows);
  bench_selective_scan(bench, rows);
  bench_head_scan(bench, rows);
}

}  // namespace train::bench
