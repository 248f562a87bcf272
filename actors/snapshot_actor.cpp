#include "actors/snapshot_actor.hpp"

#include <array>
#include <caf/all.hpp>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actors/messages/connect_messages.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/messages/lane_messages.hpp"
#include "actors/supervision.hpp"
#include "engine/weights_digest.hpp"

namespace train::actors {
namespace {

/// A copy of the rank's state in host memory; touched only by the copy stream, then the disk
/// stream.
struct Staging {
  std::vector<std::byte> bytes;
  std::vector<engine::StateView> views;
  bool poisoned = false;  // the state that was to be copied; then the bytes stay as they were
};

enum class StagingUse : std::uint8_t { free, copying, complete, writing };

struct SnapshotState {
  static inline const char* name = "snapshot";
  ConnectSnapshot peers;
  std::array<std::shared_ptr<Staging>, kStagingBuffers> staging;
  std::array<StagingUse, kStagingBuffers> use{};
  std::array<std::int64_t, kStagingBuffers> steps{};
  // The step whose complete copy is being replaced; it counts until the newer one is known good.
  std::array<std::optional<std::int64_t>, kStagingBuffers> replaced;
  std::optional<std::int64_t> wanted;  // a CopyState that found no free buffer
  std::optional<WaitBoard::Line> wait;
  bool draining = false;
};

using SnapshotSelf = SnapshotActor::stateful_pointer<SnapshotState>;

void copy_views(const std::vector<engine::StateView>& from, Staging& to) {
  std::size_t size_bytes = 0;
  for (const engine::StateView& view : from) {
    size_bytes += view.size_bytes;
  }
  to.bytes.resize(size_bytes);
  to.views = from;
  std::size_t offset = 0;
  for (engine::StateView& view : to.views) {
    std::memcpy(to.bytes.data() + offset, view.data, view.size_bytes);
    view.data = to.bytes.data() + offset;
    offset += view.size_bytes;
  }
}

struct Snapshot {
  SnapshotSelf self;
  RankContext context;
  WriteShard write;

