// Rows that kill workers of the real program while it trains.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <utility>

#include "bench/recovery/recovery_rows.hpp"
#include "bench/recovery/recovery_support.hpp"
#include "bench/support/bench_child.hpp"
#include "bench/support/timed_run.hpp"

namespace train::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 2;
constexpr std::int64_t kInterval = 10;
constexpr double kBetweenKills = 60.0;  // For the goodput, in seconds.

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Number after the last `before` in `text`, or -1.
std::int64_t last_number_after(const std::string& text, const std::string& before) {
  const std::size_t at = text.rfind(before);
  return at == std::string::npos ? -1 : std::atoll(text.c_str() + at + before.size());
}

Words ranks_keys() {
  return {fmt::format("parallel.ranks={}", kRanks), "parallel.strategy=\"none\"",
          "checkpoint.local_dir=\"none\"",
          fmt::format("recovery.snapshot_interval_steps={}", kInterval)};
}

/// Run of the real program whose workers can be killed.
class KilledTraining {
 public:
  KilledTraining(const Workplace& place, const std::string& name, const Words& keys)
      : root_(place.directory() / "runs" / name), errors_(place.directory() / (name + ".err")) {
    child_ = std::make_unique<BenchChild>(
        joined(joined({ACTORTRAIN_BINARY_DIR "/actortrain"}, run_words(place, name, keys)),
               {"--json"}),
        errors_);
    output_ = std::thread([this] {
      while (const auto line = child_->read_line()) {
        steps_said_ += line->starts_with("{\"step\":") ? 1 : 0;
      }
      ended_ = true;
    });
  }
  ~KilledTraining() {
    if (!ended_) {
      ::kill(child_->id(), SIGKILL);
    }
    output_.join();
    std::error_code left;
    fs::remove_all(root_, left);
  }
  KilledTraining(const KilledTraining&) = delete;
  KilledTraining& operator=(const KilledTraining&) = delete;

  /// Number of steps in the run's report.
  [[nodiscard]] std::int64_t reported() const {
    const std::string text = text_of(root_ / "metrics.jsonl");
    return last_number_after(text.substr(0, text.rfind('\n') + 1), "{\"step\":");
  }

