#include <caf/all.hpp>
#include <cstdint>
#include <optional>

#include "actors/messages/connect_messages.hpp"
#include "actors/messages/lane_messages.hpp"
#include "actors/system/supervision.hpp"
#include "actors/train/lane_driver.hpp"
#include "actors/train/rank_registry.hpp"

namespace train::actors {
namespace {

struct EvaluatorState {
  static inline const char* name = "evaluator";
  ConnectEvaluator peers;
  LaneDriver driver;
  RunEvaluation current;
  std::optional<WaitTable::Line> wait;
  std::optional<WaitTable::Credits> lanes;
};

using EvaluatorSelf = EvaluatorActor::stateful_pointer<EvaluatorState>;

void pump(EvaluatorSelf self) {
  while (const auto work = self->state.driver.launch()) {
    self->send(self->state.peers.first_layer, ForwardLane{*work});
  }
  self->state.lanes->in_use(self->state.driver.in_flight());
  if (self->state.driver.wants_tokens()) {
    self->state.wait->begin("tokens of an evaluation lane", self->state.current.step);
  } else {
    self->state.wait->end();
  }
}

void lane_enqueued(EvaluatorSelf self, const RankContext& context, const engine::LaneWork& work) {
  context->compute->notify([me = caf::actor_cast<EvaluatorActor>(self), work] {
    caf::anon_send(me, LaneFinished{work});
  });
  self->state.driver.enqueued();
  if (self->state.driver.all_enqueued()) {
    self->state.wait->end();
    self->send(self->state.peers.rank, EvaluationEnqueued{self->state.current.sequence});
  } else {
    pump(self);
  }
}

EvaluatorActor::behavior_type evaluator(EvaluatorSelf self, const RankContext& context,
                                        WaitTable::Line wait, WaitTable::Credits credits) {
  report_exceptions(self, "evaluator", [self] { return self->state.current.step - 1; });
  self->state.wait = wait;
  self->state.lanes = credits;
  return {
      [self](const ConnectEvaluator& peers) { self->state.peers = peers; },
      [self, context](const RunEvaluation& message) {
        self->state.current = message;
        const auto lanes = context->lanes(message.pass).lanes_of(context->rank);
        self->state.driver.start(static_cast<std::int64_t>(lanes.size()));
        if (lanes.empty()) {  // With more ranks than lanes: collectives only.
          self->send(self->state.peers.rank, EvaluationEnqueued{message.sequence});
          return;
        }
        // A lane has the index of its step; an evaluation comes after a step.
        const std::int64_t after = message.pass.after_step() ? 1 : 0;
        self->send(self->state.peers.batch,
                   PrepareLanes{message.pass, message.step - after, message.sequence});
        pump(self);
      },
      [self](const LaneReady& message) {
        self->state.driver.ready(message.work);
        pump(self);
      },
      [self, context](const LaneEnqueued& message) { lane_enqueued(self, context, message.work); },
      [self](const LaneFinished& message) {
        self->send(self->state.peers.batch, BatchSlotFree{message.work.slot});
        self->state.driver.finished();
        pump(self);
      },
  };
}

}  // namespace

/// Sends the evaluation lanes through the chain of layer shards.
///
///   RunEvaluation -> PrepareLanes to the batch actor; LaneReady -> ForwardLane to the first layer,
///   as credits allow; when all lanes are on the stream: EvaluationEnqueued to the rank.
/// Dies of: a broken invariant.
void add_evaluator(RankAssembly& rank) {
  WaitTable& waits = rank.context()->waits;
  const WaitTable::Line wait = waits.add("evaluator");
  const EvaluatorActor actor = rank.add(
      "evaluator",
      rank.system().spawn(evaluator, rank.context(), wait,
                          waits.add_credits("evaluation lanes", LaneDriver::kLanesInFlight)));
  rank.when_spawned([&rank, actor] {
    caf::anon_send(actor, ConnectEvaluator{rank.rank(), rank.the<BatchActor>(),
                                           rank.all<LayerActor>().front()});
  });
}

}  // namespace train::actors
