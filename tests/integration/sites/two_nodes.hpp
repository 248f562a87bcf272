#pragma once

#include "tests/integration/kept_snapshots.hpp"
#include "tests/integration/sites/endless_run.hpp"
#include "tests/integration/sites/killed_runs.hpp"
#include "tests/integration/sites/node_runs.hpp"

// A run of two nodes whose ranks or nodes are lost.
namespace train::test {

inline const Words kShape = {kEndless,
                             "run.digest_interval_steps=1",
                             "batch.micro_batch=1",
                             "batch.lanes=6",
                             "eval.interval_steps=0",
                             "checkpoint.interval_steps=25",
                             "checkpoint.keep_last=1",
                             "checkpoint.local_dir=none"};

/// Of kShape.
inline UnbrokenRun& unbroken_run() {
  static UnbrokenRun run(kShape);
  return run;
}

/// A run of four ranks on two nodes, without an end in sight, and what must be true at its end.
class TwoNodes {
 public:
  explicit TwoNodes(const Words& more, const std::string& strategy = "hybrid", bool patient = true)
      : keys_(joined(kShape, more)),
        other_(start_node(site_, 1, 50, keys_, strategy, {.patient = patient})),
        head_(start_node(site_, 0, 50, keys_, strategy, {.patient = patient})) {}

  [[nodiscard]] Process& head() { return *head_; }
  [[nodiscard]] Process& other() { return *other_; }
  [[nodiscard]] const RunSite& site() const { return site_; }

  /// Sends `signal` to a worker that runs; false: it does not.
  [[nodiscard]] bool signal_worker(int rank, int signal) {
    note_step();
    const auto workers = workers_of(site_.path());
    const auto victim = workers.find(rank);
    return victim != workers.end() && ::kill(victim->second, signal) == 0;
  }
  /// Waits until the run has done `steps` more than ever before; false: it has ended.
  bool makes_progress(std::int64_t steps = 2) { return comes_to(last_step(site_.run()) + steps); }
  /// Waits until the run has come so far; false: it has ended.
  bool comes_to(std::int64_t step) {
    return step_comes(site_.run(), *head_, step) && head_->running();
  }
  bool loses_rank(std::size_t times) {
    const bool lost = event_comes(site_.run(), *head_, "rank_lost", times);
    note_step();  // what it had come to meanwhile
    return lost;
  }
  /// The node is gone at once, with launcher, ranks and memory.
  void lose_other() {
    note_step();
    other_->send(SIGKILL);
    other_->wait();
    other_lost_ = true;
  }
  /// The same when the head has in memory what it had. False: it never has.
  [[nodiscard]] bool lose_other_kept() {
    return lose_when_kept(site_.path(), {head_->pid(), other_->pid()}, 2, 1, [&] { lose_other(); });
  }
  void start_other_again(const std::string& strategy) {
    other_ = start_node(site_, 1, 50, keys_, strategy);
    other_lost_ = false;
  }
  void check_good_end() {
    CHECK(comes_to(furthest_ + 5));  // all that was lost has been made good
    head_->send(SIGTERM);
    const Ended ended = head_->wait();
    const Ended other_ended = other_lost_ ? Ended{} : other_->wait();
    INFO("head: " << ended.err);
    INFO("other: " << other_ended.err);
    CHECK(ended.exit_code == 75);
    CHECK((other_lost_ || other_ended.exit_code == 0));
    CHECK(comes_true([&] { return workers_of(site_.path()).empty(); }));
    unbroken_run().check_same(site_.run(), furthest_);
  }

 private:
  void note_step() { furthest_ = std::max(furthest_, last_step(site_.run())); }

  RunSite site_;
  Words keys_;
  std::unique_ptr<Process> other_, head_;
  bool other_lost_ = false;
  std::int64_t furthest_ = 0;  // step before a loss
};

}  // namespace train::test
