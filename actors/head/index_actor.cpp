#include "actors/head/index_actor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <caf/all.hpp>
#include <deque>
#include <optional>
#include <utility>

#include "actors/head/run_registry.hpp"
#include "actors/messages/command_messages.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/system/supervision.hpp"
#include "base/text/log.hpp"
#include "run/store/run_index.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::actors {
namespace {

using checkpoint::CheckpointState;

// Limit on queued steps; the oldest are dropped. Only a stalled disk reaches it.
constexpr std::size_t kMostSteps = 100'000;
constexpr std::size_t kMostRemarks = 10'000;

enum class Phase { writing, sealing, sending, making_room, publishing, finalizing, discarding };

/// Save under way.
struct Save {
  std::int64_t step = 0;
  Phase phase = Phase::writing;
  std::size_t awaited = 0;  // Ranks that must answer in this phase.
  std::size_t answers = 0;  // Answers received.
  std::vector<ShardWritten> shards;
  std::optional<CheckpointFailed> failed;  // First failure.
  std::size_t failures = 0;                // Failed ranks in this phase.
  std::vector<std::int32_t> full;          // Failed ranks whose disk was full.
  std::optional<Phase> room_for;           // Phase in which room was made, once per save.
  bool local = false;                      // Complete in the local location.
  bool awaits_step = false;                // All shards are written; StepFinished has not arrived.
};

/// Queue of steps and remarks for the index, written in batches.
struct Journal {
  std::deque<checkpoint::StepRecord> steps;
  std::deque<std::function<Status()>> remarks;  // Evaluations and events.
  bool writing = false;

  /// Empties the queue into one disk task.
  [[nodiscard]] std::function<Status()> batch(const std::shared_ptr<const run::IndexWork>& work);
};

/// Writes steps to the journal before the work that needs them; an error fails that work, too. May
/// be empty.
using Steps = std::function<Status()>;

/// Logs a refused note: a note never fails a save.
void log_refusal(const char* what, std::int64_t step, const Status& status) {
  if (!status) {
    log_warning(
        fmt::format("index_incomplete {} of step {}: {}", what, step, status.error().message));
  }
}

std::vector<ShardWritten> by_rank(std::vector<ShardWritten> shards) {
  std::ranges::sort(shards, {}, &ShardWritten::rank);
  return shards;
}

/// Writes the journal; on a full disk it makes room for the save of `step` and retries.
Status write_steps(const run::IndexWork& work, std::int64_t step, const Steps& steps) {
  Status written = steps ? attempt(steps) : Status();
  if (!written && storage::says_disk_full(written.error().message) && work.make_room(step) > 0) {
    written = work.journal({});
  }
  return written;
}

/// Logs a refusal of repeated work once, until its text changes.
class Refusal {
 public:
  void hear(const Status& status) {
    const std::string text = status ? std::string() : status.error().message;
    if (text != last_) {
      log_refusal("journal", -1, status);
      last_ = text;
    }
  }

 private:
  std::string last_;
};

struct IndexState;
using IndexSelf = IndexActor::stateful_pointer<IndexState>;

struct IndexState {
  static inline const char* name = "index";
  explicit IndexState(IndexSelf own) : self(own) {}

  [[nodiscard]] IndexActor me() const { return caf::actor_cast<IndexActor>(self); }

  [[nodiscard]] Save& save(std::int64_t step) {
    auto& save = save_;
    TRAIN_CHECK(save && save->step == step,
                "event of the save of step {}, but step {} is being saved", step,
                save ? save->step : -1);
    return *save;
  }

  [[nodiscard]] bool two_locations() const { return work->seal != nullptr; }

  void begin(std::int64_t step) {
    auto& current = save_;
    if (current) {
      // The state was not finite: every rank has dropped the save.
      TRAIN_CHECK(current->phase == Phase::writing && current->answers == 0,
                  "step {} is to be saved while step {} is", step, current->step);
      on_disk("discard checkpoint", current->step,
              [work = work, dropped = current->step] { return work->discard(dropped, false); });
    }
    current.emplace();
    current->step = step;
    current->awaited = peers_.ranks.size();
    write_journal(1);
    on_disk("note checkpoint", step,
            [work = work, step] { return work->set_state(step, CheckpointState::writing); });
  }

  void answered(Save& save) {
    if (++save.answers == save.awaited) {
      save.answers = 0;
      advance(save);
    }
  }

