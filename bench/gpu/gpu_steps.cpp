#include "bench/gpu/gpu_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "engine/rank/exec/rank_memory.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "tests/support/runs/world_step.hpp"

namespace train::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double kGigabyte = 1e9;

constexpr double kRatio = 1.15;  ///< Target ratio to PyTorch's speed.

/// CPU time of the threads of a process that run actors, in ns.
double actor_nanoseconds(pid_t process) {
  double total = 0.0;
  std::error_code gone;
  const fs::path tasks = fmt::format("/proc/{}/task", process);
  for (const auto& task : fs::directory_iterator(tasks, gone)) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    double nanoseconds = 0.0;
    if (name.starts_with("caf.")) {
      std::ifstream(task.path() / "schedstat") >> nanoseconds;
    }
    total += nanoseconds;
  }
  return total;
}

/// External observation of the engine's process while it trains.
class Observed {
 public:
  explicit Observed(const GpuSite& site) : site_(site), before_(site.device_bytes_used()) {}

  void look(pid_t process) {
    if (site_.seconds_left() < 0.0) {
      throw std::runtime_error("the time is over");
    }
    peak_ = std::max(peak_, site_.device_bytes_used() - before_);
    samples_.push_back({Clock::now(), actor_nanoseconds(process)});
  }
  [[nodiscard]] double peak_bytes() const { return peak_; }
  /// Share of one core's time that actors take, in the later half, when the run has begun.
  [[nodiscard]] double actors_share() const {
    if (samples_.size() < 4) {
      return NAN;
    }
    const Sample& middle = samples_[samples_.size() / 2];
    const Sample& end = samples_.back();
    return (end.actors_ns - middle.actors_ns) * 1e-9 /
           std::chrono::duration<double>(end.at - middle.at).count();
  }

 private:
  struct Sample {
    Clock::time_point at;
    double actors_ns = 0.0;
  };
  const GpuSite& site_;
  double before_;
  double peak_ = 0.0;
  std::vector<Sample> samples_;
};

/// Rounds of both sides.
struct Sides {
  Values ours_s, theirs_s, ratio;
  Values our_bytes, their_bytes;
  Values actors_share;
};

std::unique_ptr<TorchPeer> start_peer(const GpuSite& site, const StepCase& one) {
  if (!torch_python("cuda")) {
    print_skipped(one.name + ": PyTorch", "ACTORTRAIN_PYTHON or python3 has none with CUDA");
    return nullptr;
  }
  try {
    auto peer = std::make_unique<TorchPeer>(site.place(), one, "compiled", false,
                                            std::max(1.0, site.seconds_left()));
    print_result(fmt::format("{}: PyTorch {}, compiled", one.name, peer->version()),
                 fmt::format("first loss {:.3f}; products at {:.0f} TFLOP/s", peer->first_loss(),
                             peer->gemm_flops() * 1e-12));
    return peer;
  } catch (const std::exception& error) {  // The engine is still measured.
    print_skipped(one.name + ": PyTorch", error.what());
    return nullptr;
  }
}

Sides measure(const GpuSite& site, const StepCase& one, const Length& length, TorchPeer* peer) {
  Sides sides;
  for (int round = 0; round < length.rounds; ++round) {
    Observed observed(site);
    const StepTimes ours = run_ours(site.place(), one, length.steps, length.dropped, {},
                                    [&](pid_t process) { observed.look(process); });
    sides.ours_s.add(ours.seconds);
    sides.our_bytes.add(observed.peak_bytes());
    if (!std::isnan(observed.actors_share())) {
      sides.actors_share.add(observed.actors_share());
    }
    if (peer != nullptr) {
      const StepTimes theirs = peer->run(length.steps, 2);
      sides.theirs_s.add(theirs.seconds);
      sides.their_bytes.add(theirs.peak_bytes);
      sides.ratio.add(theirs.seconds / ours.seconds);
    }
  }
  return sides;
}

Values over(const Values& values, double amount) {
  Values result;
  for (const double each : values.all) {
    result.add(amount / each);
  }
  return result;
}

void print_measured(const std::string& what, const Values& values, double target, int digits) {
  if (target > 0.0) {
    print_result(what, fmt::format("{}   target >= {}: {}", values.text(digits), target,
                                   values.median() >= target ? "met" : "MISSED"));
  } else {
    print_result(what, values.text(digits));
  }
}

double tokens_of(const GpuSite& site, const StepCase& one) {
  return static_cast<double>(run::tokens_per_step(plan_of_case(site.place(), one).config));
}

