#include "actors/head/index_actor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <caf/all.hpp>
#include <deque>
#include <optional>
#include <utility>

#include "actors/messages/command_messages.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/supervision.hpp"
#include "actors/train/step_event.hpp"
#include "base/log.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::actors {
namespace {

using checkpoint::CheckpointState;

// More than these can only wait if the disk stands still; the oldest go.
constexpr std::size_t kMostSteps = 100'000;
constexpr std::size_t kMostRemarks = 10'000;

enum class Phase { writing, sealing, sending, making_room, publishing, settling, discarding };

/// The save under way.
struct Save {
  std::int64_t step = 0;
  Phase phase = Phase::writing;
  std::size_t awaited = 0;  // ranks that are to answer in this phase
  std::size_t answers = 0;  // theirs
  std::vector<ShardWritten> shards;
  std::optional<CheckpointFailed> failed;  // the first
  std::size_t failures = 0;                // of ranks, in this phase
  std::vector<std::int32_t> full;          // of those the ranks whose disk was full
  std::optional<Phase> room_for;           // the phase that room was made for, once
  bool local = false;                      // whole in the local place
  bool awaits_step = false;                // all shards are written, the step is not heard of yet
};

/// What the index is still to be told of the run; a batch at a time.
struct Journal {
  std::deque<checkpoint::StepRecord> steps;
  std::deque<std::function<Status()>> remarks;  // evaluations and events
  bool writing = false;

  /// Takes out all there is, as work for the disk.
  [[nodiscard]] std::function<Status()> batch(const std::shared_ptr<const IndexWork>& work);
};

struct IndexState {
  static inline const char* name = "index";
  ConnectIndex peers;
  std::optional<Save> save;
  std::int64_t newest_step = 0;  // heard of
};

using IndexSelf = IndexActor::stateful_pointer<IndexState>;

/// Steps for the journal, written in front of what needs them there; may be empty.
using Steps = std::function<Status()>;

struct Index {
  IndexSelf self;
  std::shared_ptr<kernels::Stream> disk;
  std::shared_ptr<const IndexWork> work;
  std::shared_ptr<Journal> journal;

