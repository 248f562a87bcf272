#pragma once

#include "tests/integration/killed_runs.hpp"
#include "tests/integration/node_runs.hpp"

// A run of two nodes whose ranks or nodes are lost.
namespace train::test {

inline const Words kShape = {"run.steps=300",          "run.digest_interval_steps=1",
                             "batch.micro_batch=1",    "batch.lanes=4",
                             "eval.interval_steps=0",  "checkpoint.interval_steps=25",
                             "checkpoint.keep_last=1", "checkpoint.local_dir=none"};

inline const Words& unbroken_results() {
  static const Words results = [] {
    const RunSite site;
    site.train(kShape);
    return results_of(site.run());
  }();
  return results;
}

inline std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

/// A run of four ranks on two nodes, and what must be true at its end.
class TwoNodes {
 public:
  explicit TwoNodes(const Words& more, const std::string& strategy = "hybrid")
      : keys_(joined(kShape, more)),
        other_(start_node(site_, 1, 50, keys_, strategy)),
        head_(start_node(site_, 0, 50, keys_, strategy)) {}

  [[nodiscard]] Process& head() { return *head_; }
  [[nodiscard]] Process& other() { return *other_; }
  [[nodiscard]] const RunSite& site() const { return site_; }

  /// Sends `signal` to a worker that runs; false: it does not.
  [[nodiscard]] bool signal_worker(int rank, int signal) const {
    const auto workers = workers_of(site_.path());
    const auto victim = workers.find(rank);
    return victim != workers.end() && ::kill(victim->second, signal) == 0;
  }
  /// Waits until the run has shown `steps` more; false: it has ended.
  bool makes_progress(std::size_t steps = 2) {
    const std::size_t wanted = count_of(head_->out(), "step ") + steps;
    return head_->until([&] { return count_of(head_->out(), "step ") >= wanted; }) &&
           head_->running();
  }
  /// Whether the run has come to `step` or a later one.
  [[nodiscard]] bool has_shown(int step) const {
    const std::string out = head_->out();
    const std::size_t last = out.rfind("step ");
    return last != std::string::npos && std::atoi(out.c_str() + last + 5) >= step;
  }
  bool loses_rank(std::size_t times) {
    return head_->until([&] { return count_of(head_->err(), "rank_lost ") >= times; });
  }
  /// The node is gone at once, with launcher, ranks and memory.
  void lose_other() {
    other_->send(SIGKILL);
    other_->wait();
    other_lost_ = true;
  }
  void start_other_again(const std::string& strategy) {
    other_ = start_node(site_, 1, 50, keys_, strategy);
    other_lost_ = false;
  }
  void check_good_end() {
    const Ended ended = head_->wait(std::chrono::seconds(120));
    const Ended other_ended = other_lost_ ? Ended{} : other_->wait(std::chrono::seconds(60));
    INFO("head: " << ended.err);
    INFO("other: " << other_ended.err);
    CHECK(ended.exit_code == 0);
    CHECK((other_lost_ || other_ended.exit_code == 0));
    CHECK(comes_true([&] { return workers_of(site_.path()).empty(); }));
    CHECK(results_of(site_.run()) == unbroken_results());
  }

 private:
  RunSite site_;
  Words keys_;
  std::unique_ptr<Process> other_, head_;
  bool other_lost_ = false;
};

}  // namespace train::test
