#include "actors/index_actor.hpp"

#include <algorithm>
#include <caf/all.hpp>
#include <exception>
#include <map>
#include <optional>
#include <utility>

#include "actors/messages/connect_messages.hpp"
#include "actors/supervision.hpp"

namespace train::actors {
namespace {

/// What ranks have said of one checkpoint.
struct Arrivals {
  std::size_t ranks = 0;
  std::vector<ShardWritten> shards;
  std::optional<CheckpointFailed> failed;  // the first
  std::optional<CheckpointSkipped> skipped;
};

struct IndexState {
  static inline const char* name = "index";
  ConnectIndex peers;
  std::map<std::int64_t, Arrivals> arrivals;  // by step
};

using IndexSelf = IndexActor::stateful_pointer<IndexState>;

struct Index {
  IndexSelf self;
  std::shared_ptr<kernels::Stream> disk;
  IndexWork work;

  [[nodiscard]] Arrivals& of(std::int64_t step) const { return self->state.arrivals[step]; }
  void arrived(std::int64_t step) const;
  void publish(std::int64_t step, Arrivals arrivals) const;
  void give_up(std::int64_t step, const Arrivals& arrivals) const;
};

void Index::arrived(std::int64_t step) const {
  Arrivals& arrivals = of(step);
  if (++arrivals.ranks < self->state.peers.ranks.size()) {
    return;
  }
  Arrivals all = std::move(arrivals);
  self->state.arrivals.erase(step);
  if (all.failed || all.skipped) {
    give_up(step, all);
  } else {
    publish(step, std::move(all));
  }
}

/// What `work` says, or threw: the disk stream must live on, or no later save would ever be done
/// with.
template <class Work>
Status attempt(const Work& work) {
  try {
    return work();
  } catch (...) {
    return failure(exception_text(std::current_exception()));
  }
}

CheckpointWritten written_event(std::int64_t step, const WrittenCheckpoint& written,
                                const std::vector<ShardWritten>& shards) {
  CheckpointWritten event{step, written.directory, written.size_bytes, 0};
  for (const ShardWritten& shard : shards) {
    event.elapsed_ns = std::max(event.elapsed_ns, shard.elapsed_ns);
  }
  return event;
}

void Index::publish(std::int64_t step, Arrivals arrivals) const {
  std::sort(arrivals.shards.begin(), arrivals.shards.end(),
            [](const ShardWritten& a, const ShardWritten& b) { return a.rank < b.rank; });
  disk->mark({.what = "publish checkpoint", .step = step - 1, .unit = -1, .lane = -1});
  disk->enqueue([me = caf::actor_cast<IndexActor>(self), conductor = self->state.peers.conductor,
                 work = work, step, shards = std::move(arrivals.shards)] {
    const std::int64_t begin_ns = steady_now_ns();
    CheckpointWritten event;
    const Status recorded = attempt([&]() -> Status {
      const auto written = work.publish(step, shards);
      TRAIN_RETURN_IF_ERROR(written);
      event = written_event(step, *written, shards);
      return work.record(step);
    });
    if (recorded.ok()) {
      event.elapsed_ns += steady_now_ns() - begin_ns;
      caf::anon_send(conductor, event);
    } else {
      caf::anon_send(conductor, CheckpointFailed{step, -1, recorded.error().message});
    }
    caf::anon_send(me, CheckpointIndexed{step});
  });
}

void Index::give_up(std::int64_t step, const Arrivals& arrivals) const {
  if (arrivals.failed) {
    self->send(self->state.peers.conductor, *arrivals.failed);
  } else {
    self->send(self->state.peers.conductor, *arrivals.skipped);
  }
  if (!arrivals.failed && arrivals.shards.empty()) {  // nothing was written
    self->send(caf::actor_cast<IndexActor>(self), CheckpointIndexed{step});
    return;
  }
  disk->enqueue([me = caf::actor_cast<IndexActor>(self), conductor = self->state.peers.conductor,
                 work = work, step] {
    const Status discarded = attempt([&]() -> Status {
      work.discard(step);
      return {};
    });
    if (!discarded.ok()) {
      caf::anon_send(conductor, CheckpointFailed{step, -1, discarded.error().message});
    }
    caf::anon_send(me, CheckpointIndexed{step});
  });
}

IndexActor::behavior_type index_behavior(IndexSelf self, std::shared_ptr<kernels::Stream> disk,
                                         IndexWork work) {
  report_exceptions(self, "index", [] { return std::int64_t{-1}; });
  const Index index{self, std::move(disk), std::move(work)};
  return {
      [self](const ConnectIndex& peers) { self->state.peers = peers; },
      [index](const ShardWritten& message) {
        index.of(message.step).shards.push_back(message);
        index.arrived(message.step);
      },
      [index](const CheckpointFailed& message) {
        Arrivals& arrivals = index.of(message.step);
        if (!arrivals.failed) {
          arrivals.failed = message;
        }
        index.arrived(message.step);
      },
      [index](const CheckpointSkipped& message) {
        index.of(message.step).skipped = message;
        index.arrived(message.step);
      },
      [self](const CheckpointIndexed& message) {
        for (const RankActor& rank : self->state.peers.ranks) {
          self->send(rank, message);
        }
      },
  };
}

}  // namespace

IndexActor spawn_index(caf::actor_system& system, std::shared_ptr<kernels::Stream> disk,
                       const IndexWork& work) {
  return system.spawn(index_behavior, std::move(disk), work);
}

}  // namespace train::actors