  [[nodiscard]] IndexActor me() const { return caf::actor_cast<IndexActor>(self); }
  [[nodiscard]] Save& save(std::int64_t step) const;
  [[nodiscard]] bool two_locations() const { return work->seal != nullptr; }
  void begin(std::int64_t step) const;
  void answered(Save& save) const;
  void advance(Save& save) const;
  void written(Save& save) const;
  void order(Save& save, ShardTask task, const std::string& manifest = {}) const;
  void order_again(Save& save, ShardTask task) const;
  [[nodiscard]] bool room_may_help(const Save& save) const;
  void make_room(Save& save) const;
  void room_made(Save& save, std::int64_t retired) const;
  void seal(Save& save, Steps steps) const;
  void publish(Save& save, Steps steps) const;
  void work_done(const SaveWorkDone& done) const;
  void give_up(Save& save) const;
  void finish() const;
  void on_disk(const char* what, std::int64_t step, std::function<Status()> todo) const;
  void remark(std::function<Status()> todo) const;
  void write_journal(std::size_t steps_at_least) const;
};

/// Nothing that is only noted may end a save.
void log_refusal(const char* what, std::int64_t step, const Status& status) {
  if (!status) {
    log_warning(
        fmt::format("index_incomplete {} of step {}: {}", what, step, status.error().message));
  }
}

Save& Index::save(std::int64_t step) const {
  auto& save = self->state.save;
  TRAIN_CHECK(save && save->step == step,
              "news of the save of step {}, but that of {} is under way", step,
              save ? save->step : -1);
  return *save;
}

void Index::on_disk(const char* what, std::int64_t step, std::function<Status()> todo) const {
  disk->mark({.what = what, .step = step - 1, .unit = -1, .lane = -1});
  disk->enqueue([what, step, todo = std::move(todo)] { log_refusal(what, step, attempt(todo)); });
}

void Index::begin(std::int64_t step) const {
  auto& current = self->state.save;
  if (current) {
    // Its state was not finite: every rank has dropped it.
    TRAIN_CHECK(current->phase == Phase::writing && current->answers == 0,
                "step {} is to be saved while step {} is", step, current->step);
    on_disk("discard checkpoint", current->step,
            [work = work, dropped = current->step] { return work->discard(dropped, false); });
  }
  current.emplace();
  current->step = step;
  current->awaited = self->state.peers.ranks.size();
  write_journal(1);
  on_disk("note checkpoint", step,
          [work = work, step] { return work->note(step, CheckpointState::writing); });
}

void Index::answered(Save& save) const {
  if (++save.answers == save.awaited) {
    save.answers = 0;
    advance(save);
  }
}

/// All ranks have answered.
void Index::advance(Save& save) const {
  if (room_may_help(save)) {
    return make_room(save);
  }
  switch (save.phase) {
    case Phase::writing:
      return save.failed ? give_up(save) : written(save);
    case Phase::sealing:
      if (save.failed) {
        return give_up(save);
      }
      save.local = true;
      self->send(self->state.peers.conductor, CheckpointLocal{save.step});
      save.phase = Phase::sending;
      on_disk("note checkpoint", save.step, [work = work, step = save.step]() -> Status {
        TRAIN_RETURN_IF_ERROR(work->note(step, CheckpointState::local));
        return work->note(step, CheckpointState::publishing);
      });
      return order(save, ShardTask::send);
    case Phase::sending:
      return save.failed ? give_up(save) : publish(save, {});
    case Phase::settling:
    case Phase::discarding:
      return finish();
    case Phase::making_room:
    case Phase::publishing:
      TRAIN_CHECK(false, "ranks have no part in publishing");
  }
}

/// Of two places only the project's has old checkpoints.
bool Index::room_may_help(const Save& save) const {
  const bool on_projects_disk = save.phase == (two_locations() ? Phase::sending : Phase::writing);
  return save.failed && on_projects_disk && !save.room_for && save.full.size() == save.failures;
}

void Index::make_room(Save& save) const {
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

/// The ranks whose disk was full do their part again, if that can have changed anything.
void Index::room_made(Save& save, std::int64_t retired) const {
  save.phase = *save.room_for;
  if (retired == 0) {
    return give_up(save);
  }
  save.failed.reset();
  save.failures = 0;
  order_again(save, save.phase == Phase::writing ? ShardTask::write : ShardTask::send);
}

/// Whole shards of all ranks. Its steps are journalled before a checkpoint can be gone on from: the
/// news of the last of them may come later than the shards, by another way.
void Index::written(Save& save) const {
  save.awaits_step = self->state.newest_step < save.step;
  if (save.awaits_step) {
    return;
  }
  Steps steps = journal->steps.empty() ? Steps() : journal->batch(work);
  two_locations() ? seal(save, std::move(steps)) : publish(save, std::move(steps));
}

void Index::order(Save& save, ShardTask task, const std::string& manifest) const {
  save.awaited = self->state.peers.ranks.size();
  for (const RankActor& rank : self->state.peers.ranks) {
    self->send(rank, ShardOrder{save.step, task, manifest});
  }
}

/// To the ranks whose disk was full.
void Index::order_again(Save& save, ShardTask task) const {
  const std::vector<std::int32_t> ranks = std::exchange(save.full, {});
  save.awaited = ranks.size();
  for (const std::int32_t rank : ranks) {
    self->send(self->state.peers.ranks.at(static_cast<std::size_t>(rank)),
               ShardOrder{save.step, task, {}});
  }
}

std::vector<ShardWritten> by_rank(std::vector<ShardWritten> shards) {
  std::sort(shards.begin(), shards.end(),
            [](const ShardWritten& a, const ShardWritten& b) { return a.rank < b.rank; });
  return shards;
}

void write_steps(const Steps& steps) {
  if (steps) {
    log_refusal("journal", -1, attempt(steps));
  }
}

void Index::seal(Save& save, Steps steps) const {
  save.phase = Phase::sealing;
  disk->enqueue([me = me(), work = work, step = save.step, steps = std::move(steps),
                 shards = by_rank(save.shards)] {
    write_steps(steps);
    const auto manifest = attempt([&] { return work->seal(step, shards); });
    SaveWorkDone done{.step = step, .failure = {}, .manifest = {}, .written = {}};
    (manifest ? done.manifest : done.failure) = manifest ? *manifest : manifest.error().message;
    caf::anon_send(me, done);
  });
}

std::int64_t slowest(const std::vector<ShardWritten>& shards) {
  std::int64_t elapsed_ns = 0;
  for (const ShardWritten& shard : shards) {
    elapsed_ns = std::max(elapsed_ns, shard.elapsed_ns);
  }
  return elapsed_ns;
}

void Index::publish(Save& save, Steps steps) const {
  save.phase = Phase::publishing;
  disk->mark({.what = "publish checkpoint", .step = save.step - 1, .unit = -1, .lane = -1});
  const bool note = !two_locations();  // else it says so since the shards are sent
  disk->enqueue([me = me(), work = work, step = save.step, note, steps = std::move(steps),
                 shards = by_rank(save.shards)] {
    write_steps(steps);
    const std::int64_t begin_ns = steady_now_ns();
    SaveWorkDone done{.step = step, .failure = {}, .manifest = {}, .written = {}};
    const Status recorded = attempt([&]() -> Status {
      if (note) {
        log_refusal("note checkpoint", step, work->note(step, CheckpointState::publishing));
      }
      const auto written = work->publish(step, shards);
      TRAIN_RETURN_IF_ERROR(written);
      done.written = CheckpointWritten{step, written->directory, written->size_bytes, 0};
      return work->record(step);
    });
    if (recorded) {
      done.written->elapsed_ns = slowest(shards) + steady_now_ns() - begin_ns;
    } else {
      done.failure = recorded.error().message;
    }
    caf::anon_send(me, done);
  });
}

void Index::work_done(const SaveWorkDone& done) const {
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
  self->send(self->state.peers.conductor, *done.written);
  if (!two_locations()) {
    return finish();
  }
  current.phase = Phase::settling;
  order(current, ShardTask::finalize);
}

void Index::give_up(Save& save) const {
  save.phase = Phase::discarding;
  self->send(self->state.peers.conductor, *save.failed);
  disk->mark({.what = "discard checkpoint", .step = save.step - 1, .unit = -1, .lane = -1});
  disk->enqueue([me = me(), work = work, failed = *save.failed, local = save.local] {
    log_refusal("discard checkpoint", failed.step,
                attempt([&] { return work->discard(failed.step, local); }));
    log_refusal("failed save", failed.step, attempt([&] {
                  return work->event("failed", fmt::format("step={} {}", failed.step, failed.text));
                }));
    caf::anon_send(me,
                   SaveWorkDone{.step = failed.step, .failure = {}, .manifest = {}, .written = {}});
  });
}

void Index::finish() const {
  const std::int64_t step = self->state.save->step;
  self->state.save.reset();
  self->send(self->state.peers.conductor, SaveFinished{step});
}

std::function<Status()> Journal::batch(const std::shared_ptr<const IndexWork>& work) {
  std::vector<checkpoint::StepRecord> new_steps(steps.begin(), steps.end());
  steps.clear();
  return [work, new_steps = std::move(new_steps), todo = std::exchange(remarks, {})]() -> Status {
    if (!new_steps.empty()) {
      TRAIN_RETURN_IF_ERROR(work->journal(new_steps));
    }
    for (const auto& one : todo) {
      TRAIN_RETURN_IF_ERROR(one());
    }
    return {};
  };
}

void Index::write_journal(std::size_t steps_at_least) const {
  if (journal->writing || (journal->steps.size() < steps_at_least && journal->remarks.empty())) {
    return;
  }
  journal->writing = true;
  on_disk("journal", -1, [me = me(), todo = journal->batch(work)] {
    caf::anon_send(me, JournalWritten{});
    return todo();
  });
}

void Index::remark(std::function<Status()> todo) const {
  if (journal->remarks.size() >= kMostRemarks) {
    journal->remarks.pop_front();
  }
  journal->remarks.push_back(std::move(todo));
  write_journal(kJournalBatch);
}

/// What the index hears of the run itself.
void hear_step(const Index& index, const StepFinished& event) {
  auto& steps = index.journal->steps;
  if (steps.size() >= kMostSteps) {
    steps.pop_front();
  }
  steps.push_back(step_record(event));
  index.write_journal(kJournalBatch);
  auto& state = index.self->state;
  state.newest_step = event.step;
  if (state.save && state.save->awaits_step) {
    index.written(*state.save);
  }
}

/// A rank's failure: of its shard, or of an order. What remains to be tidied up is no failure.
void hear_failure(const Index& index, const CheckpointFailed& message) {
  Save& save = index.save(message.step);
  if (save.phase == Phase::settling || save.phase == Phase::discarding) {
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
                                         const IndexWork& work) {
  report_exceptions(self, "index", [] { return std::int64_t{-1}; });
  self->state.newest_step = work.first_step;
  const Index index{self, std::move(disk), std::make_shared<const IndexWork>(work),
                    std::make_shared<Journal>()};
  self->attach_functor([stream = index.disk, journal = index.journal, todo = index.work] {
    if (!journal->steps.empty() || !journal->remarks.empty()) {  // the last of the run
      stream->enqueue(
          [batch = journal->batch(todo)] { log_refusal("journal", -1, attempt(batch)); });
    }
  });
  return {
      [self](const ConnectIndex& peers) { self->state.peers = peers; },
      [index](const WriteSnapshot& message) { index.begin(message.step); },
      [index](const ShardWritten& message) {
        Save& save = index.save(message.step);
        save.shards.push_back(message);
        index.answered(save);
      },
      [index](const ShardDone& message) { index.answered(index.save(message.step)); },
      [index](const CheckpointFailed& message) { hear_failure(index, message); },
      [index](const SaveWorkDone& message) { index.work_done(message); },
      [index](const CheckpointSkipped& message) {
        index.remark([work = index.work, step = message.step] {
          return work->event("skipped", fmt::format("step={} for a newer one", step));
        });
      },
      [index](const StepFinished& event) { hear_step(index, event); },
      [index](const EvaluationFinished& event) {
        index.remark([work = index.work, step = event.step, loss = event.cross_entropy.value()] {
          return work->evaluated(step, loss);
        });
      },
      [index](const JournalWritten&) {
        index.journal->writing = false;
        index.write_journal(kJournalBatch);
      },
  };
}

}  // namespace

IndexActor spawn_index(caf::actor_system& system, std::shared_ptr<kernels::Stream> disk,
                       const IndexWork& work) {
  return system.spawn(index_behavior, std::move(disk), work);
}

}  // namespace train::actors
