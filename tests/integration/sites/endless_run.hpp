#pragma once

#include <algorithm>

#include "tests/integration/sites/rank_runs.hpp"

// Runs that are ended by a signal, once a test has seen what it is about: no machine is so fast, or
// a test so late, that they are over before.
namespace train::test {

/// More steps than any test waits for.
inline const std::string kEndless = "run.steps=1000000";

/// The keys of a run that nothing disturbs, with the bits of one of `keys`: it has one rank, and
/// saves what it has when it ends.
inline Words unbroken_keys(const Words& keys) {
  return joined(keys,
                {"parallel.ranks=1", "parallel.strategy=none", "checkpoint.interval_steps=0"});
}

/// What a run of some keys says that nothing disturbs, as far as it is asked for.
class UnbrokenRun {
 public:
  explicit UnbrokenRun(const Words& keys) : keys_(unbroken_keys(keys)) {}

  /// The run that wrote `run` has said the same as this one, from its first step to its last.
  /// `least`: steps that it must have done.
  void check_same(const fs::path& run, std::int64_t least) {
    const Words results = results_of(run);
    const std::int64_t steps = last_step(run);
    CHECK(steps >= least);
    train_to(steps + 1);  // an evaluation follows its step
    Words own = results_of(site_.run());
    REQUIRE(own.size() >= results.size());
    own.resize(results.size());
    CHECK((results == own));  // not both of them as text: thousands of lines
  }

 private:
  void train_to(std::int64_t steps) {
    if (steps > done_ && !over_) {
      const std::int64_t more = std::max<std::int64_t>(steps - done_, 100);
      const Ended ended =
          site_.start_run(joined(keys_, {fmt::format("run.steps_per_job={}", more)}))->wait();
      INFO(ended.err);
      REQUIRE((ended.exit_code == 75 || ended.exit_code == 0));  // its part is done, or all of it
      over_ = ended.exit_code == 0;
      done_ = last_step(site_.run());
    }
  }

  RunSite site_;
  Words keys_;
  std::int64_t done_ = 0;
  bool over_ = false;
};

/// Waits for an event of a run that `random` picks: a step further than any before, shards that are
/// written, a checkpoint that is published; or for none, while its ranks start. REQUIRES: it saves
/// now and then.
inline void wait_for_any_event(const fs::path& run, Process& process, std::mt19937& random) {
  const auto next = [&](std::string_view kind) {
    wait_for_event(run, process, kind, count_events(run, kind) + 1);
  };
  switch (random() % 4) {
    case 0:
      return;
    case 1:
      return next("checkpoint_copied");
    case 2:
      return next("checkpoint_published");
    default:
      return wait_for_step(run, process, last_step(run) + 1 + random() % 10);
  }
}

/// Ends a run as a batch system does it.
inline Ended stopped(Process& launcher) {
  launcher.send(SIGTERM);
  const Ended ended = launcher.wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 75);
  return ended;
}

}  // namespace train::test