  /// Advances the phase once all ranks have answered.
  void advance(Save& save) {
    if (room_may_help(save)) {
      return make_room(save);
    }
    switch (save.phase) {
      case Phase::writing:
        if (save.failed) {
          return give_up(save);
        }
        note(save.step, "checkpoint_copied");
        return written(save);
      case Phase::sealing:
        if (save.failed) {
          return give_up(save);
        }
        save.local = true;
        self->send(peers_.conductor, CheckpointLocal{save.step});
        save.phase = Phase::sending;
        on_disk("note checkpoint", save.step, [work = work, step = save.step]() -> Status {
          TRAIN_RETURN_IF_ERROR(work->set_state(step, CheckpointState::local));
          return work->set_state(step, CheckpointState::publishing);
        });
        note(save.step, "checkpoint_local");
        return order(save, ShardTask::send);
      case Phase::sending:
        if (save.failed) {
          return give_up(save);
        }
        note(save.step, "checkpoint_verified");
        return publish(save, {});
      case Phase::finalizing:
      case Phase::discarding:
        return finish();
      case Phase::making_room:
      case Phase::publishing:
        TRAIN_CHECK(false, "ranks have no part in publishing");
    }
  }

  /// Handles complete shards of all ranks. The steps are journalled before a checkpoint can be
  /// resumed from: StepFinished of the last step may arrive after the shards, by another way.
  void written(Save& save) {
    save.awaits_step = newest_step_ < save.step;
    if (save.awaits_step) {
      return;
    }
    Steps steps = journal->batch(work);  // Includes steps left by an earlier batch.
    two_locations() ? seal(save, std::move(steps)) : publish(save, std::move(steps));
  }

  void order(Save& save, ShardTask task, const std::string& manifest = {}) {
    save.awaited = peers_.ranks.size();
    for (const RankActor& rank : peers_.ranks) {
      self->send(rank, ShardOrder{save.step, task, manifest});
    }
  }

  /// Sends the task to the ranks whose disk was full.
  void order_again(Save& save, ShardTask task) {
    const std::vector<std::int32_t> ranks = std::exchange(save.full, {});
    save.awaited = ranks.size();
    for (const std::int32_t rank : ranks) {
      self->send(peers_.ranks.at(static_cast<std::size_t>(rank)), ShardOrder{save.step, task, {}});
    }
  }

  /// With two locations only the project's has old checkpoints.
  [[nodiscard]] bool room_may_help(const Save& save) const {
    const bool on_projects_disk = save.phase == (two_locations() ? Phase::sending : Phase::writing);
    return save.failed && on_projects_disk && !save.room_for && save.full.size() == save.failures;
  }

  void make_room(Save& save) {
    save.room_for = std::exchange(save.phase, Phase::making_room);
    disk->mark({.what = "make room", .step = save.step - 1, .unit = -1, .lane = -1});
    disk->enqueue([me = me(), work = work, step = save.step] {
      SaveWorkDone done{.step = step, .failure = {}, .manifest = {}, .written = {}};
      log_refusal("make room", step, attempt([&]() -> Status {
                    done.retired = work->make_room(step);
                    return {};
                  }));
      caf::anon_send(me, done);
    });
  }

  /// Repeats the task of ranks whose disk was full, if room was made.
  void room_made(Save& save, std::int64_t retired) {
    save.phase = *save.room_for;
    if (retired == 0) {
      return give_up(save);
    }
    save.failed.reset();
    save.failures = 0;
    order_again(save, save.phase == Phase::writing ? ShardTask::write : ShardTask::send);
  }

  void seal(Save& save, Steps steps) {
    save.phase = Phase::sealing;
    disk->enqueue([me = me(), work = work, step = save.step, steps = std::move(steps),
                   shards = by_rank(save.shards)] {
      const auto manifest = attempt([&]() -> Result<std::string> {
        TRAIN_RETURN_IF_ERROR(write_steps(*work, step, steps));
        return work->seal(step, shards);
      });
      SaveWorkDone done{.step = step, .failure = {}, .manifest = {}, .written = {}};
      (manifest ? done.manifest : done.failure) = manifest ? *manifest : manifest.error().message;
      caf::anon_send(me, done);
    });
  }