void print_speeds(const GpuSite& site, const StepCase& one, const Sides& sides,
                  const Targets& targets) {
  const run::RunPlan plan = plan_of_case(site.place(), one);
  const double tokens = tokens_of(site, one);
  print_measured(one.name + ": ours, tokens/s", over(sides.ours_s, tokens),
                 targets.tokens_per_second, 0);
  const double flops = engine::flops_per_token(plan.engine.model, plan.engine.seq_len) * tokens;
  if (const double limit = site.limits().bf16_flops; limit > 0.0) {
    print_measured(one.name + ": ours, share of the device's FLOP/s",
                   over(sides.ours_s, flops / limit), targets.stated_share, 3);
  } else {
    print_result(one.name + ": ours, TFLOP/s", over(sides.ours_s, flops * 1e-12).text(3));
  }
  if (targets.measured_share > 0.0) {
    const double limit =
        kernels::measure_gemm_flops(site.kernels(), kernels::DType::bf16, site.tiny() ? 0.0 : 0.5);
    print_measured(one.name + ": ours, share of what a product reaches",
                   over(sides.ours_s, flops / limit), targets.measured_share, 3);
  }
  if (!sides.actors_share.all.empty()) {
    print_at_most(one.name + ": actors' time on the host, of a step", sides.actors_share, 0.01);
  }
}

double planned_bytes(const GpuSite& site, const StepCase& one) {
  return static_cast<double>(
      engine::plan_memory(plan_of_case(site.place(), one).engine).total_bytes());
}

/// Memory of driver and libraries: that of a run whose own memory is negligible.
double library_bytes(const GpuSite& site) {
  StepCase one = site.small_model();
  one.keys = joined(one.keys,
                    {"runtime.device=\"cuda\"", "precision.compute=\"bf16\"", "run.steps=100000"});
  Observed observed(site);
  (void)run_ours(site.place(), one, 2, 1, {}, [&](pid_t process) { observed.look(process); });
  return std::max(0.0, observed.peak_bytes() - planned_bytes(site, one));
}

void print_memory(const GpuSite& site, const StepCase& one, const Sides& sides) {
  const double planned = planned_bytes(site, one);
  if (sides.our_bytes.most() <= 0.0) {  // An emulated device does not count memory.
    print_result(one.name + ": predicted memory, GB", fmt::format("{:.3f}", planned / kGigabyte));
    print_skipped(one.name + ": measured memory", "the device does not say what is in use");
    return;
  }
  const double libraries = library_bytes(site);
  Values gigabytes;
  Values off;
  for (const double bytes : sides.our_bytes.all) {
    gigabytes.add(bytes / kGigabyte);
    off.add(std::abs(planned / (bytes - libraries) - 1.0));
  }
  print_result(one.name + ": peak of the device's memory, GB", gigabytes.text(2));
  print_result(one.name + ": predicted; besides it driver and libraries, GB",
               fmt::format("{:.2f}; {:.2f}", planned / kGigabyte, libraries / kGigabyte));
  print_at_most(one.name + ": prediction off by", off, 0.05);
}

/// Tokens of the case, lane by lane, cyclic.
class LaneTokens {
 public:
  explicit LaneTokens(const fs::path& file) : tokens_(fs::file_size(file) / sizeof(std::uint16_t)) {
    std::ifstream(file, std::ios::binary)
        .read(reinterpret_cast<char*>(tokens_.data()),
              static_cast<std::streamsize>(tokens_.size() * sizeof(std::uint16_t)));
  }
  void read(std::size_t count, std::int32_t* tokens, std::int32_t* targets) {
    for (std::size_t i = 0; i < count; ++i, ++next_) {
      tokens[i] = tokens_[next_ % tokens_.size()];
      targets[i] = tokens_[(next_ + 1) % tokens_.size()];
    }
  }

 private:
  std::vector<std::uint16_t> tokens_;
  std::size_t next_ = 0;
};

/// Seconds of the same steps without actors, in this process: from the end of a step, when its
/// result has arrived, to the end of the next, like the program's own times.
double plain_loop_seconds(const GpuSite& site, const StepCase& one, const Length& length) {
  const run::RunPlan plan = plan_of_case(site.place(), one);
  const auto stream = site.kernels().device->make_stream("compute", 1);
  engine::WorldStep loop(site.kernels(), plan.engine);
  LaneTokens file(tokens_of(site.place(), one));
  const auto count = static_cast<std::size_t>(plan.engine.batch.micro_batch * plan.engine.seq_len);
  const auto read = [&](std::int64_t /*step*/, std::int64_t /*lane*/, std::int32_t* tokens,
                        std::int32_t* targets) { file.read(count, tokens, targets); };
  Values seconds;
  auto end = Clock::now();
  for (int step = 0; step < length.dropped + length.steps; ++step) {
    (void)loop.run(*stream, step, read);
    stream->synchronize();
    const auto begin = std::exchange(end, Clock::now());
    if (step >= length.dropped) {
      seconds.add(std::chrono::duration<double>(end - begin).count());
    }
  }
  return seconds.median();
}

}  // namespace