  [[nodiscard]] SnapshotState& state() const { return self->state; }
  [[nodiscard]] std::optional<std::size_t> find(StagingUse use) const;
  void copy(std::int64_t step) const;
  void start_copy(std::size_t index, std::int64_t step, std::optional<std::int64_t> replaced) const;
  void copied(const StateCopied& message) const;
  void write_next() const;
  void write_done(std::int64_t step) const;
  void proceed() const;
};

std::optional<std::size_t> Snapshot::find(StagingUse use) const {
  for (std::size_t index = 0; index < kStagingBuffers; ++index) {
    if (state().use[index] == use) {
      return index;
    }
  }
  return std::nullopt;
}

void Snapshot::copy(std::int64_t step) const {
  if (const auto index = find(StagingUse::free)) {
    start_copy(*index, step, std::nullopt);
    return;
  }
  if (const auto index = find(StagingUse::complete)) {
    start_copy(*index, step, state().steps[*index]);
    return;
  }
  TRAIN_CHECK(!state().wanted, "a second snapshot command before the first was served");
  state().wanted = step;
  state().wait->begin("a free staging buffer", step);
}

void Snapshot::start_copy(std::size_t index, std::int64_t step,
                          std::optional<std::int64_t> replaced) const {
  state().use[index] = StagingUse::copying;
  state().steps[index] = step;
  state().replaced[index] = replaced;
  auto staging = state().staging[index];
  // The poison flag belongs to the compute stream; it is read there, in order.
  context->compute->enqueue(
      [staging, runtime = context.get()] { staging->poisoned = runtime->engine->poisoned(); });
  kernels::Event::record(*context->compute).wait_on(*context->copy);
  context->copy->mark({.what = "copy for checkpoint", .step = step - 1, .unit = -1, .lane = -1});
  context->copy->enqueue([staging, runtime = context.get()] {
    if (!staging->poisoned) {
      copy_views(runtime->engine->shard_views(), *staging);
    }
  });
  const kernels::Event done = kernels::Event::record(*context->copy);
  context->copy->enqueue([me = caf::actor_cast<SnapshotActor>(self), staging, step, index] {
    caf::anon_send(me, StateCopied{step, static_cast<std::int32_t>(index), staging->poisoned});
  });
  self->send(state().peers.rank, CopyEnqueued{step, done});
}

void Snapshot::copied(const StateCopied& message) const {
  const auto index = static_cast<std::size_t>(message.staging);
  const std::optional<std::int64_t> replaced = std::exchange(state().replaced[index], std::nullopt);
  if (message.poisoned) {
    state().use[index] = replaced ? StagingUse::complete : StagingUse::free;
    state().steps[index] = replaced.value_or(-1);
  } else {
    state().use[index] = StagingUse::complete;
    if (replaced) {
      self->send(state().peers.index, CheckpointSkipped{*replaced, context->rank});
    }
  }
  write_next();
}

void Snapshot::write_next() const {
  const auto index = find(StagingUse::complete);
  if (index && !find(StagingUse::writing)) {
    state().use[*index] = StagingUse::writing;
    const std::int64_t step = state().steps[*index];
    context->disk->mark({.what = "write checkpoint", .step = step - 1, .unit = -1, .lane = -1});
    context->disk->enqueue([me = caf::actor_cast<SnapshotActor>(self), rank = context->rank,
                            staging = state().staging[*index], step, writer = write] {
      const std::int64_t begin_ns = steady_now_ns();
      const auto record = writer(step, staging->views);
      if (!record) {
        caf::anon_send(me, CheckpointFailed{step, rank, record.error().message});
      } else {
        caf::anon_send(me, ShardWritten{step, rank, *record, engine::weights_digest(staging->views),
                                        steady_now_ns() - begin_ns});
      }
    });
  }
  proceed();
}

void Snapshot::write_done(std::int64_t step) const {
  for (std::size_t index = 0; index < kStagingBuffers; ++index) {
    if (state().use[index] == StagingUse::writing && state().steps[index] == step) {
      state().use[index] = StagingUse::free;
    }
  }
  write_next();
}

void Snapshot::proceed() const {
  if (state().wanted && (find(StagingUse::free) || find(StagingUse::complete))) {
    const std::int64_t step = *state().wanted;
    state().wanted.reset();
    state().wait->end();
    copy(step);
  }
  const bool busy = find(StagingUse::copying) || find(StagingUse::complete) ||
                    find(StagingUse::writing) || state().wanted;
  if (state().draining && !busy) {
    state().draining = false;
    self->send(state().peers.rank, SnapshotsDrained{});
  }
}

SnapshotActor::behavior_type snapshot_behavior(SnapshotSelf self, RankContext context,
                                               WriteShard write, WaitBoard::Line wait) {
  report_exceptions(self, "snapshot", [] { return std::int64_t{-1}; });
  self->state.wait = wait;
  self->set_down_handler([self](caf::down_msg& down) { self->quit(std::move(down.reason)); });
  for (auto& staging : self->state.staging) {
    staging = std::make_shared<Staging>();
  }
  const Snapshot snapshot{self, context, write};
  return {
      [self](const ConnectSnapshot& peers) {
        self->state.peers = peers;
        // Without it no save would ever be done with. Not a link: the index serves other ranks,
        // too, and does not end with this one.
        self->monitor(peers.index);
      },
      [snapshot](const CopyState& message) { snapshot.copy(message.step); },
      [snapshot](const StateCopied& message) { snapshot.copied(message); },
      [snapshot](const DrainSnapshots&) {
        snapshot.state().draining = true;
        snapshot.proceed();
      },
      [snapshot](const ShardWritten& message) {
        snapshot.self->send(snapshot.state().peers.index, message);
      },
      [snapshot](const CheckpointFailed& message) {
        snapshot.self->send(snapshot.state().peers.index, message);
      },
      [snapshot](const CheckpointIndexed& message) { snapshot.write_done(message.step); },
  };
}

}  // namespace

SnapshotActor spawn_snapshot(caf::actor_system& system, const RankContext& context,
                             const WriteShard& write) {
  return system.spawn(snapshot_behavior, context, write, context->waits.add("snapshot"));
}

}  // namespace train::actors
