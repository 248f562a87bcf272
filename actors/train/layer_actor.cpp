#include <caf/all.hpp>
#include <cstdint>
#include <utility>
#include <vector>

#include "actors/messages/collective_messages.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/messages/lane_messages.hpp"
#include "actors/system/supervision.hpp"
#include "actors/train/rank_registry.hpp"
#include "engine/rank/exec/rank_engine.hpp"
#include "engine/sharding/buffer_reservations.hpp"

namespace train::actors {
namespace {

struct LayerState {
  static inline const char* name = "layer";
  ConnectLayer peers;
  std::int64_t step = -1;
};

using LayerSelf = LayerActor::stateful_pointer<LayerState>;
using engine::CollectiveKind;
using engine::LaneWork;

/// Work of the handlers, as functions of (self, context, unit).
struct Layer {
  LayerSelf self;
  RankContext context;
  std::size_t unit = 0;
  std::size_t group = 0;
  bool pools_weights = false;
  bool pools_gradients = false;

  [[nodiscard]] const ConnectLayer& peers() const { return self->state.peers; }
  [[nodiscard]] const engine::ShardPlan& plan() const { return context->engine->plan(); }
  /// True for the unit whose backward pass completes its group; it answers for the group.
  [[nodiscard]] bool completes_group() const { return plan().groups()[group].first_unit() == unit; }
  [[nodiscard]] std::size_t visit_of(const LaneWork& work, bool backward) const;