Length taken(const GpuSite& site, const Length& length) {
  return site.tiny() ? Length{.rounds = 1, .steps = 2, .dropped = 1} : length;
}

void measure_speed(const GpuSite& site, const StepCase& one, const Length& length,
                   const Targets& targets) {
  print_speeds(site, one, measure(site, one, taken(site, length), nullptr), targets);
}

void measure_ours(const GpuSite& site, const StepCase& one, const Length& length,
                  const Targets& targets) {
  const Sides sides = measure(site, one, taken(site, length), nullptr);
  print_speeds(site, one, sides, targets);
  print_memory(site, one, sides);
}

void compare_with_torch(const GpuSite& site, const StepCase& one, const Length& length) {
  const auto peer = start_peer(site, one);
  if (peer == nullptr) {
    return;
  }
  const Sides sides = measure(site, one, taken(site, length), peer.get());
  print_result(one.name + ": PyTorch, tokens/s",
               over(sides.theirs_s, tokens_of(site, one)).text(0));
  print_measured(one.name + ": ours / PyTorch's", sides.ratio, kRatio, 3);
  // PyTorch's figure is its reserved memory, without the driver's.
  Values ratio;
  ratio.add((sides.our_bytes.median() - library_bytes(site)) / sides.their_bytes.median());
  print_result(one.name + ": PyTorch's peak memory, GB",
               fmt::format("{:.2f}", sides.their_bytes.median() / kGigabyte));
  print_result(one.name + ": peak memory / PyTorch's", ratio.text(3));
}

/// Alternates with the program, so that both find the same device.
void compare_with_plain_loop(const GpuSite& site, const StepCase& one, const Length& full) {
  const Length length = taken(site, full);
  Values plain_ms;
  Values ours_ms;
  Values ratio;
  for (int round = 0; round < length.rounds; ++round) {
    ours_ms.add(run_ours(site.place(), one, length.steps, length.dropped).seconds * 1e3);
    plain_ms.add(plain_loop_seconds(site, one, length) * 1e3);
    ratio.add(ours_ms.all.back() / plain_ms.all.back());
  }
  print_result(one.name + ": a step of the plain loop, ms", plain_ms.text(2));
  print_result(one.name + ": a step with actors, ms", ours_ms.text(2));
  print_at_most(one.name + ": a step with actors / one of the plain loop", ratio, 1.01);
}

/// Short separate run, as an event before and after each piece of work costs time. Steady steps
/// only: the summary excludes the first ones.
void print_gaps(const GpuSite& site, const StepCase& one) {
  const auto rank = site.profile(
      one, "profiled", {site.tiny() ? "run.steps=7" : "run.steps=23", "schedule.warmup_steps=2"});
  Values gaps;
  gaps.add(rank.at("gaps").get<double>());
  print_at_most(one.name + ": times in a step that the device had no work for 20 us", gaps, 0.0);
  print_result(
      one.name + ": steps measured; left out, the first ones",
      fmt::format("{}; {}", rank.at("steps").get<int>(), rank.at("steps_left_out").get<int>()));
  print_result(one.name + ": longest time without work, us",
               fmt::format("{:.0f}, after \"{}\" and before \"{}\"",
                           rank.at("longest_gap_seconds").get<double>() * 1e6,
                           rank.at("gap_after").get<std::string>(),
                           rank.at("gap_before").get<std::string>()));
  print_result(one.name + ": work of the device in a step, ms",
               fmt::format("{:.2f} of {:.2f}", rank.at("busy_seconds").get<double>() * 1e3,
                           rank.at("step_seconds").get<double>() * 1e3));
}

std::optional<StepCase> largest_that_fits(
    const GpuSite& site, int most, const std::function<StepCase(int sequences)>& of_sequences) {
  constexpr double most_bytes = 139.0 * 1024 * 1024 * 1024;
  constexpr double libraries = 1.0 * 1024 * 1024 * 1024;
  const double allowed = std::min(most_bytes, site.device_bytes_free());
  int sequences = most;
  while (sequences > 1 && planned_bytes(site, of_sequences(sequences)) > allowed - libraries) {
    --sequences;
  }
  StepCase one = of_sequences(sequences);
  const double planned = planned_bytes(site, one);
  if (planned > allowed - libraries) {
    print_skipped(one.name,
                  fmt::format("one sequence takes {:.1f} GB, {:.1f} of the device's are free",
                              planned / kGigabyte, allowed / kGigabyte));
    return std::nullopt;
  }
  print_result(one.name + ": sequences in a step", fmt::format("{}", sequences));
  Values gigabytes;
  gigabytes.add(planned / kGigabyte);
  print_at_most(one.name + ": predicted memory, GB", gigabytes, allowed / kGigabyte);
  return one;
}

}  // namespace train::bench
