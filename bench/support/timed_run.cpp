#include "bench/support/timed_run.hpp"

#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <fstream>
#include <initializer_list>
#include <stdexcept>
#include <thread>

#include "bench/support/bench_child.hpp"

namespace train::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Number after `before` in `line`, or -1.
std::int64_t number_after(const std::string& line, const std::string& before) {
  const std::size_t at = line.find(before);
  std::int64_t number = -1;
  if (at != std::string::npos) {
    const char* begin = line.data() + at + before.size();
    std::from_chars(begin, line.data() + line.size(), number);
  }
  return number;
}

/// Private memory of a process, without LazyFree pages.
double resident_bytes(pid_t process) {
  double kilobytes = 0.0;
  const auto add = [&](const char* file, std::initializer_list<const char*> keys, double sign) {
    std::ifstream lines(fmt::format("/proc/{}/{}", process, file));
    for (std::string line; std::getline(lines, line);) {
      for (const char* key : keys) {
        if (line.starts_with(key)) {
          kilobytes += sign * std::stod(line.substr(std::string(key).size()));
        }
      }
    }
  };
  add("smaps_rollup", {"LazyFree:"}, -1.0);
  add("status", {"RssAnon:", "RssShmem:"}, 1.0);
  return kilobytes * 1024.0;
}

std::string text_of(const fs::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

/// Computes the end time of every step, from the step times and the moment at which `known_step`
/// ended.
void place_steps(const fs::path& metrics, std::int64_t known_step, double known_s, TimedRun& run) {
  std::ifstream lines(metrics);
  double tokens_before = 0.0;
  double at_s = 0.0;
  for (std::string line; std::getline(lines, line);) {
    const auto entry = nlohmann::json::parse(line);
    if (const double speed = entry.value("tokens_per_second", 0.0); speed > 0.0) {
      const double tokens = entry.at("tokens").get<double>();
      at_s += (tokens - tokens_before) / speed;
      tokens_before = tokens;
      run.step_end_s.push_back(at_s);
    }
  }
  if (known_step < 1 || static_cast<std::size_t>(known_step) > run.step_end_s.size()) {
    throw std::runtime_error(
        fmt::format("{} has {} steps", metrics.string(), run.step_end_s.size()));
  }
  const double shift_s = known_s - run.step_end_s[static_cast<std::size_t>(known_step) - 1];
  for (double& end_s : run.step_end_s) {
    end_s += shift_s;
  }
}

double newest_checkpoint_bytes(const fs::path& checkpoints) {
  fs::path newest;
  for (const auto& entry : fs::directory_iterator(checkpoints)) {
    if (entry.path().filename().string().starts_with("step-")) {
      newest = std::max(newest, entry.path());
    }
  }
  double bytes = 0.0;
  for (const auto& entry : fs::directory_iterator(newest)) {
    bytes += static_cast<double>(entry.file_size());
  }
  return bytes;
}

}  // namespace

double TimedRun::step_begin_s(std::int64_t step) const {
  return step_end_s.at(static_cast<std::size_t>(step) - 2);
}

double TimedRun::step_seconds(std::int64_t step) const {
  return step_end_s.at(static_cast<std::size_t>(step) - 1) - step_begin_s(step);
}

TimedRun run_timed(const Workplace& place, const TimedSpec& spec) {
  const fs::path root = place.directory() / "runs" / spec.name;
  const fs::path errors = place.directory() / (spec.name + ".err");
  Words words = {ACTORTRAIN_BINARY_DIR "/actortrain", "run",
                 ACTORTRAIN_SOURCE_DIR "/configs/quickstart.toml"};
  for (const std::string& key :
       joined(joined(place.keys(), spec.keys), {fmt::format("run.name=\"{}\"", spec.name)})) {
    words.insert(words.end(), {"--set", key});
  }
  const auto begin = Clock::now();
  BenchChild child(words, errors);
  TimedRun run;
  std::atomic<bool> ended{false};
  std::thread sampler([&] {
    while (spec.sample_memory && !ended) {
      run.memory.push_back({seconds_since(begin), resident_bytes(child.id())});
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  std::int64_t known_step = -1;
  double known_s = 0.0;
  while (const auto read = child.read_line()) {
    const std::string& line = *read;
    const double now_s = seconds_since(begin);
    if (const std::int64_t step = number_after(line, "/step-");
        line.starts_with("checkpoint ") && step >= 0) {
      run.saves.push_back({step, now_s});
    } else if (known_step < 0 && line.starts_with("step ")) {
      known_step = number_after(line, "step ");
      known_s = now_s;
    }
  }
  const int code = child.wait();
  ended = true;
  sampler.join();
  if (code != 0) {
    throw std::runtime_error(fmt::format("a run failed ({}): {}", code, text_of(errors)));
  }
  place_steps(root / "metrics.jsonl", known_step, known_s, run);
  run.state_bytes = newest_checkpoint_bytes(root / "checkpoints");
  std::erase_if(run.saves, [&](const Save& save) {
    return static_cast<std::size_t>(save.step) >= run.step_end_s.size();
  });
  if (!spec.keep) {
    fs::remove_all(root);
  }
  return run;
}

}  // namespace train::bench
