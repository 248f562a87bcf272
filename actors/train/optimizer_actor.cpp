#include <caf/all.hpp>
#include <cstdint>
#include <string>

#include "actors/messages/connect_messages.hpp"
#include "actors/messages/lane_messages.hpp"
#include "actors/system/supervision.hpp"
#include "actors/train/rank_registry.hpp"

namespace train::actors {
namespace {

struct OptimizerState {
  static inline const char* name = "optimizer";
  std::int64_t step = -1;  // First: the framework would try to build a leading handle from `self`.
  RankActor rank;
};

using OptimizerSelf = OptimizerActor::stateful_pointer<OptimizerState>;

std::string name_of(engine::ParameterGroup group) {
  return group == engine::ParameterGroup::decay ? "optimizer group decay"
                                                : "optimizer group no_decay";
}

OptimizerActor::behavior_type optimizer(OptimizerSelf self, const RankContext& context,
                                        engine::ParameterGroup group) {
  report_exceptions(
      self, [group] { return name_of(group); }, [self] { return self->state.step; });
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

/// Optimizer group (decay or no-decay): UpdateParameters enqueues the group's fused update on the
/// compute stream; the rank gets UpdateEnqueued. Dies of: a broken invariant while enqueuing.
void add_optimizers(RankAssembly& rank) {
  for (const auto group : {engine::ParameterGroup::decay, engine::ParameterGroup::no_decay}) {
    const OptimizerActor actor =
        rank.add(name_of(group), rank.system().spawn(optimizer, rank.context(), group));
    caf::anon_send(actor, ConnectOptimizer{rank.rank()});
  }
}

}  // namespace train::actors
