// Rows that train with the real program and compare the steps during a save with others. Every
// block of steps after a save contains both kinds, compared within the block, so that a change in
// machine speed favours neither.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "bench/checkpoint/checkpoint_rows.hpp"
#include "bench/support/timed_run.hpp"

namespace train::bench {
namespace {

/// The figures are for saves at this interval.
constexpr std::int64_t kInterval = 20;
constexpr std::size_t kFewestClean = 5;

/// Effect of one run's saves on its steps.
struct Stalls {
  Values added;      ///< Time added by a save, as a fraction of the block's time without it.
  Values slowdown;   ///< Ratio of the steps during a save to the others.
  Values control;    ///< Same as `added`, for as many steps without a save.
  Values persist_s;  ///< From the end of the saved step to the checkpoint's publication.
  Values step_s;     ///< Step time without a save.
};

/// Number of steps after `save` that began before its publication; at least one, during the copy.
std::int64_t steps_beside(const TimedRun& run, const Save& save, std::int64_t spacing) {
  std::int64_t steps = 1;
  while (steps < spacing && run.step_begin_s(save.step + steps + 1) < save.published_s) {
    ++steps;
  }
  return steps;
}

void add_block(const TimedRun& run, const Save& save, std::int64_t spacing, Stalls& stalls) {
  const std::int64_t beside = steps_beside(run, save, spacing);
  Values clean;
  for (std::int64_t step = save.step + beside + 1; step <= save.step + spacing; ++step) {
    clean.add(run.step_seconds(step));
  }
  if (clean.all.size() < kFewestClean) {
    throw std::runtime_error(
        fmt::format("the save of step {} took {} of {} steps", save.step, beside, spacing));
  }
  const double usual = clean.median();
  const auto over = [&](std::int64_t first) {
    double sum = 0.0;
    for (std::int64_t step = first; step < first + beside; ++step) {
      sum += run.step_seconds(step) - usual;
    }
    return sum;
  };
  const double block = usual * static_cast<double>(kInterval);
  stalls.added.add(100.0 * over(save.step + 1) / block);
  stalls.control.add(100.0 * over(save.step + spacing - beside) / block);
  stalls.slowdown.add(100.0 * over(save.step + 1) / (usual * static_cast<double>(beside)));
  stalls.persist_s.add(save.published_s - run.step_begin_s(save.step + 1));
  stalls.step_s.add(usual);
}

struct Case {
  const char* name;
  Words keys;
  int steps = 0;
  bool two_locations = false;
  /// Steps between saves: enough for the save, which runs in the time left by the steps, and for
  /// steps without it.
  std::int64_t spacing = kInterval;
};

void show_stalls(const Workplace& place, const Case& one) {
  Words keys =
      joined(one.keys, {fmt::format("run.steps={}", one.steps),
                        fmt::format("checkpoint.interval_steps={}", one.spacing),
                        fmt::format("checkpoint.local_dir=\"{}\"",
                                    one.two_locations ? (place.directory() / "local").string()
                                                      : std::string("none"))});
  const TimedRun run = run_timed(place, {.keys = keys});
  Stalls stalls;
  for (const Save& save : run.saves) {
    if (save.step + one.spacing <= static_cast<std::int64_t>(run.step_end_s.size())) {
      add_block(run, save, one.spacing, stalls);
    }
  }
  if (stalls.added.all.empty()) {
    throw std::runtime_error("no save was published while the run went on");
  }
  const std::string name =
      fmt::format("{}, {}", one.name, one.two_locations ? "two places" : "one place");
  print_result(fmt::format("{}: step, s; state, MB; saves", name),
               fmt::format("{}; {:.1f}; {}", stalls.step_s.text(4), run.state_bytes * 1e-6,
                           stalls.added.all.size()));
  print_result(fmt::format("{}: from the step to published, s", name), stalls.persist_s.text(3));
  print_at_most(fmt::format("{}: time added by a save, % of {} steps", name, kInterval),
                stalls.added, 1.0);
  print_result("  the same of steps without a save (noise), %", stalls.control.text(3));
  print_at_most(fmt::format("{}: slowdown of steps beside it, %", name), stalls.slowdown, 3.0);
}

Words large_model() {
  return {"model.layers=8", "model.heads=8", "model.head_dim=64", "batch.micro_batch=2"};
}

const Words kAllCores = {"runtime.threads=0"};

/// Largest resident memory between `begin_s` and `end_s`.
double peak(const TimedRun& run, double begin_s, double end_s) {
  double most = 0.0;
  for (const MemorySample& sample : run.memory) {
    if (sample.at_s >= begin_s && sample.at_s <= end_s) {
      most = std::max(most, sample.bytes);
    }
  }
  return most;
}

void show_memory(const Workplace& place, std::int64_t interval, int steps) {
  const TimedRun run =
      run_timed(place, {.keys = joined(joined(large_model(), kAllCores),
                                       {fmt::format("run.steps={}", steps),
                                        fmt::format("checkpoint.interval_steps={}", interval),
                                        "checkpoint.local_dir=\"none\""}),
                        .sample_memory = true});
  if (run.saves.empty()) {
    throw std::runtime_error("no save was published while the run went on");
  }
  // The first two steps allocate the buffers; the first save comes well after them.
  const double first_save_s = run.step_begin_s(run.saves.front().step + 1);
  const double before = peak(run, run.step_begin_s(3), first_save_s);
  Values growth;
  growth.add((peak(run, first_save_s, run.step_end_s.back()) - before) / run.state_bytes);
  const std::string name = fmt::format("8 x 512, a save every {} steps", interval);
  print_result(fmt::format("{}: state, MB; saves", name),
               fmt::format("{:.1f}; {}", run.state_bytes * 1e-6, run.saves.size()));
  print_at_most(fmt::format("{}: growth while saving / state", name), growth, 2.0);
  Values idle;
  for (const Save& save : run.saves) {
    // The steps just before the next save, when the previous one is long published.
    const std::int64_t last = save.step + interval;
    if (interval >= kInterval && last <= static_cast<std::int64_t>(run.step_end_s.size())) {
      idle.add((peak(run, run.step_begin_s(last - 3), run.step_begin_s(last)) - before) /
               run.state_bytes);
    }
  }
  if (!idle.all.empty()) {
    print_at_most(fmt::format("{}: growth when idle / state", name), idle, 0.05);
  }
}

}  // namespace

void stall_row(const Workplace& place) {
  show_stalls(place, {"quickstart", kAllCores, 240});
  show_stalls(place, {"quickstart", kAllCores, 400, true, 40});
}

void stall_large_row(const Workplace& place) {
  show_stalls(place, {"8 x 512", joined(large_model(), kAllCores), 100});
}

void stall_large_two_row(const Workplace& place) {
  show_stalls(place, {"8 x 512", joined(large_model(), kAllCores), 165, true, 40});
}

void stall_spare_row(const Workplace& place) {
  show_stalls(place, {"8 x 512, 1 thread", large_model(), 60});
  show_stalls(place, {"8 x 512, 1 thread", large_model(), 60, true});
}

void memory_row_of_saves(const Workplace& place) {
  show_memory(place, kInterval, 3 * static_cast<int>(kInterval));
  show_memory(place, 4, 16);
}

}  // namespace train::bench