  void publish(Save& save, Steps steps) {
    save.phase = Phase::publishing;
    disk->mark({.what = "publish checkpoint", .step = save.step - 1, .unit = -1, .lane = -1});
    const bool note = !two_locations();  // With two locations, noted at the send order.
    disk->enqueue([me = me(), work = work, step = save.step, note, steps = std::move(steps),
                   shards = by_rank(save.shards)] {
      const std::int64_t begin_ns = steady_now_ns();
      SaveWorkDone done{.step = step, .failure = {}, .manifest = {}, .written = {}};
      const Status recorded = attempt([&]() -> Status {
        TRAIN_RETURN_IF_ERROR(write_steps(*work, step, steps));
        if (note) {
          log_refusal("note checkpoint", step, work->set_state(step, CheckpointState::publishing));
        }
        const auto written = TRAIN_TRY(work->publish(step, shards));
        done.written = CheckpointWritten{step, written.directory, written.size_bytes, 0};
        return work->record(step);
      });
      if (recorded) {
        const auto slowest = std::ranges::max(shards, {}, &ShardWritten::elapsed_ns);
        done.written->elapsed_ns = slowest.elapsed_ns + steady_now_ns() - begin_ns;
      } else {
        done.failure = recorded.error().message;
      }
      caf::anon_send(me, done);
    });
  }

  void work_done(const SaveWorkDone& done) {
    Save& current = save(done.step);
    if (current.phase == Phase::making_room) {
      return room_made(current, done.retired);
    }
    if (current.phase == Phase::discarding) {
      return two_locations()        ? order(current, ShardTask::discard)
             : current.full.empty() ? finish()
                                    : order_again(current, ShardTask::discard);
    }
    if (!done.failure.empty()) {
      current.failed = CheckpointFailed{done.step, -1, done.failure};
      return give_up(current);
    }
    if (current.phase == Phase::sealing) {
      return order(current, ShardTask::seal, done.manifest);
    }
    self->send(peers_.conductor, *done.written);
    if (!two_locations()) {
      return finish();
    }
    current.phase = Phase::finalizing;
    order(current, ShardTask::finalize);
  }

  void give_up(Save& save) {
    save.phase = Phase::discarding;
    self->send(peers_.conductor, *save.failed);
    disk->mark({.what = "discard checkpoint", .step = save.step - 1, .unit = -1, .lane = -1});
    disk->enqueue([me = me(), work = work, failed = *save.failed, local = save.local] {
      log_refusal("discard checkpoint", failed.step,
                  attempt([&] { return work->discard(failed.step, local); }));
      log_refusal("failed save", failed.step, attempt([&] {
                    return work->event("failed",
                                       fmt::format("step={} {}", failed.step, failed.text));
                  }));
      caf::anon_send(
          me, SaveWorkDone{.step = failed.step, .failure = {}, .manifest = {}, .written = {}});
    });
  }

  void finish() {
    const std::int64_t step = save_->step;
    save_.reset();
    self->send(peers_.conductor, SaveFinished{step});
  }

  void note(std::int64_t step, const char* kind) {
    if (work->note) {
      on_disk("note event", step, [work = work, step, kind] {
        work->note(step, kind);
        return Status();
      });
    }
  }

  void on_disk(const char* what, std::int64_t step, std::function<Status()> todo) {
    disk->mark({.what = what, .step = step - 1, .unit = -1, .lane = -1});
    disk->enqueue([what, step, todo = std::move(todo)] { log_refusal(what, step, attempt(todo)); });
  }

  void remark(std::function<Status()> todo) {
    if (journal->remarks.size() >= kMostRemarks) {
      journal->remarks.pop_front();
    }
    journal->remarks.push_back(std::move(todo));
    write_journal(run::kJournalBatch);
  }

  void write_journal(std::size_t steps_at_least) {
    if (journal->writing || (journal->steps.size() < steps_at_least && journal->remarks.empty())) {
      return;
    }
    journal->writing = true;
    disk->mark({.what = "journal", .step = -2, .unit = -1, .lane = -1});
    disk->enqueue([me = me(), refusal = refusal_, todo = journal->batch(work)] {
      refusal->hear(attempt(todo));
      caf::anon_send(me, JournalWritten{});
    });
  }

