// Breakdown of a step's time by kernel: the plain loop of the training step
// (tests/support/runs/world_step.hpp) with a kernel table that reads the clock. A run's profile
// only has whole units.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/steps/step_shares.hpp"
#include "engine/rank/exec/rank_engine.hpp"
#include "engine/rank/plan/run_device.hpp"
#include "kernels/backend.hpp"
#include "kernels/gemm/matmul.hpp"
#include "kernels/head/head_loss.hpp"
#include "kernels/head/head_loss_products.hpp"
#include "tests/support/runs/world_step.hpp"

namespace train::bench {
namespace {

using Clock = std::chrono::steady_clock;
using kernels::KernelTable;

enum class Group : std::uint8_t { gemm, attention, optimizer, other };

/// Time of all calls of one kernel. Written only on the stream's thread, read when it is idle.
struct KernelClock {
  const char* name = "";
  Group group = Group::other;
  Clock::time_point begin;
  double seconds = 0.0;
};

/// In table order. Kernels are plain functions, so their counters are global.
std::vector<KernelClock*>& all_clocks() {
  static std::vector<KernelClock*> clocks;
  return clocks;
}

template <auto Field>
KernelClock& clock_of() {
  static KernelClock clock;
  return clock;
}

/// Kernel table being timed.
const KernelTable*& timed_kernels() {
  static const KernelTable* kernels = &kernels::cpu_backend();
  return kernels;
}

kernels::HeadLossParams& last_head_loss() {
  static kernels::HeadLossParams params;
  return params;
}

template <typename Params>
using Kernel = void (*)(kernels::Stream&, const Params&);

template <auto Field, typename Params>
void clocked(kernels::Stream& stream, const Params& params) {
  stream.enqueue([] { clock_of<Field>().begin = Clock::now(); });
  (timed_kernels()->*Field)(stream, params);
  stream.enqueue([] {
    KernelClock& clock = clock_of<Field>();
    clock.seconds += std::chrono::duration<double>(Clock::now() - clock.begin).count();
  });
  if constexpr (std::is_same_v<Params, kernels::HeadLossParams>) {
    last_head_loss() = params;
  }
}

template <auto Field, typename Params>
void replace(KernelTable& table, Kernel<Params> KernelTable::* /*for its type*/) {
  table.*Field = clocked<Field, Params>;
}

template <auto Field>
void clock(KernelTable& table, const char* name, Group group = Group::other) {
  replace<Field>(table, Field);
  clock_of<Field>() = {.name = name, .group = group, .begin = {}, .seconds = 0.0};
  all_clocks().push_back(&clock_of<Field>());
}

/// Covers all kernels of AdamW's training step. A missing one counts as time between kernels.
KernelTable clocked_table() {
  KernelTable table = *timed_kernels();
  all_clocks().clear();
  clock<&KernelTable::matmul>(table, "matmul", Group::gemm);
  clock<&KernelTable::head_loss>(table, "head_loss: products", Group::gemm);
  clock<&KernelTable::attention_forward>(table, "attention_forward", Group::attention);
  clock<&KernelTable::attention_backward>(table, "attention_backward", Group::attention);
  clock<&KernelTable::causal_conv_forward>(table, "causal_conv_forward");
  clock<&KernelTable::causal_conv_backward>(table, "causal_conv_backward");
  clock<&KernelTable::selective_scan_forward>(table, "selective_scan_forward");
  clock<&KernelTable::selective_scan_backward>(table, "selective_scan_backward");
  clock<&KernelTable::head_scan_forward>(table, "head_scan_forward");
  clock<&KernelTable::head_scan_backward>(table, "head_scan_backward");
  clock<&KernelTable::gated_norm_forward>(table, "gated_norm_forward");
  clock<&KernelTable::gated_norm_backward>(table, "gated_norm_backward");
  clock<&KernelTable::adamw_update>(table, "adamw_update", Group::optimizer);
  clock<&KernelTable::embedding_forward>(table, "embedding_forward");
  clock<&KernelTable::embedding_backward>(table, "embedding_backward");
  clock<&KernelTable::norm_forward>(table, "norm_forward");
  clock<&KernelTable::norm_backward>(table, "norm_backward");
  clock<&KernelTable::rope_table>(table, "rope_table");
  clock<&KernelTable::rope_apply>(table, "rope_apply");
  clock<&KernelTable::gelu_forward>(table, "gelu_forward");
  clock<&KernelTable::gelu_backward>(table, "gelu_backward");
  clock<&KernelTable::swiglu_forward>(table, "swiglu_forward");
  clock<&KernelTable::swiglu_backward>(table, "swiglu_backward");
  clock<&KernelTable::sigmoid_gate_forward>(table, "sigmoid_gate_forward");
  clock<&KernelTable::sigmoid_gate_backward>(table, "sigmoid_gate_backward");
  clock<&KernelTable::residual_add>(table, "residual_add");
  clock<&KernelTable::tree_add>(table, "tree_add");
  clock<&KernelTable::scale>(table, "scale");
  clock<&KernelTable::fill>(table, "fill");
  clock<&KernelTable::copy>(table, "copy");
  clock<&KernelTable::row_square_sums>(table, "row_square_sums");
  clock<&KernelTable::tree_sum>(table, "tree_sum");
  clock<&KernelTable::clip_scale>(table, "clip_scale");
  return table;
}

/// Minimum over several runs of the work enqueued by work().
template <class Work>
double least_seconds(kernels::Stream& stream, const Work& work) {
  double least = 1e9;
  for (int run = 0; run < 4; ++run) {
    const auto begin = Clock::now();
    work();
    stream.synchronize();
    least = std::min(least, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return least;
}

/// Enqueues the three products of each chunk of a head_loss call.
void enqueue_products(kernels::Stream& stream, const kernels::HeadLossParams& params) {
  const KernelTable& cpu = *timed_kernels();
  for (std::int64_t first = 0; first < params.rows; first += params.chunk_rows) {
    const std::int64_t rows = std::min(params.chunk_rows, params.rows - first);
    const kernels::HeadLossProducts products{params, first, rows};
    cpu.matmul(stream, kernels::head_product(params, first, rows));
    cpu.matmul(stream, products.input_gradient());
    cpu.matmul(stream, products.weight_gradient());
  }
}

/// Time of a head_loss call without its products: a call with very few columns, minus its products
/// alone, which still write the logits once and read them twice.
double loss_without_products(kernels::Stream& stream, kernels::HeadLossParams params) {
  params.cols = 16;  // One vector.
  const auto elements = [&](std::int64_t rows) {
    return std::vector<float>(static_cast<std::size_t>(rows * params.cols), 0.01F);
  };
  const std::vector<float> x = elements(params.rows);
  const std::vector<float> weight = elements(params.vocab);
  const std::vector<std::int32_t> targets(static_cast<std::size_t>(params.rows), 5);
  std::vector<float> dx = x;
  std::vector<float> dweight = weight;
  std::vector<float> logits(static_cast<std::size_t>(params.chunk_rows * params.vocab));
  std::vector<double> terms(static_cast<std::size_t>(params.rows * 4));
  kernels::LossSums sums;
  params.x = x.data();
  params.weight = weight.data();
  params.targets = targets.data();
  params.sums = &sums;
  params.dx = dx.data();
  params.dweight = dweight.data();
  params.logits = logits.data();
  params.row_terms = terms.data();
  const double all = least_seconds(stream, [&] { timed_kernels()->head_loss(stream, params); });
  const double products = least_seconds(stream, [&] { enqueue_products(stream, params); });
  return std::max(0.0, all - products);
}

/// Means per step.
struct Shares {
  double step_s = 0.0;
  double softmax_s = 0.0;  ///< Part of head_loss's time.
  Values other;            ///< Fraction of each step outside the first three groups.
};

engine::WorldStep::ReadLane random_lanes(const engine::RankOptions& options) {
  const auto count = static_cast<std::size_t>(options.batch.micro_batch * options.seq_len);
  const auto vocabulary = static_cast<std::uint32_t>(options.model.vocab_size);
  return [count, vocabulary](std::int64_t step, std::int64_t lane, std::int32_t* tokens,
                             std::int32_t* targets) {
    auto state = static_cast<std::uint32_t>(step * 100 + lane);
    for (std::size_t i = 0; i < count; ++i) {
      state = state * 1664525U + 1013904223U;
      tokens[i] = static_cast<std::int32_t>((state >> 8) % vocabulary);
      targets[i] = static_cast<std::int32_t>((state >> 9) % vocabulary);
    }
  };
}

Shares measure(const engine::RankOptions& options, int steps) {
  const auto stream = kernels::make_thread_stream("shares", run::resolve_threads(0));
  timed_kernels() = &engine::kernels_of("cpu", options.precision.compute);
  const KernelTable table = clocked_table();
  engine::WorldStep loop(table, options);
  const auto read = random_lanes(options);
  (void)loop.run(*stream, 0, read);
  const auto lanes = static_cast<double>(options.batch.lanes);
  Shares shares{.step_s = 0.0,
                .softmax_s = lanes * loss_without_products(*stream, last_head_loss()),
                .other = {}};
  double named_before = 0.0;
  for (KernelClock* each : all_clocks()) {
    each->seconds = 0.0;
  }
  for (int step = 1; step <= steps; ++step) {
    const auto begin = Clock::now();
    (void)loop.run(*stream, step, read);
    stream->synchronize();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    double named = -shares.softmax_s * step;
    for (const KernelClock* each : all_clocks()) {
      named += each->group == Group::other ? 0.0 : each->seconds;
    }
    shares.other.add(1.0 - (named - named_before) / seconds);
    named_before = named;
    shares.step_s += seconds / steps;
  }
  return shares;
}

struct Line {
  std::string name;
  double seconds = 0.0;
};

/// Lines of all clocks, means per step; longest first.
std::vector<Line> lines_of(const Shares& shares, int steps) {
  std::vector<Line> lines = {{"head_loss: softmax and loss", shares.softmax_s}};
  double rest = shares.step_s - shares.softmax_s;
  for (const KernelClock* each : all_clocks()) {
    const bool head = each == &clock_of<&KernelTable::head_loss>();
    const double seconds = each->seconds / steps - (head ? shares.softmax_s : 0.0);
    lines.push_back({each->name, seconds});
    rest -= seconds;
  }
  lines.push_back({"between kernels", rest});
  std::sort(lines.begin(), lines.end(),
            [](const Line& a, const Line& b) { return a.seconds > b.seconds; });
  return lines;
}

}  // namespace

void print_shares(const Workplace& place, const StepCase& one, const std::string& title,
                  int steps) {
  const run::RunPlan plan = plan_of_case(place, one);
  const Shares shares = measure(plan.engine, steps);
  print_result(fmt::format("{}: a step of the plain loop, ms", title),
               fmt::format("{:.1f}", shares.step_s * 1e3));
  for (const Line& line : lines_of(shares, steps)) {
    constexpr double kWorthALine = 1e-3;
    if (const double share = line.seconds / shares.step_s; share >= kWorthALine) {
      print_result(fmt::format("{}: {}", title, line.name),
                   fmt::format("{:9.2f} ms  {:5.1f} %", line.seconds * 1e3, share * 100.0));
    }
  }
  print_at_most(fmt::format("{}: not GEMM, attention or optimizer", title), shares.other, 0.08);
}

}  // namespace train::bench
