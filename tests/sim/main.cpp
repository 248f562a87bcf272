// actortrain-sim: plays seeds. See tests/README.md.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/log.hpp"
#include "tests/sim/simulation.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::sim {
namespace {

constexpr std::int64_t kMostFailures = 10;  // of a process, before it gives up

constexpr const char* kUsage =
    "usage: actortrain-sim --seeds A..B [--jobs N] [--bug NAME]   plays these seeds\n"
    "       actortrain-sim --seeds A..B --drawn COUNT ...         so many of them in a row\n"
    "       actortrain-sim --seed N [--bug NAME] [--log]          plays one and says what it does\n"
    "       actortrain-sim --million [--jobs N]                   seeds 0 to 999999\n"
    "bugs:";

struct Options {
  std::uint64_t first = 0, last = 0;
  std::uint64_t drawn = 0;  ///< So many of them, in a row; 0: all.
  bool single = false;
  bool log = false;  ///< The product's own log lines go to the terminal.
  int jobs = 2;
  Bug bug = Bug::none;
};

/// What a process tells the one that started it, in memory that both have.
struct Progress {
  std::uint64_t seed = 0;  ///< The one that it is at.
  std::int64_t failures = 0;
  Tally tally;
};

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                  : std::nullopt;
}

bool parse_range(std::string_view text, Options& options) {
  const std::size_t dots = text.find("..");
  const auto first = number(text.substr(0, dots));
  const auto last = dots == std::string_view::npos ? first : number(text.substr(dots + 2));
  if (!first || !last || *last < *first) {
    return false;
  }
  options.first = *first;
  options.last = *last;
  return true;
}

std::optional<Options> parse(const std::vector<std::string_view>& words) {
  Options options;
  bool chosen = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view value = i + 1 < words.size() ? words[i + 1] : std::string_view();
    if (words[i] == "--log") {
      options.log = true;
    } else if (words[i] == "--million") {
      options.first = 0;
      options.last = 999'999;
      chosen = true;
    } else if ((words[i] == "--seeds" || words[i] == "--seed") && parse_range(value, options)) {
      options.single = words[i] == "--seed";
      chosen = true;
      ++i;
    } else if (words[i] == "--jobs" && number(value).value_or(0) > 0) {
      options.jobs = static_cast<int>(*number(value));
      ++i;
    } else if (words[i] == "--drawn" && number(value).value_or(0) > 0) {
      options.drawn = *number(value);
      ++i;
    } else if (words[i] == "--bug" && bug_named(value)) {
      options.bug = *bug_named(value);
      ++i;
    } else {
      return std::nullopt;
    }
  }
  return chosen ? std::optional(options) : std::nullopt;
}

void say(const std::string& line) {
  const std::string text = line + "\n";  // one write: lines of several processes stay whole
  if (::write(STDOUT_FILENO, text.data(), text.size()) < 0) {
    std::perror("actortrain-sim");
  }
}

/// Leaves as many seeds as are to be drawn, and says which, so that they can be played again.
void draw(Options& options) {
  const std::uint64_t seeds = options.last - options.first + 1;
  if (options.drawn == 0 || options.drawn >= seeds) {
    return;
  }
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  options.first += static_cast<std::uint64_t>(now) % (seeds - options.drawn + 1);
  options.last = options.first + options.drawn - 1;
  say(fmt::format("drawn: --seeds {}..{}", options.first, options.last));
}

std::string replay_line(const std::string& program, const Options& options, std::uint64_t seed) {
  return fmt::format(
      "  replay: {} --seed {}{}", program, seed,
      options.bug == Bug::none ? "" : fmt::format(" --bug {}", name_of(options.bug)));
}

std::string tally_text(const Tally& tally) {
  std::string text = fmt::format("starts={} generations={} events={} published={}", tally.starts,
                                 tally.generations, tally.events, tally.published);
  for (std::size_t i = 0; i < kFaultKinds; ++i) {
    text += fmt::format(" {}={}", name_of(static_cast<FaultKind>(i)), tally.faults[i]);
  }
  return text;
}

