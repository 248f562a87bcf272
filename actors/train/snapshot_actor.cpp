#include "actors/train/rank_actors.hpp"

#include <algorithm>
#include <array>
#include <caf/all.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "actors/messages/command_messages.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/messages/lane_messages.hpp"
#include "actors/messages/save_messages.hpp"
#include "actors/system/supervision.hpp"
#include "actors/train/memory/staging.hpp"
#include "actors/train/rank_registry.hpp"
#include "engine/rank/state/state_rows.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::actors {
namespace {

/// Saves at shorter intervals than this reuse the same memory.
constexpr std::chrono::seconds kIdleTime{60};

/// Buffer for one copy of the state.
struct Buffer {
  /// Used by the copy stream, then by the disk stream, then by the copy stream again.
  std::shared_ptr<Staging> staging = std::make_shared<Staging>();
  std::optional<std::int64_t> held;    // Step of its complete copy.
  std::optional<std::int64_t> newest;  // Step last copied here, finite or not.
  int copying = 0;                     // Copies into it under way.
  bool writing = false;
  std::string failure;  // Cause of a failed copy of `held`.

  [[nodiscard]] bool free() const { return !held && copying == 0 && !writing; }
};

struct SnapshotState {
  static inline const char* name = "snapshot";
  ConnectSnapshot peers;
  std::array<Buffer, kStagingBuffers> buffers;
  std::optional<std::int64_t> granted;  // Step to be written.
  int orders = 0;                       // Orders under way.
  std::optional<std::int64_t> kept;     // Step kept unwritten by a full disk.
  std::uint64_t copies = 0;             // Copies made so far.
  bool draining = false;
  std::optional<WaitTable::Credits> staging;
};

using SnapshotSelf = SnapshotActor::stateful_pointer<SnapshotState>;

struct Snapshot {
  SnapshotSelf self;
  RankContext context;
  ShardWork work;

