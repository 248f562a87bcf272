// Cost of a start and of a lost rank for a run with a long history, compared with one without.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "bench/recovery/recovery_rows.hpp"
#include "bench/recovery/recovery_support.hpp"
#include "bench/support/bench_child.hpp"
#include "tests/support/processes/process_cost.hpp"
#include "tests/support/runs/long_past.hpp"

namespace train::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using test::ProcessCost;

constexpr int kStarts = 15;  // With ticks of 10 ms on a busy machine.
// Like the metrics of the quickstart's model, with all that a journal keeps.
constexpr test::LongPast kPast = {.lines = 1'000'000, .line_bytes = 320, .steps = 95'000};

/// Start of the real program that resumes.
class Start {
 public:
  Start(const Workplace& place, const std::string& name)
      : root_(place.directory() / "runs" / name), errors_(place.directory() / (name + ".err")) {
    const Words keys = {"parallel.ranks=2",       "parallel.strategy=\"none\"",
                        "run.steps=1000000",      "checkpoint.interval_steps=0",
                        "checkpoint.keep_last=1", "checkpoint.local_dir=\"none\"",
                        "run.tensorboard=false"};
    child_ = std::make_unique<BenchChild>(
        joined(joined({ACTORTRAIN_BINARY_DIR "/actortrain"}, run_words(place, name, keys)),
               {"--json"}),
        errors_);
    output_ = std::thread([this] {
      while (const auto line = child_->read_line()) {
        constexpr std::string_view kStep = "{\"step\":";
        if (line->starts_with(kStep)) {
          step_ = std::atoll(line->c_str() + kStep.size());
        }
      }
      ended_ = true;
    });
  }
  ~Start() {
    if (!ended_) {
      ::kill(child_->id(), SIGKILL);
    }
    output_.join();
  }
  Start(const Start&) = delete;
  Start& operator=(const Start&) = delete;

  [[nodiscard]] pid_t id() const { return child_->id(); }
  [[nodiscard]] std::int64_t step() const { return step_; }
  [[nodiscard]] std::string errors() const { return text_of(errors_); }

  /// Waits until `condition` holds; throws if the run ends before.
  template <class Condition>
  void until(Condition condition) const {
    while (!condition()) {
      if (ended_) {
        throw std::runtime_error("the run ended: " + errors());
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  /// Saves, so that the next start can resume.
  void stop() {
    ::kill(child_->id(), SIGTERM);
    if (child_->wait() != 75) {
      throw std::runtime_error("not stopped in order: " + errors());
    }
  }

 private:
  fs::path root_, errors_;
  std::unique_ptr<BenchChild> child_;
  std::thread output_;
  std::atomic<std::int64_t> step_{0};
  std::atomic<bool> ended_{false};
};

/// Costs of the launcher only: workers do not read the history.
struct Costs {
  Values wall_s, processor_s, read_mb, written_mb, peak_mb;

  void add(Clock::time_point begin, const ProcessCost& cost) {
    wall_s.add(std::chrono::duration<double>(Clock::now() - begin).count());
    processor_s.add(cost.processor_s);
    read_mb.add(static_cast<double>(cost.read_bytes) * 1e-6);
    written_mb.add(static_cast<double>(cost.written_bytes) * 1e-6);
    peak_mb.add(static_cast<double>(cost.peak_bytes) * 1e-6);
  }
};

struct Measured {
  Costs start, loss;
};

void measure_start(const Workplace& place, const std::string& name, Measured& measured) {
  const auto begin = Clock::now();
  Start start(place, name);
  start.until([&] { return start.step() > 0; });
  measured.start.add(begin, test::cost_of(start.id()));
  const std::int64_t first = start.step();
  start.until([&] { return start.step() > first + 12; });  // A newer state is in memory.
  test::forget_peak_of(start.id());
  const ProcessCost before = test::cost_of(start.id());
  const auto killed = Clock::now();
  if (::kill(worker_of(start.id(), 1), SIGKILL) != 0) {
    throw std::runtime_error("no worker to kill");
  }
  start.until([&] { return start.errors().find("respawned") != std::string::npos; });
  const std::int64_t step = start.step();
  start.until([&] { return start.step() != step; });
  measured.loss.add(killed, test::cost_of(start.id()) - before);
  start.stop();
}

void print_costs(const std::string& what, const Costs& with, const Costs& without) {
  const auto both = [&](const char* unit, const Values& one, const Values& other, int digits) {
    print_result(fmt::format("{}, {}", what, unit),
                 fmt::format("{}; none: {}", one.text(digits), other.text(digits)));
  };
  both("s", with.wall_s, without.wall_s, 3);
  both("s of a processor", with.processor_s, without.processor_s, 3);
  both("MB read", with.read_mb, without.read_mb, 2);
  both("MB written", with.written_mb, without.written_mb, 2);
  both("MB of memory at most", with.peak_mb, without.peak_mb, 1);
  Values more;
  more.add(with.processor_s.median() - without.processor_s.median());
  print_at_most(fmt::format("{}: processor time more than without, s", what), more, 0.05);
}

}  // namespace

void long_row(const Workplace& place) {
  for (const std::string name : {"short", "long"}) {
    Measured first;
    measure_start(place, name, first);
  }
  test::lengthen(place.directory() / "runs" / "long", kPast);
  Measured without, with;
  Measured sorting;  // First start after such a large insertion into the index.
  measure_start(place, "long", sorting);
  for (int start = 0; start < kStarts; ++start) {
    measure_start(place, "short", without);
    measure_start(place, "long", with);
  }
  print_result("lines of metrics, steps in the journal; starts of each kind",
               fmt::format("{}, {}; {}", kPast.lines, kPast.steps, kStarts));
  print_costs("a start to its first step", with.start, without.start);
  print_costs("a lost rank to the next step", with.loss, without.loss);
}

}  // namespace train::bench