/// Every `jobs`-th seed from the `index`-th on.
void play(const std::string& program, const Options& options, int index, Progress& progress) {
  const test::TempDirectory tokens(test::quick_directory());
  write_tokens(tokens.path().string());
  const auto stride = static_cast<std::uint64_t>(options.jobs);
  for (std::uint64_t seed = options.first + static_cast<std::uint64_t>(index);
       seed <= options.last && progress.failures < kMostFailures; seed += stride) {
    progress.seed = seed;
    const Outcome outcome = simulate(seed, options.bug, tokens.path().string());
    progress.tally.add(outcome.tally);
    if (!outcome.violation.empty()) {
      ++progress.failures;
      say(fmt::format("seed {} failed: {}\n{}", seed, outcome.violation,
                      replay_line(program, options, seed)));
    } else if (options.single) {
      say(fmt::format("seed {} passed", seed));
    }
    if (options.single) {
      say(fmt::format("  {}\n  trace {:016x} {}", describe(plan_of_seed(seed)), outcome.trace,
                      tally_text(outcome.tally)));
    }
  }
}

void silence_log() {
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0 || ::dup2(nowhere, STDERR_FILENO) < 0) {
    std::perror("actortrain-sim");
  }
}

/// In a process of its own. A crash is one, too.
int run(const std::string& program, const Options& options) {
  const auto jobs = static_cast<std::size_t>(options.jobs);
  void* const shared = ::mmap(nullptr, jobs * sizeof(Progress), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    std::perror("actortrain-sim");
    return 1;
  }
  auto* const progress = static_cast<Progress*>(shared);
  const auto begin = std::chrono::steady_clock::now();
  std::vector<pid_t> children;
  for (int index = 0; index < options.jobs; ++index) {
    Progress& own = *new (progress + index) Progress;
    const pid_t child = ::fork();
    if (child == 0) {
      if (!options.log) {
        silence_log();
      }
      play(program, options, index, own);
      std::_Exit(own.failures == 0 ? 0 : 1);
    }
    children.push_back(child);
  }
  Tally tally;
  std::int64_t failures = 0;
  for (std::size_t index = 0; index < children.size(); ++index) {
    int status = 0;
    if (children[index] < 0 || ::waitpid(children[index], &status, 0) < 0) {
      std::perror("actortrain-sim");
      return 1;
    }
    if (WIFSIGNALED(status)) {
      ++failures;
      say(fmt::format("seed {} failed: signal {} ({})\n{}", progress[index].seed, WTERMSIG(status),
                      strsignal(WTERMSIG(status)),
                      replay_line(program, options, progress[index].seed)));
    }
    const bool failed = progress[index].failures > 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) != (failed ? 1 : 0)) {
      ++failures;
      say(fmt::format("seed {} failed: it ends its process with {}\n{}", progress[index].seed,
                      WEXITSTATUS(status), replay_line(program, options, progress[index].seed)));
    }
    failures += progress[index].failures;
    tally.add(progress[index].tally);
  }
  const auto wanted = static_cast<std::int64_t>(options.last - options.first + 1);
  if (failures == 0 && tally.seeds != wanted) {
    ++failures;
    say(fmt::format("{} of {} seeds were played", tally.seeds, wanted));
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!options.single) {
    say(fmt::format("sim seeds={} failed={} seconds={:.1f} seeds_per_second={:.1f} jobs={}\n  {}",
                    tally.seeds, failures, seconds, static_cast<double>(tally.seeds) / seconds,
                    options.jobs, tally_text(tally)));
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace train::sim

int main(int argc, char** argv) {
  const auto options = train::sim::parse({argv + 1, argv + argc});
  if (!options) {
    std::fputs(train::sim::kUsage, stderr);
    for (const auto& one : train::sim::kBugs) {
      std::fputs(fmt::format(" {}", one.name).c_str(), stderr);
    }
    std::fputs("\n", stderr);
    return 2;
  }
  train::sim::Options chosen = *options;
  if (chosen.single) {
    chosen.jobs = 1;
  }
  train::sim::draw(chosen);
  return train::sim::run(argv[0], chosen);
}
