#pragma once

#include <memory>
#include <string>

#include "tests/integration/sites/killed_runs.hpp"

// Runs that stand still in the middle of their training until the test lets them go: what it does
// to them comes neither too early nor after their end, however fast the machine is and however long
// the test itself is kept waiting.
namespace train::test {

/// A run one of whose ranks stands where `fault` (KernelFaults) says: a backward pass. Then the
/// others wait for it. It beats and answers all the while, and is no lost rank. `variables`: more
/// for the environment, and what else stands before the program. `patient`: no process falls silent
/// (kPatient).
inline std::unique_ptr<Process> start_held_at(const RunSite& site, const std::string& fault,
                                              const Words& keys, const Words& variables = {},
                                              bool patient = true) {
  write_bytes(site / "wedge", "");
  Words words = joined({"/usr/bin/env", "ACTORTRAIN_TEST_FAULT=" + fault,
                        "ACTORTRAIN_TEST_WEDGE=" + (site / "wedge").string()},
                       patient ? joined({kPatient}, variables) : variables);
  words.emplace_back(faulty_program());
  return std::make_unique<Process>(joined(words, RunSite::run_words(keys)), site.path());
}

/// The rank `role` ("head" where the launcher is the only one) stands at its `call`-th backward
/// pass of attention: of two blocks for each of its lanes in a step.
inline std::unique_ptr<Process> start_held(const RunSite& site, const std::string& role, int call,
                                           const Words& keys, const Words& variables = {},
                                           bool patient = true) {
  return start_held_at(site, fmt::format("wedge:{}:{}", call, role), keys, variables, patient);
}

/// What was held goes on, and nothing is held any more, in later generations neither.
inline void let_go(const RunSite& site) { fs::remove(site / "wedge"); }

/// Kills rank 1 of a run that is held, whose directory is `directory`, and lets the others go when
/// they miss it.
inline void kill_held(const RunSite& site, const fs::path& directory, Process& run,
                      std::size_t ranks) {
  REQUIRE(::kill(started_workers(site, run, ranks).at(1), SIGKILL) == 0);
  wait_for_event(directory, run, "rank_lost");
  let_go(site);
}

/// Sends a signal to a run that is held, and lets it go when it has heard it: no step is begun
/// after those in flight.
inline Ended stop_held(const RunSite& site, Process& run, int signal) {
  const std::size_t before = count_events(site.run(), "stop_requested");
  run.send(signal);
  wait_for_event(site, run, "stop_requested", before + 1);
  let_go(site);
  return run.wait();
}

}  // namespace train::test
