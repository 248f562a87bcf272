#include "actors/layer_actor.hpp"

#include <caf/all.hpp>
#include <cstdint>

#include "actors/messages/collective_messages.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/messages/lane_messages.hpp"
#include "actors/supervision.hpp"

namespace train::actors {
namespace {

struct LayerState {
  static inline const char* name = "layer";
  ConnectLayer peers;
  std::int64_t step = -1;
};

using LayerSelf = LayerActor::stateful_pointer<LayerState>;

void finish_lane(LayerSelf self, const engine::LaneWork& work) {
  if (work.purpose == engine::LanePurpose::evaluate) {
    self->send(self->state.peers.evaluator, LaneEnqueued{work});
  } else {
    self->send(self->state.peers.rank, LaneEnqueued{work});
  }
}

void reduce_gradient(LayerSelf self, const RankContext& context, std::size_t unit,
                     const engine::LaneWork& work) {
  const engine::CommandShape command{
      .kind = engine::CommandKind::train_step,
      .units = static_cast<std::int32_t>(context->engine->unit_count())};
  const auto identity = identity_of(context->generation, work.command, command,
                                    engine::Channel::reduce, static_cast<std::int32_t>(unit));
  self->request(self->state.peers.collective, caf::infinite, RequestCollective{identity})
      .then([self, context, unit, step = work.step](const CollectiveFinished&) {
        context->engine->finish_gradient(*context->compute, unit);
        self->send(self->state.peers.rank, GradientReady{step, static_cast<std::uint32_t>(unit)});
      });
}

void forward(LayerSelf self, const RankContext& context, std::size_t unit,
             const engine::LaneWork& work) {
  self->state.step = work.step;
  context->engine->forward(*context->compute, unit, work);
  if (self->state.peers.next) {
    self->send(self->state.peers.next, ForwardLane{work});
  } else if (work.purpose == engine::LanePurpose::evaluate) {
    finish_lane(self, work);
  } else {
    self->send(self, BackwardLane{work});
  }
}

void backward(LayerSelf self, const RankContext& context, std::size_t unit,
              const engine::LaneWork& work) {
  self->state.step = work.step;
  context->engine->backward(*context->compute, unit, work);
  if (self->state.peers.previous) {
    self->send(self->state.peers.previous, BackwardLane{work});
  } else {
    finish_lane(self, work);
  }
  const bool last = work.lane + 1 == context->engine->options().batch.lanes;
  if (last && work.purpose == engine::LanePurpose::train) {
    reduce_gradient(self, context, unit, work);
  }
}

LayerActor::behavior_type layer(LayerSelf self, RankContext context, std::size_t unit) {
  report_exceptions(self, context->engine->unit_name(unit), [self] { return self->state.step; });
  return {
      [self](const ConnectLayer& peers) { self->state.peers = peers; },
      [self, context, unit](const ForwardLane& message) {
        forward(self, context, unit, message.work);
      },
      [self, context, unit](const BackwardLane& message) {
        backward(self, context, unit, message.work);
      },
  };
}

}  // namespace

LayerActor spawn_layer(caf::actor_system& system, const RankContext& context, std::size_t unit) {
  return system.spawn(layer, context, unit);
}

}  // namespace train::actors
