#include <caf/all.hpp>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "actors/messages/connect_messages.hpp"
#include "actors/messages/lane_messages.hpp"
#include "actors/system/supervision.hpp"
#include "actors/train/rank_registry.hpp"

namespace train::actors {
namespace {

struct BatchState {
  static inline const char* name = "batch";
  ConnectBatch peers;
  std::deque<engine::LaneWork> wanted;
  std::vector<std::int32_t> free_slots;
  std::optional<WaitTable::Line> wait;
  std::optional<WaitTable::Credits> slots;
  std::int64_t step = -1;
};

using BatchSelf = BatchActor::stateful_pointer<BatchState>;

void read_on_stream(BatchSelf self, const RankContext& context, const engine::LaneWork& work) {
  context->input->mark({.what = "read tokens",
                        .step = work.step,
                        .unit = -1,
                        .lane = static_cast<std::int32_t>(work.lane)});
  // Raw pointer to the runtime: its streams are drained before its destruction.
  context->input->enqueue([peers = self->state.peers, runtime = context.get(), work] {
    if (const Status status = runtime->read_lane(work); !status.ok()) {
      caf::anon_send(peers.rank,
                     WorkFailed{status.error().message, status.error().exit_code(), false});
    } else if (!work.pass.has_backward()) {
      caf::anon_send(peers.evaluator, LaneReady{work});
    } else {
      caf::anon_send(peers.rank, LaneReady{work});
    }
  });
}

void read_wanted(BatchSelf self, const RankContext& context) {
  BatchState& state = self->state;
  while (!state.wanted.empty() && !state.free_slots.empty()) {
    engine::LaneWork work = state.wanted.front();
    state.wanted.pop_front();
    work.slot = state.free_slots.back();
    state.free_slots.pop_back();
    state.step = work.step;
    read_on_stream(self, context, work);
  }
  state.slots->in_use(context->engine->options().lane_slots -
                      static_cast<std::int64_t>(state.free_slots.size()));
  if (state.wanted.empty()) {
    state.wait->end();
  } else {
    state.wait->begin("a free lane slot", state.wanted.front().step);
  }
}

void want_lanes(BatchSelf self, const RankContext& context, const PrepareLanes& message) {
  const engine::LaneSchedule& lanes = context->lanes(message.pass);
  for (std::int64_t round = 0; round < lanes.rounds(); ++round) {
    if (const auto lane = lanes.lane(context->rank, round)) {
      self->state.wanted.push_back({.pass = message.pass,
                                    .step = message.step,
                                    .lane = *lane,
                                    .slot = -1,
                                    .round = round,
                                    .command = message.command,
                                    .text = message.pass.rows == engine::LaneRows::texts
                                                ? context->texts.of(*lane)
                                                : engine::LaneText()});
    }
  }
  read_wanted(self, context);
}

BatchActor::behavior_type batch(BatchSelf self, const RankContext& context, WaitTable::Line wait,
                                WaitTable::Credits slots) {
  report_exceptions(self, "batch", [self] { return self->state.step; });
  self->state.wait = wait;
  self->state.slots = slots;
  for (std::int32_t slot = context->engine->options().lane_slots; slot-- > 0;) {
    self->state.free_slots.push_back(slot);
  }
  return {
      [self](const ConnectBatch& peers) { self->state.peers = peers; },
      [self, context](const PrepareLanes& message) { want_lanes(self, context, message); },
      [self, context](const BatchSlotFree& message) {
        self->state.free_slots.push_back(message.slot);
        read_wanted(self, context);
      },
  };
}

}  // namespace

/// Reads the tokens of lanes, in the order of commands and lanes, as slots become free.
///
///   PrepareLanes -> LaneReady for each lane, to the rank (training, search) or the evaluator.
///   BatchSlotFree -> the slot may be refilled: the credits that bound the queue.
/// Reading happens on the input stream. Invalid data (a token outside the vocabulary) is WorkFailed
/// to the rank, with the user's exit code.
void add_batch(RankAssembly& rank) {
  RankRuntime& runtime = *rank.context();
  const WaitTable::Line wait = runtime.waits.add("batch");
  const BatchActor actor = rank.add(
      "batch", rank.system().spawn(
                   batch, rank.context(), wait,
                   runtime.waits.add_credits("lane slots", runtime.engine->options().lane_slots)));
  rank.when_spawned([&rank, actor] {
    caf::anon_send(actor, ConnectBatch{rank.rank(), rank.the<EvaluatorActor>()});
  });
}

}  // namespace train::actors