  /// Waits until `condition` holds; throws if the run ends before.
  template <class Condition>
  void until(Condition condition) const {
    while (!condition()) {
      if (ended_) {
        throw std::runtime_error("the run ended: " + text_of(errors_));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
  }

  /// Kill of one worker, up to the completion of the next new step.
  struct Kill {
    double seconds = 0.0;          ///< Time until that step was reported.
    std::int64_t again = 0;        ///< Number of reported steps that were recomputed.
    double noticed_s = 0.0;        ///< Time until the launcher reported the lost rank,
    double started_again_s = 0.0;  ///< and until all ranks were started again.
  };
  Kill kill_one(int rank) {
    const std::string errors = text_of(errors_);
    const std::int64_t before = reported();
    const auto begin = Clock::now();
    if (::kill(worker_of(child_->id(), rank), SIGKILL) != 0) {
      throw std::runtime_error("no worker to kill");
    }
    Kill kill;
    const auto said = [&](const char* what) {
      until([&] { return text_of(errors_).find(what, errors.size()) != std::string::npos; });
      return seconds_since(begin);
    };
    kill.noticed_s = said("rank_lost ");
    kill.started_again_s = said("respawned generation=");
    const std::int64_t step = last_number_after(text_of(errors_), " step=");
    const std::int64_t old_ones = steps_said_;  // None of the new ranks yet.
    until([&] { return steps_said_ > old_ones; });
    kill.seconds = seconds_since(begin);
    kill.again = std::max<std::int64_t>(0, before - step);
    return kill;
  }

 private:
  fs::path root_, errors_;
  std::unique_ptr<BenchChild> child_;
  std::thread output_;
  std::atomic<std::int64_t> steps_said_{0};  // Over all generations.
  std::atomic<bool> ended_{false};
};

}  // namespace

void kills_row(const Workplace& place) {
  const char* const wanted = std::getenv("ACTORTRAIN_BENCH_KILLS");
  const int kills = wanted == nullptr ? 20 : std::max(1, std::atoi(wanted));
  KilledTraining run(place, "killed",
                     joined(ranks_keys(), {"run.steps=1000000", "checkpoint.interval_steps=200",
                                           "recovery.max_respawns=1000"}));
  std::mt19937 random(7);
  std::int64_t first = -1;
  Values seconds, again, noticed, started;
  double step_s = 0.0;
  for (int i = 0; i < kills; ++i) {
    const std::int64_t from = std::max<std::int64_t>(run.reported(), 0);
    run.until([&] { return run.reported() > from + 5; });
    const auto begin = Clock::now();
    const std::int64_t begin_step = run.reported();
    std::this_thread::sleep_for(std::chrono::milliseconds(500 + random() % 1000));
    if (first < 0) {
      first = begin_step;
      step_s = seconds_since(begin) / static_cast<double>(run.reported() - begin_step);
    }
    const auto kill = run.kill_one(static_cast<int>(random() % kRanks));
    seconds.add(kill.seconds);
    again.add(static_cast<double>(kill.again));
    noticed.add(kill.noticed_s);
    started.add(kill.started_again_s);
  }
  print_result("kills; a step without them, s", fmt::format("{}; {:.4f}", kills, step_s));
  print_result("kill -9 to noticed, s", noticed.text(3));
  print_result("kill -9 to ranks being started, s", started.text(3));
  Values middle, late;
  middle.add(seconds.median());
  late.add(percentile(seconds.all, 0.99));
  print_at_most("kill -9 to the first new step, s: median", middle, 2.0);
  print_at_most("kill -9 to the first new step, s: p99", late, 5.0);
  print_at_most("steps computed again", again, static_cast<double>(kInterval));
  Values goodput;
  for (std::size_t i = 0; i < seconds.all.size(); ++i) {
    // The first new step is no loss; those recomputed after it are.
    const double lost = seconds.all[i] + step_s * (again.all[i] - 1.0);
    goodput.add(100.0 * (1.0 - lost / kBetweenKills));
  }
  print_at_least("goodput with a kill every 60 s, computed, %", goodput, 95.0);
}

void snapshots_row(const Workplace& place) {
  Values added, control;
  for (int round = 0; round < 3; ++round) {
    const TimedRun run = run_timed(
        place, {.keys = joined(ranks_keys(), {"run.steps=400", "checkpoint.interval_steps=0"})});
    const auto steps = static_cast<std::int64_t>(run.step_end_s.size());
    for (std::int64_t step = 2 * kInterval; step + kInterval <= steps; step += kInterval) {
      Values others;
      for (std::int64_t other = step + 2; other <= step + kInterval; ++other) {
        others.add(run.step_seconds(other));
      }
      const double usual = others.median();
      const double block = usual * static_cast<double>(kInterval);
      added.add(100.0 * (run.step_seconds(step + 1) - usual) / block);
      control.add(100.0 * (run.step_seconds(step + 6) - usual) / block);
    }
  }
  Values middle;
  middle.add(added.median());
  print_at_most("time added by a snapshot, % of 10 steps: median", middle, 1.0);
  print_result("  of all blocks; of a step without one (noise), %",
               fmt::format("{}; {}", added.text(2), control.text(2)));
  std::vector<std::vector<RunOutcome>> runs = run_alternately(
      place,
      {{.keys = joined(ranks_keys(), {"run.steps=200", "checkpoint.interval_steps=0"})},
       {.keys = joined(ranks_keys(), {"run.steps=200", "checkpoint.interval_steps=0",
                                      "recovery.snapshot_interval_steps=0"})}},
      5);
  Values ratio;
  for (std::size_t i = 0; i < runs[0].size(); ++i) {
    ratio.add(100.0 * (runs[0][i].step_seconds / runs[1][i].step_seconds - 1.0));
  }
  print_result("time of a step against runs without snapshots, %", ratio.text(2));
}

void goodput_row(const Workplace& place) {
  const char* const wanted = std::getenv("ACTORTRAIN_BENCH_GOODPUT_S");
  const double seconds = wanted == nullptr ? 6 * kBetweenKills : std::max(1.0, std::atof(wanted));
  KilledTraining run(place, "disturbed",
                     joined(ranks_keys(), {"run.steps=1000000", "checkpoint.interval_steps=200",
                                           "recovery.max_respawns=1000"}));
  run.until([&] { return run.reported() > 10; });
  // Step and time of the start, and of intervals without a kill. The latter are taken from the same
  // run, as the speed of a shared machine changes by more from minute to minute than the effect
  // measured.
  const auto next_step = [&] {
    const std::int64_t before = run.reported();
    run.until([&] { return run.reported() > before; });
    return std::pair(run.reported(), Clock::now());
  };
  const auto [first, begin] = next_step();
  auto [quiet_step, quiet_since] = std::pair(first, begin);
  std::int64_t quiet_steps = 0;
  double quiet_s = 0.0;
  std::int64_t kills = 0;
  const auto end_quiet = [&] {
    const auto [step, now] = next_step();
    quiet_steps += step - quiet_step;
    quiet_s += std::chrono::duration<double>(now - quiet_since).count();
    return step;
  };
  std::mt19937 random(7);
  for (double at = kBetweenKills / 2; at < seconds; at += kBetweenKills, ++kills) {
    std::this_thread::sleep_until(begin + std::chrono::duration<double>(at));
    const std::int64_t before = end_quiet();
    // Somewhere within a step.
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 100));
    run.kill_one(static_cast<int>(random() % kRanks));
    run.until([&] { return run.reported() > before; });
    std::tie(quiet_step, quiet_since) = next_step();
  }
  std::this_thread::sleep_until(begin + std::chrono::duration<double>(seconds));
  const std::int64_t steps = end_quiet() - first;
  const double total_s = seconds_since(begin);
  const double step_s = quiet_s / static_cast<double>(quiet_steps);
  print_result("kills; steps that stayed; s in all; a step between kills, s",
               fmt::format("{}; {}; {:.1f}; {:.4f}", kills, steps, total_s, step_s));
  Values goodput;
  goodput.add(100.0 * static_cast<double>(steps) * step_s / total_s);
  print_at_least("goodput with a kill every 60 s, %", goodput, 95.0);
}

}  // namespace train::bench
