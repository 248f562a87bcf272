#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <set>

#include "checkpoint/index/index_content.hpp"
#include "checkpoint/save/locations.hpp"
#include "storage/rocks_store.hpp"
#include "tests/integration/sites/rank_runs.hpp"
#include "tests/support/harness/soak.hpp"

// Runs that are killed again and again, and what must be true after each kill.
namespace train::test {

/// The program that kills itself where ACTORTRAIN_TEST_KILL says
/// (tests/support/processes/kill_points.hpp).
inline const char* faulty_program() { return ACTORTRAIN_BINARY_DIR "/actortrain_faulty"; }

/// How many times as long as by default the tests of kills go on.
inline int soak() { return static_cast<int>(soak_factor()); }

/// A run whose starts are killed; it resumes from start to start.
class KilledRun {
 public:
  /// `keys`: of every start. With checkpoint.local_dir=fast there are two places.
  explicit KilledRun(Words keys) : keys_(std::move(keys)) {}

  [[nodiscard]] const RunSite& site() const { return site_; }
  [[nodiscard]] fs::path project() const { return site_.run() / "checkpoints"; }
  [[nodiscard]] fs::path local() const {
    return checkpoint::places_of(site_.run(), site_ / "fast").local;
  }

  /// Starts `binary` with variables in its environment.
  [[nodiscard]] std::unique_ptr<Process> start(const std::string& binary,
                                               const Words& variables = {}) const {
    Words words = joined({"/usr/bin/env", kPatient}, variables);
    words.push_back(binary);
    return std::make_unique<Process>(joined(words, RunSite::run_words(keys_)), site_.path());
  }

  /// Checks what must be true after the end of a start: nothing of it runs; what has a checkpoint's
  /// name is whole, in both places; no checkpoint is lost that the run called committed, in its
  /// events or in its index.
  void check_after(const Ended& ended) {
    INFO("stdout: " << ended.out);
    INFO("stderr: " << ended.err);
    // A rank, rsync: whatever has the run's directory in its command line.
    CHECK(comes_true([&] { return processes_with(site_.path().string() + "/").empty(); }));
    CHECK_FALSE(has(ended.err, "set_aside"));
    CHECK_FALSE(has(ended.err, "index_rebuilt"));
    note_committed();
    const auto placed = fs::exists(project()) ? steps_in(project()) : std::vector<std::int64_t>{};
    for (const std::int64_t step : index_committed()) {
      committed_ = std::max(committed_, step);
    }
    INFO("committed: " << committed_);
    CHECK((committed_ == 0 || (!placed.empty() && placed.back() >= committed_)));
    if (fs::exists(local())) {
      steps_in(local());
    }
  }

  /// The newest step that was called committed.
  [[nodiscard]] std::int64_t committed() const { return committed_; }

  /// After the end of the last start: nothing but whole checkpoints in either place.
  void check_tidy() const {
    for (const fs::path& place : {project(), local()}) {
      for (const std::string& name : fs::exists(place) ? names_in(place) : Words{}) {
        INFO(place.string() << " has " << name);
        CHECK(name.starts_with("step-"));
      }
    }
  }

 private:
  static std::vector<std::int64_t> steps_in(const fs::path& place) {
    return checkpoint_steps(place.parent_path());  // checks that each is whole
  }

  void note_committed() {
    for (const nlohmann::json& event : events_of(site_.run(), "checkpoint_published")) {
      committed_ = std::max<std::int64_t>(committed_, event.at("step"));
    }
  }

  [[nodiscard]] std::vector<std::int64_t> index_committed() const {
    std::vector<std::int64_t> steps;
    if (!fs::exists(site_.run() / "index")) {
      return steps;
    }
    auto store = storage::RocksStore::open_read_only(site_.run() / "index");
    if (!store) {
      return steps;  // killed before its first file was whole
    }
    const auto content = checkpoint::read_index_content(**store, "");
    INFO(content.damage);
    CHECK(content.damage.empty());
    for (const checkpoint::IndexEntry& entry : content.entries.all()) {
      if (entry.state == checkpoint::CheckpointState::committed) {
        steps.push_back(entry.step);
      }
    }
    return steps;
  }

  Words keys_;
  RunSite site_;
  std::int64_t committed_ = 0;
};

/// Saves often, and each save retires one.
inline Words killed_run_keys(std::int64_t steps, const Words& more = {}) {
  return rank_keys(
      2, "full",
      joined({fmt::format("run.steps={}", steps), "run.digest_interval_steps=1",
              "eval.interval_steps=0", "checkpoint.interval_steps=4", "checkpoint.keep_last=1",
              "batch.micro_batch=1", "batch.lanes=2", "recovery.rank_loss=stop"},
             more));
}

/// Trains to the end in good order and compares with the run that nothing disturbed.
inline void finish_and_compare(KilledRun& run, const Words& unbroken) {
  const Ended ended = run.start(program())->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  run.check_after(ended);
  run.check_tidy();
  CHECK(results_of(run.site().run()) == unbroken);
}

}  // namespace train::test