  IndexSelf self;
  std::shared_ptr<kernels::Stream> disk;
  std::shared_ptr<const run::IndexWork> work;
  std::shared_ptr<Journal> journal = std::make_shared<Journal>();
  ConnectIndex peers_;
  std::shared_ptr<Refusal> refusal_ = std::make_shared<Refusal>();  // Used by the disk stream.
  std::optional<Save> save_;
  std::int64_t newest_step_ = 0;  // Newest step reported.
};

std::function<Status()> Journal::batch(const std::shared_ptr<const run::IndexWork>& work) {
  std::vector<checkpoint::StepRecord> new_steps(steps.begin(), steps.end());
  steps.clear();
  return [work, new_steps = std::move(new_steps), todo = std::exchange(remarks, {})]() -> Status {
    Status done = work->journal(new_steps);
    for (const auto& one : todo) {  // Refused steps stay queued behind `work`.
      const Status noted = one();
      done = done ? noted : done;
    }
    return done;
  };
}

/// Queues events of the run for the index.
void hear_step(IndexState& index, const StepFinished& event) {
  auto& steps = index.journal->steps;
  if (steps.size() >= kMostSteps) {
    steps.pop_front();
  }
  steps.push_back(run::step_record(event));
  index.write_journal(run::kJournalBatch);
  index.newest_step_ = event.step;
  if (index.save_ && index.save_->awaits_step) {
    index.written(*index.save_);
  }
}

/// Handles a rank's failure of its shard or of an order. A failed cleanup is not a failure.
void hear_failure(IndexState& index, const CheckpointFailed& message) {
  Save& save = index.save(message.step);
  if (save.phase == Phase::finalizing || save.phase == Phase::discarding) {
    log_warning(fmt::format("local_checkpoint_left step={} rank={} {}", message.step, message.rank,
                            message.text));
  } else {
    ++save.failures;
    if (storage::says_disk_full(message.text)) {
      save.full.push_back(message.rank);
    }
    if (!save.failed) {
      save.failed = message;
    }
  }
  index.answered(save);
}

IndexActor::behavior_type index_behavior(IndexSelf self, std::shared_ptr<kernels::Stream> disk,
                                         const run::IndexWork& work) {
  report_exceptions(self, "index", [] { return std::int64_t{-1}; });
  IndexState* const index = &self->state;
  index->newest_step_ = work.first_step;
  index->disk = std::move(disk);
  index->work = std::make_shared<const run::IndexWork>(work);
  self->attach_functor([stream = index->disk, journal = index->journal, todo = index->work] {
    if (!journal->steps.empty() || !journal->remarks.empty()) {  // Last steps of the run.
      stream->enqueue(
          [batch = journal->batch(todo)] { log_refusal("journal", -1, attempt(batch)); });
    }
  });
  return {
      [index](const ConnectIndex& peers) { index->peers_ = peers; },
      [index](const WriteSnapshot& message) { index->begin(message.step); },
      [index](const ShardWritten& message) {
        Save& save = index->save(message.step);
        save.shards.push_back(message);
        index->answered(save);
      },
      [index](const ShardDone& message) { index->answered(index->save(message.step)); },
      [index](const CheckpointFailed& message) { hear_failure(*index, message); },
      [index](const SaveWorkDone& message) { index->work_done(message); },
      [index](const CheckpointSkipped& message) {
        index->remark([work = index->work, step = message.step] {
          return work->event("skipped", fmt::format("step={} for a newer one", step));
        });
      },
      [index](const StepFinished& event) { hear_step(*index, event); },
      [index](const EvaluationFinished& event) {
        if (!event.of_choices) {  // Retention ranks checkpoints by loss.
          index->remark([work = index->work, event] {
            return work->evaluated(event.step, event.cross_entropy.value());
          });
        }
      },
      [index](const JournalWritten&) {
        index->journal->writing = false;
        index->write_journal(run::kJournalBatch);
      },
  };
}

}  // namespace

IndexActor spawn_index(caf::actor_system& system, std::shared_ptr<kernels::Stream> disk,
                       const run::IndexWork& work) {
  return system.spawn(index_behavior, std::move(disk), work);
}

void add_index(RunAssembly& run) {
  const HeadParts& parts = run.made_of();
  const auto actor = run.add("index", spawn_index(run.system(), parts.disk, parts.index));
  run.when_connected([actor, conductor = run.conductor()](const std::vector<RankActor>& ranks) {
    caf::anon_send(actor, ConnectIndex{ranks, conductor});
  });
}

}  // namespace train::actors
