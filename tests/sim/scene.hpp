#pragma once

#include <array>
#include <cstdint>
#include <deque>

#include "tests/sim/bugs.hpp"
#include "tests/sim/checks.hpp"
#include "tests/sim/disk.hpp"
#include "tests/sim/seed_plan.hpp"

namespace train::sim {

/// Thrown through all that a launcher does when it is gone.
struct LauncherGone {
  bool power = false;  ///< With all else; what was not synced is lost.
};

/// What happened in runs, added up.
struct Tally {
  std::int64_t seeds = 0, events = 0, starts = 0, generations = 0, published = 0;
  std::array<std::int64_t, kFaultKinds> faults = {};  ///< That hit something.

  void add(const Tally& other) {
    seeds += other.seeds;
    events += other.events;
    starts += other.starts;
    generations += other.generations;
    published += other.published;
    for (std::size_t i = 0; i < faults.size(); ++i) {
      faults[i] += other.faults[i];
    }
  }
};

/// All that one seed's starts have in common.
struct Scene {
  Scene(const SeedPlan& seed_plan, Bug with_bug)
      : plan(seed_plan),
        bug(with_bug),
        random(seed_plan.seed * 2),
        disk(with_bug == Bug::commit_before_fsync),
        checks(reference_of(seed_plan.config)),
        faults(seed_plan.faults.begin(), seed_plan.faults.end()) {}

  void hit(FaultKind kind) { ++tally.faults[static_cast<std::size_t>(kind)]; }

  const SeedPlan& plan;
  Bug bug;
  Random random;
  SimDisk disk;
  IndexLog index;
  Checks checks;
  std::deque<Fault> faults;      ///< Still to come.
  std::int64_t fault_clock = 0;  ///< Events since the last one.
  bool signalled = false;        ///< In this start.
  std::uint64_t trace = 0;       ///< Digest of the order of events.
  Tally tally;
};

}  // namespace train::sim
