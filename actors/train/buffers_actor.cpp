#include <caf/all.hpp>
#include <deque>
#include <optional>
#include <utility>

#include "actors/messages/collective_messages.hpp"
#include "actors/messages/command_messages.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/system/supervision.hpp"
#include "actors/train/rank_registry.hpp"
#include "engine/sharding/buffer_reservations.hpp"

namespace train::actors {
namespace {

using WeightsPromise = caf::typed_response_promise<WeightsAcquired>;
using GradientBufferPromise = caf::typed_response_promise<GradientBufferAcquired>;

struct BuffersState {
  static inline const char* name = "buffers";
  std::deque<Command> commands;                    // The first one is open.
  std::optional<engine::BufferReservations> book;  // Book of the open command.
  std::deque<std::pair<AcquireWeights, WeightsPromise>> weights_wanted;
  std::deque<std::pair<AcquireGradientBuffer, GradientBufferPromise>> gradients_wanted;
  std::vector<bool> stale;  // By group: its all-gather is under way.
  ConnectBuffers peers;
  bool gathers_told = false;  // The rank has the open command's GathersFinished.
  std::optional<WaitTable::Line> wait;
  std::optional<WaitTable::Credits> gathers;
};

using BuffersSelf = BuffersActor::stateful_pointer<BuffersState>;

struct Buffers {
  BuffersSelf self;
  RankContext context;