  template <class Then>
  void with_weights(const LaneWork& work, std::size_t visit, Then then) const;
  template <class Then>
  void with_gradient_buffer(const LaneWork& work, std::size_t visit, Then then) const;
  void report_visit(const LaneWork& work, std::size_t visit) const;
  void forward(const LaneWork& work) const;
  void enqueue_forward(const LaneWork& work, std::size_t visit) const;
  void backward(const LaneWork& work) const;
  void enqueue_backward(const LaneWork& work, std::size_t visit) const;
  void finish_lane(const LaneWork& work) const;
  void reduce_if_last(const LaneWork& work) const;
  void reduce(const LaneWork& work, std::int64_t sync) const;
  void reduced(const LaneWork& work) const;
};

std::size_t Layer::visit_of(const LaneWork& work, bool backward) const {
  return context->engine->schedule(work.pass).visit(work.round, backward, unit);
}

template <class Then>
void Layer::with_weights(const LaneWork& work, std::size_t visit, Then then) const {
  const std::int32_t gather = context->engine->schedule(work.pass).gather_of(visit);
  // A visit below all trained layers reads no weights.
  const bool reads = gather >= 0 || plan().resident(group);
  if (!pools_weights || !reads) {
    then();
    return;
  }
  self->request(peers().buffers, caf::infinite,
                AcquireWeights{work.command, static_cast<std::uint32_t>(group), gather})
      .then([then = std::move(then)](const WeightsAcquired&) { then(); });
}

template <class Then>
void Layer::with_gradient_buffer(const LaneWork& work, std::size_t visit, Then then) const {
  if (!pools_gradients) {
    then();
    return;
  }
  const std::int32_t gradient_buffer =
      context->engine->schedule(work.pass).gradient_buffer_of(visit);
  const auto sync = static_cast<std::int32_t>(plan().train_lanes().sync_of(work.round));
  self->request(peers().buffers, caf::infinite,
                AcquireGradientBuffer{work.command, static_cast<std::uint32_t>(group), sync,
                                      gradient_buffer})
      .then([then = std::move(then)](const GradientBufferAcquired&) { then(); });
}

void Layer::report_visit(const LaneWork& work, std::size_t visit) const {
  const engine::BufferSchedule& schedule = context->engine->schedule(work.pass);
  if (schedule.gather_of(visit) >= 0 ||
      (pools_gradients && schedule.gradient_buffer_of(visit) >= 0)) {
    self->send(peers().buffers, VisitEnqueued{work.command, static_cast<std::uint32_t>(visit)});
  }
}

void Layer::finish_lane(const LaneWork& work) const {
  if (!work.pass.has_backward()) {
    self->send(peers().evaluator, LaneEnqueued{work});
  } else {
    self->send(peers().rank, LaneEnqueued{work});
  }
}

void Layer::forward(const LaneWork& work) const {
  self->state.step = work.step;
  const std::size_t visit = visit_of(work, false);
  with_weights(work, visit, [layer = *this, work, visit] { layer.enqueue_forward(work, visit); });
}

void Layer::enqueue_forward(const LaneWork& work, std::size_t visit) const {
  const engine::BufferSchedule& schedule = context->engine->schedule(work.pass);
  // The head's forward pass writes the gradient of its weights, and so already needs the gradient
  // buffer.
  const bool writes_gradient = !peers().next && work.pass.has_backward();
  const std::size_t gradient_visit = writes_gradient ? visit_of(work, true) : visit;
  const engine::UnitBuffers place{
      .gather = schedule.gather_of(visit),
      .gradient_buffer = writes_gradient ? schedule.gradient_buffer_of(gradient_visit) : -1};
  const auto enqueue = [layer = *this, work, visit, place] {
    layer.context->engine->lanes().forward(*layer.context->compute, layer.unit, work, place);
    layer.report_visit(work, visit);
    if (layer.peers().next) {
      layer.self->send(layer.peers().next, ForwardLane{work});
    } else if (!work.pass.has_backward()) {
      layer.finish_lane(work);
    } else {
      layer.self->send(layer.self, BackwardLane{work});
    }
  };
  if (writes_gradient) {
    with_gradient_buffer(work, gradient_visit, enqueue);
  } else {
    enqueue();
  }
}

void Layer::backward(const LaneWork& work) const {
  self->state.step = work.step;
  const std::size_t visit = visit_of(work, true);
  with_weights(work, visit, [layer = *this, work, visit] {
    layer.with_gradient_buffer(work, visit,
                               [layer, work, visit] { layer.enqueue_backward(work, visit); });
  });
}

void Layer::enqueue_backward(const LaneWork& work, std::size_t visit) const {
  const engine::BufferSchedule& schedule = context->engine->schedule(work.pass);
  const engine::UnitBuffers place{.gather = schedule.gather_of(visit),
                                  .gradient_buffer = schedule.gradient_buffer_of(visit)};
  context->engine->lanes().backward(*context->compute, unit, work, place);
  report_visit(work, visit);
  if (peers().previous) {
    self->send(peers().previous, BackwardLane{work});
  } else {
    finish_lane(work);
  }
  if (work.pass.reduces() && completes_group()) {
    reduce_if_last(work);
  }
}

void Layer::reduce_if_last(const LaneWork& work) const {
  const engine::LaneSchedule& lanes = plan().train_lanes();
  const std::int64_t sync = lanes.sync_of(work.round);
  if (work.round == lanes.last_round_of(context->rank, sync)) {
    reduce(work, sync);
  }
}

// `work`: any lane of the command.
void Layer::reduce(const LaneWork& work, std::int64_t sync) const {
  self->state.step = work.step;
  const bool last = sync + 1 == plan().train_lanes().syncs();
  const engine::CollectiveOp* op =
      context->collectives.find(work.pass, CollectiveKind::reduce, static_cast<std::int32_t>(group),
                                static_cast<std::int32_t>(sync));
  if (op == nullptr) {  // A single rank.
    if (last) {
      reduced(work);
    }
    return;
  }
  self->request(peers().collective, caf::infinite,
                RequestCollective{context->identity(*op, work.command),
                                  kernels::Event::record(*context->compute)})
      .then([layer = *this, work, last](const CollectiveFinished&) {
        if (last) {
          layer.reduced(work);
        }
      });
}

void Layer::reduced(const LaneWork& work) const {
  kernels::Stream& stream = context->reductions();
  const std::int64_t step = work.step;
  stream.mark({.what = "norm", .step = step, .unit = static_cast<std::int32_t>(unit)});
  context->engine->gradients().finish(stream, group, work);
  const auto number = static_cast<std::uint32_t>(group);
  self->send(peers().rank, GradientReady{step, number});
  if (!work.pass.updates()) {
    return;  // The gradient stays in place; no other rank reads it.
  }
  const engine::CollectiveOp* op = context->collectives.find(work.pass, CollectiveKind::broadcast,
                                                             static_cast<std::int32_t>(group));
  if (op == nullptr) {
    self->send(peers().rank, GradientBroadcast{step, number});
    return;
  }
  self->request(peers().collective, caf::infinite,
                RequestCollective{context->identity(*op, work.command)})
      .then([layer = *this, step, number](const CollectiveFinished&) {
        layer.self->send(layer.peers().rank, GradientBroadcast{step, number});
      });
}

LayerActor::behavior_type layer_behavior(LayerSelf self, const RankContext& context,
                                         std::size_t unit) {
  // Not the context itself: CAF keeps this when the actor has ended, and the context knows actors.
  report_exceptions(
      self, [engine = context->engine.get(), unit] { return engine->unit_name(unit); },
      [self] { return self->state.step; });
  const engine::ShardPlan& plan = context->engine->plan();
  const std::size_t group = plan.group_of(unit);
  const Layer layer{self,
                    context,
                    unit,
                    group,
                    engine::pools_weights(plan, group),
                    engine::pools_gradients(plan)};
  return {
      [self](const ConnectLayer& peers) { self->state.peers = peers; },
      [layer](const ForwardLane& message) { layer.forward(message.work); },
      [layer](const BackwardLane& message) { layer.backward(message.work); },
      [layer](const ReduceWithoutLanes& message) {
        layer.reduce({.pass = message.pass, .step = message.step, .command = message.command},
                     message.sync);
      },
  };
}

}  // namespace

/// Sharding unit (embedding, block or head): enqueues its kernels on the compute stream, lane by
/// lane, and forwards the lane; accumulates its gradients over lanes.
///
///   ForwardLane -> kernels, ForwardLane to the next unit. At the head: a training lane turns round
///     (BackwardLane to the unit before), an evaluation lane ends (LaneEnqueued to the evaluator).
///   BackwardLane -> kernels, BackwardLane to the unit before; at the embedding LaneEnqueued to the
///     rank. After the last lane of a step: the unit's reduce collective, then GradientReady.
/// Dies of: a broken invariant or a device error while enqueuing; the rank is told the unit and
/// step.
void add_layers(RankAssembly& rank) {
  const engine::RankEngine& engine = *rank.context()->engine;
  std::vector<LayerActor> layers;
  for (std::size_t unit = 0; unit < engine.unit_count(); ++unit) {
    layers.push_back(rank.add(engine.unit_name(unit),
                              rank.system().spawn(layer_behavior, rank.context(), unit)));
  }
  rank.when_spawned([&rank, layers] {
    for (std::size_t unit = 0; unit < layers.size(); ++unit) {
      ConnectLayer peers{.previous = {},
                         .next = {},
                         .rank = rank.rank(),
                         .evaluator = rank.the<EvaluatorActor>(),
                         .collective = rank.the<CollectiveActor>(),
                         .buffers = rank.the<BuffersActor>()};
      if (unit > 0) {
        peers.previous = layers[unit - 1];
      }
      if (unit + 1 < layers.size()) {
        peers.next = layers[unit + 1];
      }
      caf::anon_send(layers[unit], peers);
    }
  });
}

}  // namespace train::actors
