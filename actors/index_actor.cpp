#include "actors/index_actor.hpp"

#include <caf/all.hpp>

#include "actors/messages/connect_messages.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/messages/lane_messages.hpp"
#include "actors/supervision.hpp"

namespace train::actors {
namespace {

struct IndexState {
  static inline const char* name = "index";
  ConnectIndex peers;
};

using IndexSelf = IndexActor::stateful_pointer<IndexState>;

IndexActor::behavior_type index_behavior(IndexSelf self, RankContext context,
                                         RecordCheckpoint record) {
  report_exceptions(self, "index", [] { return std::int64_t{-1}; });
  return {
      [self](const ConnectIndex& peers) { self->state.peers = peers; },
      [self, context, record](const CheckpointWritten& message) {
        context->disk->enqueue([me = caf::actor_cast<IndexActor>(self), peers = self->state.peers,
                                record, message] {
          if (const Status status = record(message.step); status.ok()) {
            caf::anon_send(peers.conductor, message);
          } else {
            caf::anon_send(peers.conductor, CheckpointFailed{message.step, status.error().message});
          }
          caf::anon_send(me, CheckpointIndexed{message.step});
        });
      },
      [self](const CheckpointIndexed& message) { self->send(self->state.peers.snapshot, message); },
  };
}

}  // namespace

IndexActor spawn_index(caf::actor_system& system, const RankContext& context,
                       const RecordCheckpoint& record) {
  return system.spawn(index_behavior, context, record);
}

}  // namespace train::actors
