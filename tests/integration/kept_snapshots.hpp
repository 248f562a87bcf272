#pragma once

#include <fcntl.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "checkpoint/memory/memory_snapshots.hpp"
#include "run/recovery/generations.hpp"
#include "tests/integration/sites/rank_runs.hpp"

// What launchers have in memory of their ranks, and a time at which a node is lost that the others
// have all of it.
namespace train::test {

/// Snapshots that a launcher has, of its node's ranks and as a buddy.
inline std::vector<checkpoint::MemorySnapshots> snapshots_of(pid_t launcher) {
  std::vector<checkpoint::MemorySnapshots> found;
  std::error_code ended;
  for (fs::directory_iterator entry(fmt::format("/proc/{}/fd", launcher), ended), end;
       !ended && entry != end; entry.increment(ended)) {
    std::error_code unknown;
    if (has(fs::read_symlink(entry->path(), unknown).string(), "memfd:")) {
      const int descriptor = ::open(entry->path().c_str(), O_RDWR | O_CLOEXEC);
      auto snapshots = checkpoint::MemorySnapshots::attach(descriptor);
      if (snapshots) {
        found.push_back(std::move(snapshots).value());
      }
    }
  }
  return found;
}

/// Of the launchers of a run's nodes, by place: what each has of a run of so many ranks.
inline std::vector<run::NodeSteps> held_steps(const std::vector<pid_t>& launchers,
                                              std::int64_t ranks_each) {
  const auto nodes = static_cast<std::int64_t>(launchers.size());
  std::vector<run::NodeSteps> held;
  for (std::int64_t place = 0; place < nodes; ++place) {
    held.emplace_back();
    for (const auto& snapshots : snapshots_of(launchers[static_cast<std::size_t>(place)])) {
      const auto& layout = snapshots.layout();
      if (layout.ranks == nodes * ranks_each) {
        const bool own = layout.first_rank == place * ranks_each;
        (own ? held.back().own : held.back().buddy) = snapshots.sealed_steps();
      }
    }
  }
  return held;
}

/// Holds all ranks of the runs in a directory: for less time than a silent rank is given.
class HeldRanks {
 public:
  explicit HeldRanks(const fs::path& directory) : directory_(directory) { signal_all(SIGSTOP); }
  HeldRanks(const HeldRanks&) = delete;
  HeldRanks& operator=(const HeldRanks&) = delete;
  ~HeldRanks() { signal_all(SIGCONT); }

 private:
  void signal_all(int signal) const {
    for (const auto& [rank, process] : workers_of(directory_)) {
      ::kill(process, signal);
    }
  }
  fs::path directory_;
};

/// Whether the nodes but the one at `place` have a step in memory of all ranks, and none of them a
/// newer one: the ranks that are left may write one more, over what is older.
inline bool is_kept(std::vector<run::NodeSteps> steps, std::size_t place) {
  steps[place] = {};
  const auto common = run::newest_common(steps, std::numeric_limits<std::int64_t>::max());
  for (std::size_t node = 0; common && node < steps.size(); ++node) {
    if (node != place && (steps[node].own.empty() || steps[node].own.front() != *common)) {
      return false;
    }
  }
  return common.has_value();
}

/// Calls `lose` at a time at which the other nodes have in memory what they need to go on without
/// the one at `place`, however fast the ranks train: buddies get it beside training, and may be
/// behind. False: there is no such time.
template <class Lose>
bool lose_when_kept(const fs::path& directory, const std::vector<pid_t>& launchers,
                    std::int64_t ranks_each, std::size_t place, Lose lose) {
  std::chrono::milliseconds limit{250};  // Ranks may be held where no step is complete.
  return comes_true([&] {
    const HeldRanks held(directory);
    limit = std::min(2 * limit, std::chrono::milliseconds(2000));
    const bool kept =
        comes_true([&] { return is_kept(held_steps(launchers, ranks_each), place); }, limit);
    if (kept) {
      lose();
    }
    return kept;
  });
}

}  // namespace train::test
