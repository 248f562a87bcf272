// actortrain-recovery-sim: plays seeds of the recovery world. See tests/README.md.

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>

#include "tests/sim/recovery_world.hpp"
#include "tests/sim/table_entries.hpp"

namespace {

constexpr std::int64_t kMostFailures = 10;

bool number(std::string_view text, std::uint64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

int play_one(std::uint64_t seed) {
  const auto outcome = train::sim::simulate_recovery(seed, true);
  fmt::print("{}seed {} {}\n", outcome.trace, seed,
             outcome.violation.empty() ? "passed" : "failed: " + outcome.violation);
  return outcome.violation.empty() ? 0 : 1;
}

int play(std::uint64_t first, std::uint64_t last, bool every_entry, const char* program) {
  const auto begin = std::chrono::steady_clock::now();
  std::int64_t failed = 0, faults = 0, generations = 0, returns = 0, seeds = 0;
  std::map<int, std::int64_t> ends;
  train::sim::TakenEntries taken;
  for (std::uint64_t seed = first; seed <= last && failed < kMostFailures; ++seed, ++seeds) {
    const auto outcome = train::sim::simulate_recovery(seed, false, &taken);
    if (!outcome.violation.empty()) {
      ++failed;
      fmt::print("seed {} failed: {}\n  replay: {} --seed {}\n", seed, outcome.violation, program,
                 seed);
    }
    faults += outcome.faults;
    generations += outcome.generations;
    returns += outcome.returns;
    ++ends[outcome.exit_code];
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print(
      "recovery_sim seeds={} failed={} seconds={:.1f} seeds_per_second={:.0f} generations={} "
      "faults={} returns={}",
      seeds, failed, seconds, static_cast<double>(seeds) / seconds, generations, faults, returns);
  for (const auto& [code, count] : ends) {
    fmt::print(" exit_{}={}", code, count);
  }
  fmt::print("\n");
  const std::string wrong = every_entry ? train::sim::wrong_entries(taken) : "";
  fmt::print("{}", wrong);
  return failed == 0 && wrong.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const bool every_entry = argc == 4 && std::string_view(argv[3]) == "--every-entry";
  const std::string_view option = argc == 3 || every_entry ? argv[1] : "";
  const std::string_view value = argc == 3 || every_entry ? argv[2] : "";
  const std::size_t dots = value.find("..");
  std::uint64_t first = 0, last = 0;
  if (option == "--seed" && number(value, first)) {
    return play_one(first);
  }
  if (option == "--seeds" && dots != std::string_view::npos &&
      number(value.substr(0, dots), first) && number(value.substr(dots + 2), last) &&
      first <= last) {
    return play(first, last, every_entry, argv[0]);
  }
  std::fputs("usage: actortrain-recovery-sim --seeds A..B [--every-entry] | --seed N\n", stderr);
  return 2;
}
