#include "actors/train/rank_actors.hpp"

#include <caf/all.hpp>
#include <cstdint>

#include "actors/messages/connect_messages.hpp"
#include "actors/messages/lane_messages.hpp"
#include "actors/supervision.hpp"

namespace train::actors {
namespace {

struct OptimizerState {
  static inline const char* name = "optimizer";
  std::int64_t step = -1;  // first: the framework would try to build a leading handle from `self`
  RankActor rank;
};

using OptimizerSelf = OptimizerActor::stateful_pointer<OptimizerState>;

OptimizerActor::behavior_type optimizer(OptimizerSelf self, RankContext context,
                                        engine::ParameterGroup group) {
  const bool decay = group == engine::ParameterGroup::decay;
  report_exceptions(self, decay ? "optimizer group decay" : "optimizer group no_decay",
                    [self] { return self->state.step; });
  return {
      [self](const ConnectOptimizer& peers) { self->state.rank = peers.rank; },
      [self, context, group](const UpdateParameters& message) {
        self->state.step = message.step;
        context->engine->updates().update(*context->compute, group, message.step, message.copied);
        self->send(self->state.rank, UpdateEnqueued{message.step});
      },
  };
}

}  // namespace

OptimizerActor spawn_optimizer(caf::actor_system& system, const RankContext& context,
                               engine::ParameterGroup group) {
  return system.spawn(optimizer, context, group);
}

}  // namespace train::actors
