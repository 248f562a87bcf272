#include "actors/train/rank_actors.hpp"

#include <fmt/format.h>

#include <caf/all.hpp>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "actors/messages/collective_messages.hpp"
#include "actors/messages/command_messages.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/messages/lane_messages.hpp"
#include "actors/messages/save_messages.hpp"
#include "actors/system/supervision.hpp"
#include "actors/train/lane_driver.hpp"
#include "actors/train/runtime/rank_runtime.hpp"
#include "engine/sharding/buffer_reservations.hpp"

namespace train::actors {
namespace {

struct RankState {
  static inline const char* name = "rank";
  ConnectRank peers;
  std::deque<Command> commands;
  std::optional<Command> current;
  LaneDriver driver;
  std::size_t gradients_ready = 0;
  std::size_t gradients_broadcast = 0;
  bool gathered = false;  // No rank reads this rank's weights any more.
  bool combined = false;  // Loss and norm are enqueued.
  std::size_t updates_enqueued = 0;
  kernels::Event copied;  // The newest snapshot's copy, which updates wait for.
  std::map<caf::actor_addr, std::string> parts;
  std::optional<WaitTable::Line> wait;
  std::optional<WaitTable::Credits> lanes;
  bool failed = false;
};

using engine::CommandKind;
using RankSelf = RankActor::stateful_pointer<RankState>;

/// Work of the handlers, as functions of (self, context, reporting).
struct Rank {
  RankSelf self;
  RankContext context;
  RankReporting reporting;

