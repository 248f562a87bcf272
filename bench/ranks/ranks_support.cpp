#include "bench/ranks/ranks_support.hpp"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <stdexcept>

#include "bench/data/synthetic_tokens.hpp"

namespace train::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kStepsLeftOut = 2;  // The first steps fill caches and fault in pages.

void read_metrics(const fs::path& file, RunOutcome& outcome) {
  std::ifstream lines(file);
  std::string line;
  double seconds = 0.0;
  double tokens = 0.0;
  double before = 0.0;
  int steps = 0;
  while (std::getline(lines, line)) {
    const auto entry = nlohmann::json::parse(line);
    const double speed = entry.value("tokens_per_second", 0.0);
    if (speed <= 0.0) {
      continue;
    }
    const double now = entry.at("tokens").get<double>();
    if (++steps > kStepsLeftOut) {
      seconds += (now - before) / speed;
      tokens += now - before;
    }
    before = now;
  }
  if (steps <= kStepsLeftOut) {
    throw std::runtime_error(fmt::format("{} has {} steps", file.string(), steps));
  }
  outcome.step_seconds = seconds / (steps - kStepsLeftOut);
  outcome.tokens_per_second = tokens / seconds;
}

std::string end_of(const fs::path& file) {
  std::ifstream stream(file);
  const std::string text((std::istreambuf_iterator<char>(stream)),
                         std::istreambuf_iterator<char>());
  return text.size() > 600 ? text.substr(text.size() - 600) : text;
}

/// Command line for a shell.
std::string command_of(const Workplace& place, const RunSpec& spec, const std::string& name) {
  std::string command =
      fmt::format("'{}' run '{}/quickstart.toml'", place.paths().program, place.paths().configs);
  for (const std::string& key :
       joined(joined(place.keys(), spec.keys), {fmt::format("run.name=\"{}\"", name)})) {
    command += fmt::format(" --set '{}'", key);
  }
  return command + (spec.profile ? " --profile" : "");
}

/// Script of one launcher, or one per node: the head last, in the foreground.
std::string script_of(const std::string& command, const RunSpec& spec, const fs::path& output) {
  if (spec.node_prefixes.empty()) {
    return fmt::format("{} > '{}' 2>&1", command, output.string());
  }
  std::string script;
  for (std::size_t node = spec.node_prefixes.size(); node-- > 0;) {
    script += fmt::format("{} {} > '{}.{}' 2>&1 {} ", spec.node_prefixes[node], command,
                          output.string(), node, node > 0 ? "& " : "; code=$?;");
  }
  return script + fmt::format("wait; cat '{0}'.* > '{0}'; exit $code", output.string());
}

/// Runs its copies at once, and adds their speeds.
RunOutcome run_at_once(const Workplace& place, RunSpec spec) {
  std::vector<std::future<RunOutcome>> copies(static_cast<std::size_t>(spec.copies));
  spec.copies = 1;
  for (auto& copy : copies) {
    copy = std::async(std::launch::async, [&] { return run_program(place, spec); });
  }
  RunOutcome all;
  for (auto& copy : copies) {
    const RunOutcome outcome = copy.get();
    all.step_seconds = std::max(all.step_seconds, outcome.step_seconds);
    all.tokens_per_second += outcome.tokens_per_second;
  }
  return all;
}

}  // namespace

Words joined(Words first, const Words& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

double Values::median() const {
  std::vector<double> sorted = all;
  std::sort(sorted.begin(), sorted.end());
  return (sorted.at((sorted.size() - 1) / 2) + sorted.at(sorted.size() / 2)) / 2.0;
}

double Values::least() const { return *std::min_element(all.begin(), all.end()); }

double Values::most() const { return *std::max_element(all.begin(), all.end()); }

std::string Values::text(int digits) const {
  if (all.size() == 1) {
    return fmt::format("{:.{}f}", all.front(), digits);
  }
  return fmt::format("{:.{}f} ({:.{}f} to {:.{}f})", median(), digits, least(), digits, most(),
                     digits);
}

void print_result(const std::string& what, const std::string& value) {
  fmt::print("  {:<58} {}\n", what, value);
  std::fflush(stdout);
}

void print_at_least(const std::string& what, const Values& values, double target) {
  print_result(what, fmt::format("{}   target >= {}: {}", values.text(3), target,
                                 values.median() >= target ? "met" : "MISSED"));
}

void print_at_most(const std::string& what, const Values& values, double target) {
  print_result(what, fmt::format("{}   target <= {}: {}", values.text(3), target,
                                 values.median() <= target ? "met" : "MISSED"));
}

Workplace::Workplace(BenchPaths paths)
    : directory_(fs::temp_directory_path() / fmt::format("ranks_bench_{}", ::getpid())),
      paths_(std::move(paths)) {
  fs::create_directories(directory_);
  write_tokens(directory_ / "train.bin", 400'000);
  write_tokens(directory_ / "val.bin", 20'000);
}

Workplace::~Workplace() {
  std::error_code ignored;  // Remains are harmless.
  fs::remove_all(directory_, ignored);
}

Words Workplace::keys() const {
  return {fmt::format("data.dir=\"{}\"", directory_.string()),
          fmt::format("run.dir=\"{}\"", (directory_ / "runs").string()),
          "run.tensorboard=false",
          "run.sample_tokens=0",
          "schedule.warmup_steps=1",
          "eval.interval_steps=0",
          "checkpoint.interval_steps=0",
          "model.vocab_size=320",
          "runtime.threads=1"};
}

Shape quickstart_shape() { return {"quickstart", {}}; }

Shape wide_shape() {
  return {"12 x 768",
          {"model.layers=12", "model.heads=12", "model.head_dim=64", "batch.micro_batch=1"}};
}

Shape gpt2_shape() {
  return {"124M",
          joined(wide_shape().keys, {"model.vocab_size=50304", "model.tie_embeddings=true"})};
}

RunOutcome run_program(const Workplace& place, const RunSpec& spec) {
  if (spec.copies > 1) {
    return run_at_once(place, spec);
  }
  static std::atomic<int> runs = 0;
  const std::string name = fmt::format("run{}", runs++);
  const fs::path output = place.directory() / (name + ".txt");
  const fs::path root = place.directory() / "runs" / name;
  const int status = std::system(script_of(command_of(place, spec, name), spec, output).c_str());
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw std::runtime_error(fmt::format("a run failed:\n{}", end_of(output)));
  }
  RunOutcome outcome;
  read_metrics(root / "metrics.jsonl", outcome);
  if (std::ifstream summary(root / "profile" / "summary.json"); summary) {
    outcome.profile = nlohmann::json::parse(summary);
  }
  fs::remove_all(root);
  return outcome;
}

std::vector<std::vector<RunOutcome>> run_alternately(const Workplace& place,
                                                     const std::vector<RunSpec>& specs, int times) {
  std::vector<std::vector<RunOutcome>> outcomes(specs.size());
  for (int i = 0; i < times; ++i) {
    for (std::size_t one = 0; one < specs.size(); ++one) {
      // Forward and backward order, so that a drift of the machine's speed favours none.
      const std::size_t spec = i % 2 == 0 ? one : specs.size() - 1 - one;
      outcomes[spec].push_back(run_program(place, specs[spec]));
    }
  }
  return outcomes;
}

}  // namespace train::bench