  [[nodiscard]] SnapshotState& state() const { return self->state; }
  [[nodiscard]] std::size_t buffer_for(const CopyState& message) const;
  void copy(const CopyState& message) const;
  void copied(const StateCopied& message) const;
  void write_granted() const;
  [[nodiscard]] BackgroundIo::Beside beside(std::int64_t step) const;
  void write(Buffer& buffer) const;
  void write_done() const;
  void write_failed(const CheckpointFailed& message) const;
  void write_again(std::int64_t step) const;
  void follow(const ShardOrder& order) const;
  void order_done() const;
  [[nodiscard]] bool idle() const;
  void note_credits() const;
  void release_if_idle() const;
  void release_if_idle_since(const ReleaseStaging& message) const;
  void tell_if_drained() const;
  template <class Message>
  void tell_index(const Message& message) const {
    self->send(state().peers.index, message);
  }
};

std::size_t Snapshot::buffer_for(const CopyState& message) const {
  const auto& buffers = state().buffers;
  const auto found = std::find_if(buffers.begin(), buffers.end(), [&message](const Buffer& buffer) {
    return message.replaces >= 0 ? buffer.newest == message.replaces : buffer.free();
  });
  TRAIN_CHECK(found != buffers.end() && !found->writing, "no place for the snapshot of step {}",
              message.step);
  return static_cast<std::size_t>(found - buffers.begin());
}

void Snapshot::copy(const CopyState& message) const {
  const std::size_t index = buffer_for(message);
  Buffer& buffer = state().buffers[index];
  buffer.newest = message.step;
  ++buffer.copying;
  ++state().copies;
  note_credits();
  if (message.write_now) {
    state().granted = message.step;
  }
  // The non-finite flag belongs to the compute stream, and is read there in order.
  const auto nonfinite = std::make_shared<bool>(false);
  context->compute->enqueue(
      [nonfinite, runtime = context.get()] { *nonfinite = runtime->engine->totals().nonfinite(); });
  kernels::Event::record(*context->compute).wait_on(*context->copy);
  context->copy->mark(
      {.what = "copy for checkpoint", .step = message.step - 1, .unit = -1, .lane = -1});
  const auto failure = std::make_shared<std::string>();
  context->copy->enqueue([nonfinite, failure, staging = buffer.staging, runtime = context.get()] {
    if (!*nonfinite) {
      const engine::RankEngine& engine = *runtime->engine;
      const Status copied = staging->copy(engine.state().shard_views(), engine.device());
      *failure = copied.ok() ? "" : copied.error().message;
    }
  });
  const kernels::Event done = kernels::Event::record(*context->copy);
  context->copy->enqueue([me = caf::actor_cast<SnapshotActor>(self), nonfinite, failure,
                          step = message.step, index] {
    caf::anon_send(me, StateCopied{step, static_cast<std::int32_t>(index), *nonfinite, *failure});
  });
  self->send(state().peers.rank, CopyEnqueued{message.step, done});
}

void Snapshot::copied(const StateCopied& message) const {
  Buffer& buffer = state().buffers[static_cast<std::size_t>(message.staging)];
  --buffer.copying;
  if (!message.nonfinite) {
    buffer.held = message.step;
    buffer.failure = message.failure;
  }
  write_granted();
  note_credits();
  release_if_idle();
  tell_if_drained();
}

void Snapshot::write_granted() const {
  for (Buffer& buffer : state().buffers) {
    // A copy still under way in this buffer is of a non-finite state, or this one would not have
    // been granted.
    if (buffer.held && buffer.held == state().granted && buffer.copying == 0 && !buffer.writing) {
      write(buffer);
    }
  }
}

/// After the last step, or one that a signal makes the last, nothing is computed beside the work:
/// programs of others on a full machine would leave next to nothing to modest work.
BackgroundIo::Beside Snapshot::beside(std::int64_t step) const {
  const bool over = state().draining || step >= context->engine->options().total_steps;
  return over ? BackgroundIo::Beside::nothing : BackgroundIo::Beside::steps;
}

void Snapshot::write(Buffer& buffer) const {
  buffer.writing = true;
  const std::int64_t step = *buffer.held;
  context->disk->mark({.what = "write checkpoint", .step = step - 1, .unit = -1, .lane = -1});
  context->disk->enqueue([me = caf::actor_cast<SnapshotActor>(self), rank = context->rank,
                          staging = buffer.staging, failed = buffer.failure, step,
                          writer = work.write, background_io = &context->background_io,
                          beside = beside(step)] {
    const std::int64_t begin_ns = steady_now_ns();
    std::uint64_t digest = 0;
    const auto record = attempt([&]() -> Result<std::string> {
      if (!failed.empty()) {
        return failure(failed);
      }
      Result<std::string> written = failure("not written");
      background_io->run(
          [&] {
            digest = engine::weights_digest(staging->views());
            written = writer(step, staging->views());
          },
          beside);
      return written;
    });
    if (!record) {
      caf::anon_send(me, CheckpointFailed{step, rank, record.error().message});
    } else {
      caf::anon_send(me, ShardWritten{step, rank, *record, digest, steady_now_ns() - begin_ns});
    }
  });
}

void Snapshot::write_done() const {
  for (Buffer& buffer : state().buffers) {
    if (buffer.writing) {
      buffer.writing = false;
      buffer.held.reset();
      state().granted.reset();
    }
  }
  note_credits();
  release_if_idle();
  tell_if_drained();
}

/// Keeps the copy until the index has decided: a full disk may have room soon.
void Snapshot::write_failed(const CheckpointFailed& message) const {
  if (storage::says_disk_full(message.text)) {
    state().kept = message.step;
  } else {
    write_done();
  }
}

void Snapshot::write_again(std::int64_t step) const {
  TRAIN_CHECK(state().kept == step, "there is no copy of step {} to be written again", step);
  state().kept.reset();
  for (Buffer& buffer : state().buffers) {
    if (buffer.writing) {
      write(buffer);
    }
  }
}

void Snapshot::follow(const ShardOrder& order) const {
  if (order.task == ShardTask::write) {
    return write_again(order.step);
  }
  if (order.task == ShardTask::discard && state().kept == order.step) {
    state().kept.reset();
    write_done();
  }
  ++state().orders;
  static constexpr std::array<const char*, 4> kMarks = {
      "seal local checkpoint", "send checkpoint", "retire local checkpoints", "discard checkpoint"};
  context->disk->mark({.what = kMarks.at(static_cast<std::size_t>(order.task)),
                       .step = order.step - 1,
                       .unit = -1,
                       .lane = -1});
  context->disk->enqueue([me = caf::actor_cast<SnapshotActor>(self), rank = context->rank, order,
                          todo = work, background_io = &context->background_io,
                          beside = beside(order.step)] {
    const Status done = attempt([&] {
      switch (order.task) {
        case ShardTask::seal:
          return todo.seal(order.step, order.manifest);
        case ShardTask::send: {
          Status sent;
          background_io->run([&] { sent = todo.send(order.step); }, beside);
          return sent;
        }
        case ShardTask::finalize:
          return todo.finalize(order.step);
        case ShardTask::discard:
          return todo.discard(order.step);
        case ShardTask::write:
          break;
      }
      return Status(failure("an unknown order"));
    });
    if (!done) {
      caf::anon_send(me, CheckpointFailed{order.step, rank, done.error().message});
    } else {
      caf::anon_send(me, ShardDone{order.step, rank, order.task});
    }
  });
}

void Snapshot::order_done() const {
  --state().orders;
  tell_if_drained();
}

bool Snapshot::idle() const {
  const auto& buffers = state().buffers;
  return std::all_of(buffers.begin(), buffers.end(),
                     [](const Buffer& buffer) { return buffer.free(); });
}

void Snapshot::note_credits() const {
  const auto& buffers = state().buffers;
  state().staging->in_use(std::count_if(buffers.begin(), buffers.end(),
                                        [](const Buffer& buffer) { return !buffer.free(); }));
}

// Memory is held and released on the stream that fills it next, after that stream's queued work.

void Snapshot::release_if_idle() const {
  if (idle()) {
    context->copy->enqueue(
        [first = state().buffers[0].staging, second = state().buffers[1].staging] {
          first->release_pages();
          second->release_pages();
        });
    self->delayed_send(caf::actor_cast<SnapshotActor>(self), kIdleTime,
                       ReleaseStaging{state().copies});
  }
}

void Snapshot::release_if_idle_since(const ReleaseStaging& message) const {
  if (idle() && message.copies == state().copies) {
    context->copy->enqueue(
        [first = state().buffers[0].staging, second = state().buffers[1].staging] {
          first->release_pageable();
          second->release_pageable();
        });
  }
}

void Snapshot::tell_if_drained() const {
  if (state().draining && state().orders == 0 && idle()) {
    state().draining = false;
    self->send(state().peers.rank, SnapshotsDrained{});
  }
}

SnapshotActor::behavior_type snapshot_behavior(SnapshotSelf self, RankContext context,
                                               ShardWork work, WaitTable::Credits staging) {
  report_exceptions(self, "snapshot", [] { return std::int64_t{-1}; });
  self->state.staging = staging;
  if (context->staging) {
    self->state.buffers.front().staging = context->staging;
  }
  self->set_down_handler([self](caf::down_msg& down) { self->quit(std::move(down.reason)); });
  const Snapshot snapshot{self, std::move(context), std::move(work)};
  return {
      [self](const ConnectSnapshot& peers) {
        self->state.peers = peers;
        // Without the index no save would ever complete. A monitor, not a link: the index serves
        // other ranks, too, and does not end with this one.
        self->monitor(peers.index);
      },
      [snapshot](const CopyState& message) { snapshot.copy(message); },
      [snapshot](const StateCopied& message) { snapshot.copied(message); },
      [snapshot](const WriteSnapshot& message) {
        snapshot.state().granted = message.step;
        snapshot.write_granted();
      },
      [snapshot](const ShardOrder& order) { snapshot.follow(order); },
      [snapshot](const DrainSnapshots&) {
        snapshot.state().draining = true;
        snapshot.tell_if_drained();
      },
      [snapshot](const ShardWritten& message) {
        snapshot.tell_index(message);
        snapshot.write_done();
      },
      [snapshot](const ShardDone& message) {
        snapshot.tell_index(message);
        snapshot.order_done();
      },
      [snapshot](const CheckpointFailed& message) {
        snapshot.tell_index(message);
        if (snapshot.state().orders > 0) {  // No writes while it follows orders.
          snapshot.order_done();
        } else {
          snapshot.write_failed(message);
        }
      },
      [snapshot](const ReleaseStaging& message) { snapshot.release_if_idle_since(message); },
  };
}

}  // namespace

SnapshotActor spawn_snapshot(caf::actor_system& system, const RankContext& context,
                             const ShardWork& work) {
  return system.spawn(snapshot_behavior, context, work,
                      context->waits.add_credits("staging buffers", kStagingBuffers));
}

void add_snapshot(RankAssembly& rank) {
  const SnapshotActor actor =
      rank.add("snapshot", spawn_snapshot(rank.system(), rank.context(), rank.shards()));
  caf::anon_send(actor, ConnectSnapshot{rank.rank(), rank.head().conductor, rank.head().index});
}

}  // namespace train::actors