  [[nodiscard]] BuffersState& state() const { return self->state; }
  [[nodiscard]] bool is_open(std::uint64_t command) const {
    return !state().commands.empty() && state().commands.front().sequence == command;
  }
  void open(const Command& command) const;
  void begin_front() const;
  void proceed() const;
  void start_gathers() const;
  void answer_weights() const;
  void answer_gradients() const;
  void tell_gathers() const;
  void all_gather(std::uint64_t command) const;
  void close_if_finished() const;
  [[nodiscard]] bool has(const AcquireWeights& reservation) const;
};

void Buffers::open(const Command& command) const {
  if (command.kind != engine::CommandKind::pass) {
    return;
  }
  state().commands.push_back(command);
  if (state().commands.size() == 1) {
    begin_front();
  }
  proceed();  // Proceeds even if the command before is over: no other message may follow.
}

void Buffers::begin_front() const {
  const Command& command = state().commands.front();
  const engine::PassPlan& pass = context->pass_of(command);
  state().book.emplace(context->engine->plan(), context->engine->schedule(pass), pass,
                       context->rank);
  state().gathers_told = false;
  for (const auto& [reservation, promise] : state().weights_wanted) {
    if (reservation.command == command.sequence && reservation.gather >= 0) {
      state().book->want(reservation.gather);
    }
  }
  // Weights are sent only after the previous update has run.
  context->compute->notify([me = caf::actor_cast<BuffersActor>(self), sequence = command.sequence] {
    caf::anon_send(me, WeightsFinalized{sequence});
  });
}

void Buffers::start_gathers() const {
  const Command command = state().commands.front();
  const engine::PassPlan& pass = context->pass_of(command);
  for (const std::int32_t gather : state().book->start_gathers()) {
    const auto& reservation =
        context->engine->schedule(pass).gathers()[static_cast<std::size_t>(gather)];
    const engine::CollectiveOp* op = context->collectives.find(
        pass, engine::CollectiveKind::gather, static_cast<std::int32_t>(reservation.group), gather);
    TRAIN_CHECK(op != nullptr, "no gather {} in command {}", gather, command.sequence);
    self->request(state().peers.collective, caf::infinite,
                  RequestCollective{context->identity(*op, command.sequence)})
        .then([buffers = *this, gather](const CollectiveFinished&) {
          buffers.state().book->gathered(gather);
          buffers.proceed();
        });
  }
}

bool Buffers::has(const AcquireWeights& reservation) const {
  if (reservation.gather < 0) {
    return !state().stale[reservation.group];
  }
  return is_open(reservation.command) && state().book->ready(reservation.gather);
}

void Buffers::answer_weights() const {
  auto& wanted = state().weights_wanted;
  for (auto one = wanted.begin(); one != wanted.end();) {
    if (has(one->first)) {
      one->second.deliver(WeightsAcquired{});
      one = wanted.erase(one);
    } else {
      ++one;
    }
  }
}

void Buffers::answer_gradients() const {
  auto& wanted = state().gradients_wanted;
  for (auto one = wanted.begin(); one != wanted.end();) {
    const AcquireGradientBuffer& reservation = one->first;
    if (is_open(reservation.command) &&
        state().book->gradient_free(reservation.group, reservation.sync,
                                    reservation.gradient_buffer)) {
      one->second.deliver(GradientBufferAcquired{});
      one = wanted.erase(one);
    } else {
      ++one;
    }
  }
}

// Allows the rank's update, which waits for the gathers.
void Buffers::tell_gathers() const {
  const Command& command = state().commands.front();
  if (context->pass_of(command).updates() && state().book->all_gathered() &&
      !std::exchange(state().gathers_told, true)) {
    self->send(state().peers.rank, GathersFinished{command.sequence});
  }
}

void Buffers::proceed() const {
  if (state().commands.empty()) {
    return;
  }
  for (const std::int32_t gather : state().book->take_ended()) {
    context->engine->gathered().keep_for_backward(
        *context->compute, context->pass_of(state().commands.front()), gather);
  }
  start_gathers();
  state().gathers->in_use(state().book->gathers_out());
  answer_weights();
  answer_gradients();
  tell_gathers();
  if (!state().weights_wanted.empty()) {
    state().wait->begin("gathered weights", -1);
  } else if (!state().gradients_wanted.empty()) {
    state().wait->begin("a gradient buffer", -1);
  } else {
    state().wait->end();
  }
  close_if_finished();
}

void Buffers::close_if_finished() const {
  if (state().book->finished() && state().commands.size() > 1) {
    state().commands.pop_front();
    begin_front();
    proceed();
  }
}

void Buffers::all_gather(std::uint64_t command) const {
  const auto& plan = context->engine->plan();
  for (std::size_t group = 0; group < plan.groups().size(); ++group) {
    const engine::CollectiveOp* op = context->collectives.find(
        context->engine->rank_plan().passes().step().back(), engine::CollectiveKind::all_gather,
        static_cast<std::int32_t>(group));
    if (op == nullptr) {
      continue;
    }
    state().stale[group] = true;
    self->request(state().peers.collective, caf::infinite,
                  RequestCollective{context->identity(*op, command)})
        .then([buffers = *this, group](const CollectiveFinished&) {
          buffers.state().stale[group] = false;
          buffers.proceed();
        });
  }
}

BuffersActor::behavior_type buffers_behavior(BuffersSelf self, const RankContext& context,
                                             WaitTable::Line wait, WaitTable::Credits gathers) {
  report_exceptions(self, "buffers", [self, runtime = context.get()] {
    return self->state.commands.empty() ? std::int64_t{-1}
                                        : runtime->step_index(self->state.commands.front());
  });
  self->state.wait = wait;
  self->state.gathers = gathers;
  self->state.stale.assign(context->engine->plan().groups().size(), false);
  const Buffers buffers{self, context};
  return {
      [self](const ConnectBuffers& peers) { self->state.peers = peers; },
      [buffers](const Command& command) { buffers.open(command); },
      [buffers](const WeightsFinalized& message) {
        if (buffers.is_open(message.command)) {  // Else it is over, without gathers.
          buffers.state().book->finalize();
          buffers.proceed();
        }
      },
      [buffers](const AcquireWeights& reservation) -> WeightsPromise {
        auto promise = buffers.self->make_response_promise<WeightsAcquired>();
        buffers.state().weights_wanted.emplace_back(reservation, promise);
        if (reservation.gather >= 0 && buffers.is_open(reservation.command)) {
          buffers.state().book->want(reservation.gather);
        }
        buffers.proceed();
        return promise;
      },
      [buffers](const AcquireGradientBuffer& reservation) -> GradientBufferPromise {
        auto promise = buffers.self->make_response_promise<GradientBufferAcquired>();
        buffers.state().gradients_wanted.emplace_back(reservation, promise);
        buffers.proceed();
        return promise;
      },
      [buffers](const VisitEnqueued& message) {
        TRAIN_CHECK(buffers.is_open(message.command), "command {} is not open", message.command);
        buffers.state().book->visited(message.visit);
        buffers.proceed();
      },
      [buffers](const GradientPacked& message) {
        if (buffers.is_open(message.command)) {
          buffers.state().book->packed(message.group, message.sync);
          buffers.proceed();
        }
      },
      [buffers](const AllGatherWeights& message) { buffers.all_gather(message.command); },
  };
}

}  // namespace

/// Lends shared buffers to layers: gathered weights, gradient buffers. Starts gathers in the order
/// of the schedule (BufferReservations), all-gathers weights after an update, answers reservations.
///
///   Command -> (WeightsFinalized: the stream has run all earlier work) gathers are requested;
///   AcquireWeights -> answered when the weights have arrived, AcquireGradientBuffer -> when the
///   gradient buffer may be written; VisitEnqueued, GradientPacked -> reservations end, further
///   gathers start; AllGatherWeights -> one all-gather per group is requested; later reservations
///   of the group wait for it. GathersFinished goes to the rank when the last gather of a training
///   step has ended.
/// Commands are processed one at a time. Credits: gather_credits, prefetch, gradient buffers
/// (EX-4).
void add_buffers(RankAssembly& rank) {
  WaitTable& waits = rank.context()->waits;
  const engine::ShardPlan& plan = rank.context()->engine->plan();
  const WaitTable::Line wait = waits.add("buffers");
  const BuffersActor actor = rank.add(
      "buffers", rank.system().spawn(buffers_behavior, rank.context(), wait,
                                     waits.add_credits("gather buffers", plan.gather_buffers())));
  if (engine::uses_pool(plan)) {
    rank.follow_commands(actor);
  }
  rank.when_spawned([&rank, actor] {
    caf::anon_send(actor, ConnectBuffers{rank.the<CollectiveActor>(), rank.rank()});
  });
}

}  // namespace train::actors