  [[nodiscard]] RankState& state() const { return self->state; }
  void connect(const ConnectRank& peers) const;
  void accept(const Command& command) const;
  void advance() const;
  void begin(const Command& command) const;
  void start_lanes(const Command& command) const;
  void pump() const;
  void lane_enqueued(const engine::LaneWork& work) const;
  /// Enqueues the work that ends the pass, once all lanes are enqueued.
  void finish_with_collective() const;
  void pass_finished() const;
  void gradients_finished(const Command& command) const;
  void begin_pass(const Command& command) const;
  void begin_training(const Command& step) const;
  void gradient_ready() const;
  void wait_for_reductions() const;
  void update_if_ready() const;
  void update_enqueued() const;
  void report_step(const Command& command) const;
  /// Sends the event made from a command's results, in stream order, and ends the command.
  template <class EventOf>
  void report(const EventOf& event_of) const {
    mark("report");
    context->compute->enqueue([runtime = context.get(), conductor = state().peers.conductor,
                               event_of] { caf::anon_send(conductor, event_of(*runtime)); });
    finish_on_stream(state().current->sequence);
    leave();
  }
  void take_reference(const Command& command) const;
  void add_step_sums(const Command& command) const;
  void mark(const char* what) const;
  void finish_on_stream(std::uint64_t sequence) const;
  void leave() const;
  void fail(const std::string& text, int exit_code, bool consequence = false) const;
};

void Rank::connect(const ConnectRank& peers) const {
  state().peers = peers;
  context->clock.start();
  for (const auto& [name, part] : peers.parts) {
    self->monitor(part);
    state().parts.emplace(part.address(), name);
  }
}

void Rank::accept(const Command& command) const {
  state().commands.push_back(command);
  advance();
  context->board.queue_commands(static_cast<std::int64_t>(state().commands.size()));
}

void Rank::advance() const {
  while (!state().current && !state().commands.empty()) {
    state().current = state().commands.front();
    state().commands.pop_front();
    const Command& opened = *state().current;
    context->board.begin_command({.sequence = opened.sequence,
                                  .name = context->name_of(opened),
                                  .step = context->step_index(opened),
                                  .since_ns = steady_now_ns()},
                                 static_cast<std::int64_t>(state().commands.size()));
    for (const CommandFollower& follower : state().peers.followers) {
      self->send(follower, opened);
    }
    begin(opened);
  }
}

void Rank::begin(const Command& command) const {
  context->trace_begin(command);
  switch (command.kind) {
    case CommandKind::pass:
      return begin_pass(command);
    case CommandKind::snapshot:
      return self->send(state().peers.snapshot,
                        CopyState{command.step, command.replaces, command.write_now});
    case CommandKind::stop:
      state().wait->begin("the last checkpoint to leave memory", -1);
      return self->send(state().peers.snapshot, DrainSnapshots{});
  }
}

void Rank::begin_pass(const Command& command) const {
  const engine::PassPlan& pass = context->pass_of(command);
  if (pass.reduces()) {
    return begin_training(command);
  }
  if (pass.searches()) {
    return start_lanes(command);
  }
  if (pass.rows == engine::LaneRows::texts) {
    context->texts.take({.lengths = command.text_lengths,
                         .tokens = command.text_tokens,
                         .vocab = command.text_vocab,
                         .context = context->engine->options().seq_len});
  }
  if (pass.loss == engine::LossUse::references && command.step == context->references_done) {
    context->compute->enqueue([engine = context->engine.get()] {  // First work of the stream.
      engine->reference().note_weights(engine->state().digest());
    });
  }
  self->send(state().peers.evaluator, RunEvaluation{command.sequence, command.step, pass});
}

void Rank::begin_training(const Command& step) const {
  state().gradients_ready = state().gradients_broadcast = 0;
  const engine::PassPlan& pass = context->pass_of(step);
  state().gathered = context->engine->schedule(pass).gathers().empty();
  state().combined = false;
  state().updates_enqueued = 0;
  if (pass.updates()) {
    save_memory_snapshot(*context, step.step, state().copied);
  }
  const engine::ShardPlan& plan = context->engine->plan();
  const engine::LaneSchedule& lanes = plan.train_lanes();
  for (std::int64_t sync = 0; sync < lanes.syncs(); ++sync) {
    if (lanes.lanes_of(context->rank, sync).count > 0) {
      continue;
    }
    for (const engine::ShardGroup& group : plan.groups()) {
      self->send(
          state().peers.layers[group.first_unit()],
          ReduceWithoutLanes{pass, step.step, step.sequence, static_cast<std::int32_t>(sync)});
    }
  }
  start_lanes(step);
}

void Rank::start_lanes(const Command& command) const {
  const engine::PassPlan& pass = context->pass_of(command);
  const auto lanes = context->lanes(pass).lanes_of(context->rank);
  state().driver.start(static_cast<std::int64_t>(lanes.size()));
  if (lanes.empty() && pass.searches()) {
    return finish_with_collective();
  }
  self->send(state().peers.batch, PrepareLanes{pass, command.step, command.sequence});
  pump();
}

void Rank::pump() const {
  while (const auto work = state().driver.launch()) {
    self->send(state().peers.layers.front(), ForwardLane{*work});
  }
  state().lanes->in_use(state().driver.in_flight());
  if (state().driver.wants_tokens()) {
    state().wait->begin("tokens of a lane", -1);
  } else {
    state().wait->end();
  }
}

void Rank::lane_enqueued(const engine::LaneWork& work) const {
  context->compute->notify(
      [me = caf::actor_cast<RankActor>(self), work] { caf::anon_send(me, LaneFinished{work}); });
  state().driver.enqueued();
  if (state().driver.all_enqueued() && work.pass.searches()) {
    finish_with_collective();
  } else {
    pump();
  }
}

void Rank::finish_with_collective() const {
  const engine::PassPlan& pass = context->pass_of(*state().current);
  const auto kind = engine::last_collective(pass);
  const engine::CollectiveOp* op = kind ? context->collectives.find(pass, *kind) : nullptr;
  if (op == nullptr) {  // A single rank, or no exchange.
    pass_finished();
    return;
  }
  const auto identity = context->identity(*op, state().current->sequence);
  self->request(state().peers.collective, caf::infinite, RequestCollective{identity})
      .then([rank = *this](const CollectiveFinished&) { rank.pass_finished(); },
            [](const caf::error&) {});  // The collective actor's end has the cause.
}

void Rank::pass_finished() const {
  const Command& command = *state().current;
  const engine::PassPlan& pass = context->pass_of(command);
  if (pass.reduces()) {
    return gradients_finished(command);
  }
  if (pass.searches()) {
    return report([command](const RankRuntime& rank) { return nonfinite_event(rank, command); });
  }
  switch (pass.loss) {
    case engine::LossUse::summed:
      return report([command](RankRuntime& rank) { return evaluation_event(rank, command.step); });
    case engine::LossUse::scores:
      return report([command](RankRuntime& rank) { return choices_event(rank, command.step); });
    case engine::LossUse::tokens:
      return report([command](RankRuntime& rank) { return tokens_event(rank, command.step); });
    case engine::LossUse::references:
    case engine::LossUse::compared:
      return take_reference(command);
    case engine::LossUse::block_sums:
      return add_step_sums(command);
  }
}

void Rank::gradients_finished(const Command& command) const {
  const engine::PassPlan& pass = context->pass_of(command);
  mark("loss and clip");
  if (!pass.updates()) {
    context->engine->totals().passes().combine(*context->compute, pass, command.step);
    finish_on_stream(command.sequence);
    return leave();
  }
  context->engine->totals().combine(*context->compute, command.step);
  state().combined = true;
  update_if_ready();
}

void Rank::gradient_ready() const {
  if (++state().gradients_ready == context->engine->plan().groups().size()) {
    wait_for_reductions();  // The norms are sent from the buffers in which they are computed.
    finish_with_collective();
  }
}

void Rank::wait_for_reductions() const {
  if (context->reduce) {
    kernels::Event::record(*context->reduce).wait_on(*context->compute);
  }
}

void Rank::update_if_ready() const {
  // A rank without a lane in the last round does not need its gathered weights, but still reads
  // them: the lanes of the other ranks do not wait for these gathers, so the update has to.
  if (state().gathered && state().combined &&
      state().gradients_broadcast == context->engine->plan().groups().size()) {
    wait_for_reductions();
    const UpdateParameters update{state().current->step, state().copied};
    for (const OptimizerActor& optimizer : state().peers.optimizers) {
      self->send(optimizer, update);
    }
  }
}

void Rank::update_enqueued() const {
  if (++state().updates_enqueued == state().peers.optimizers.size()) {
    context->engine->state().finalize(*context->compute);
    if (engine::uses_pool(context->engine->plan())) {
      self->send(state().peers.buffers, AllGatherWeights{state().current->sequence});
    }
    report_step(*state().current);
  }
}

void Rank::mark(const char* what) const {
  context->compute->mark({.what = what, .step = context->step_index(*state().current)});
}

void Rank::report_step(const Command& command) const {
  mark("report");
  const std::int64_t done = command.step + 1;
  const std::int64_t interval = reporting.digest_interval;
  const bool with_digest =
      done == context->engine->options().total_steps || (interval > 0 && done % interval == 0);
  const auto report = [runtime = context.get(), conductor = state().peers.conductor, command,
                       with_digest] {
    caf::anon_send(conductor, step_event(*runtime, command.step, with_digest));
  };
  // Results of a step stay valid until the next step's host work; its weights do not.
  if (with_digest) {
    context->compute->enqueue(report);
  } else {
    context->compute->notify(report);
  }
  finish_on_stream(command.sequence);
  leave();
}

void Rank::take_reference(const Command& command) const {
  mark("reference");
  context->engine->reference().take(*context->compute);
  if (!context->data->facts().reference.live) {  // A live reference's time belongs to its step.
    context->compute->notify([runtime = context.get()] { runtime->clock.set_apart(); });
  }
  if (context->keep_reference) {
    context->compute->enqueue([me = caf::actor_cast<RankActor>(self), runtime = context.get(),
                               done = command.step + 1] {
      if (const Status status = runtime->keep_reference(runtime->engine->reference(), done);
          !status.ok()) {
        caf::anon_send(me, WorkFailed{status.error().message, status.error().exit_code(), false});
      }
    });
  }
  finish_on_stream(command.sequence);
  leave();
}

void Rank::add_step_sums(const Command& command) const {
  mark("block sums");
  context->engine->totals().lanes().add_step_sums(*context->compute);
  finish_on_stream(command.sequence);
  leave();
}

void Rank::finish_on_stream(std::uint64_t sequence) const {
  context->trace_end();
  context->compute->notify(
      [conductor = state().peers.conductor, sequence, runtime = context.get()] {
        runtime->board.finish_command(sequence);
        caf::anon_send(conductor, CommandFinished{sequence, runtime->rank});
      });
}

void Rank::leave() const {
  state().current.reset();
  advance();
}

void Rank::fail(const std::string& text, int exit_code, bool consequence) const {
  if (state().failed) {
    return;
  }
  state().failed = true;
  self->send(state().peers.conductor, RankFailed{context->rank, text, exit_code, consequence});
  // Cancels the transports at once: every rank's collectives with this rank then fail.
  for (const auto& transport : context->transports) {
    if (transport) {
      transport->cancel(fmt::format("rank {} failed: {}", context->rank, text));
    }
  }
  for (const auto& [address, part] : state().parts) {
    if (const auto handle = caf::actor_cast<caf::actor>(address)) {
      caf::anon_send_exit(handle, caf::exit_reason::user_shutdown);
    }
  }
  self->quit(caf::exit_reason::user_shutdown);
}

void watch_streams(const Rank& rank) {
  const auto tell = [me = caf::actor_cast<RankActor>(rank.self),
                     runtime = rank.context.get()](const kernels::StreamFailure& failure) {
    const std::string text = exception_text(failure.error);
    caf::anon_send(
        me, WorkFailed{fmt::format("{}: {}", runtime->describe(failure.mark), text), 1, false});
  };
  for (kernels::Stream* stream :
       {rank.context->compute.get(), rank.context->copy.get(), rank.context->input.get(),
        rank.context->disk.get(), rank.context->reduce.get()}) {
    if (stream != nullptr) {
      stream->on_failure(tell);
    }
  }
}

RankActor::behavior_type rank_behavior(RankSelf self, const RankContext& context,
                                       RankReporting reporting, WaitTable::Line wait,
                                       WaitTable::Credits lanes) {
  // Not the context itself: CAF keeps this when the actor has ended, and the context knows actors.
  report_exceptions(self, "rank", [self, runtime = context.get()] {
    return self->state.current ? runtime->step_index(*self->state.current) : std::int64_t{-1};
  });
  const Rank rank{self, context, reporting};
  self->state.wait = wait;
  self->state.lanes = lanes;
  watch_streams(rank);
  self->set_down_handler([rank](caf::down_msg& down) {
    if (down.reason == caf::sec::request_receiver_down) {
      return;  // Another part was asked: that part's end has the cause.
    }
    const std::string text = failure_text(down.reason);
    const auto part = rank.state().parts.find(down.source);
    // The peer in another process was lost first: the cause is there.
    const bool consequence = down.reason == caf::exit_reason::remote_link_unreachable;
    rank.fail(text.empty() ? fmt::format("{} ended unasked", part->second) : text, 1, consequence);
  });
  return {
      [rank](const ConnectRank& peers) { rank.connect(peers); },
      [rank](const Command& command) { rank.accept(command); },
      [rank](const LaneReady& message) {
        rank.state().driver.ready(message.work);
        rank.pump();
      },
      [rank](const LaneEnqueued& message) { rank.lane_enqueued(message.work); },
      [rank](const LaneFinished& message) {
        rank.self->send(rank.state().peers.batch, BatchSlotFree{message.work.slot});
        rank.state().driver.finished();
        rank.pump();
      },
      [rank](const GradientReady&) { rank.gradient_ready(); },
      [rank](const GradientBroadcast&) {
        ++rank.state().gradients_broadcast;
        rank.update_if_ready();
      },
      [rank](const GathersFinished& message) {
        TRAIN_CHECK(rank.state().current && rank.state().current->sequence == message.command,
                    "the gathers of command {} end too late", message.command);
        rank.state().gathered = true;
        rank.update_if_ready();
      },
      [rank](const UpdateEnqueued&) { rank.update_enqueued(); },
      [rank](const EvaluationEnqueued&) { rank.finish_with_collective(); },
      [rank](const CopyEnqueued& message) {
        rank.state().copied = message.copied;
        rank.finish_on_stream(rank.state().current->sequence);
        rank.leave();
      },
      [rank](const WriteSnapshot& message) {
        rank.self->send(rank.state().peers.snapshot, message);
      },
      [rank](const ShardOrder& order) { rank.self->send(rank.state().peers.snapshot, order); },
      [rank](const SnapshotsDrained&) {
        rank.state().wait->end();
        rank.self->send(rank.state().peers.conductor, RankStopped{rank.context->rank});
      },
      [rank](const WorkFailed& message) {
        rank.fail(message.text, message.exit_code, message.consequence);
      },
  };
}

}  // namespace

RankActor spawn_rank(caf::actor_system& system, const RankContext& context,
                     const RankReporting& reporting) {
  return system.spawn(rank_behavior, context, reporting, context->waits.add("rank"),
                      context->waits.add_credits("training lanes", LaneDriver::kLanesInFlight));
}

}  // namespace train::actors
