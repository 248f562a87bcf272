#include "actors/collective_actor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <caf/all.hpp>
#include <deque>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "actors/messages/collective_messages.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/messages/lane_messages.hpp"
#include "actors/messages/lease_messages.hpp"
#include "actors/supervision.hpp"

namespace train::actors {
namespace {

using Promise = caf::typed_response_promise<CollectiveFinished>;
using engine::CollectiveIdentity;
using engine::CollectiveOp;

enum class Progress : std::uint8_t { due, packing, packed, moving };

struct Operation {
  CollectiveIdentity identity;
  CollectiveOp op;
  kernels::Event written;
  Progress progress = Progress::due;
  std::int64_t begin_ns = 0;  // for the profile: handed to the transport
  std::uint64_t sent_bytes = 0;
};

struct Wanted {
  Promise promise;
  std::int64_t requested_ns = 0;
  kernels::Event written;
};

struct ChannelState {
  std::deque<Operation> operations;  // due or under way, in order; gone when the bytes have arrived
  // Slots in use: from pack() until what unpack() enqueued has run. An operation has the slot of
  // its index in its command, so the first ones of a command may have to wait for the last of
  // another.
  std::array<bool, engine::kStagingSlots> staged{};
};

struct CollectiveState {
  static inline const char* name = "collective";
  std::optional<engine::ChannelOrder> order;
  std::map<std::string, Wanted> wanted;                   // by the identity's text
  std::map<std::uint64_t, engine::CommandKind> commands;  // begun; the newest few
  std::array<ChannelState, engine::kChannelCount> channels;
  ConnectCollective peers;
  std::optional<WaitBoard::Line> wait;
};

using CollectiveSelf = CollectiveActor::stateful_pointer<CollectiveState>;

struct Collective {
  CollectiveSelf self;
  RankContext context;

  [[nodiscard]] CollectiveState& state() const { return self->state; }
  [[nodiscard]] ChannelState& channel(engine::Channel which) const {
    return state().channels[static_cast<std::size_t>(which)];
  }
  [[nodiscard]] CollectiveOp op_of(const CollectiveIdentity& identity) const;
  void take_due(const Result<engine::ChannelOrder::Due>& due) const;
  [[nodiscard]] kernels::Stream& stream_of(const CollectiveOp& op) const;
  void start(engine::Channel which) const;
  void pack(Operation& operation) const;
  void packed(const CollectiveIdentity& identity) const;
  void move(engine::Channel which) const;
  void moved(const BytesMoved& message) const;
  void note_waiting() const;
  void mark(kernels::Stream& stream, const char* what, const CollectiveOp& op) const;
  void record(const Operation& operation, std::int64_t requested_ns) const;
};

CollectiveOp Collective::op_of(const CollectiveIdentity& identity) const {
  const auto command = state().commands.find(static_cast<std::uint64_t>(identity.command));
  TRAIN_CHECK(command != state().commands.end(), "{} was never begun", to_string(identity));
  for (const CollectiveOp& op : context->collectives.of(command->second)) {
    if (op.channel == identity.channel && op.index == identity.index) {
      return op;
    }
  }
  TRAIN_CHECK(false, "{} is not in its command", to_string(identity));
  return {};
}

void Collective::take_due(const Result<engine::ChannelOrder::Due>& due) const {
  if (!due) {
    throw std::runtime_error(due.error().message);
  }
  for (const CollectiveIdentity& identity : *due) {
    channel(identity.channel)
        .operations.push_back(
            {identity, op_of(identity), state().wanted.at(to_string(identity)).written});
  }
  for (std::size_t which = 0; which < engine::kChannelCount; ++which) {
    start(static_cast<engine::Channel>(which));
  }
  note_waiting();
}

// Behind the lanes that the compute stream has ahead of it, a sum would keep its staging slot, and
// the next gradient would wait to be packed: the channel would stand still until the end of the
// backward pass.
kernels::Stream& Collective::stream_of(const CollectiveOp& op) const {
  return op.channel == engine::Channel::reduce ? context->reductions() : *context->compute;
}

// Operations enter their staging slots in the order of the channel.
void Collective::start(engine::Channel which) const {
  for (Operation& operation : channel(which).operations) {
    if (operation.progress != Progress::due) {
      continue;
    }
    bool& staged = channel(which).staged[operation.op.index % engine::kStagingSlots];
    if (staged) {
      break;
    }
    staged = true;
    pack(operation);
  }
  move(which);
}

void Collective::pack(Operation& operation) const {
  const bool at_once = context->engine->packed_already(operation.op);
  kernels::Stream& stream = stream_of(operation.op);
  operation.written.wait_on(stream);
  mark(stream, "pack", operation.op);
  context->engine->pack(stream, operation.op);
  operation.progress = at_once ? Progress::packed : Progress::packing;
  if (!at_once) {
    stream.enqueue([me = caf::actor_cast<CollectiveActor>(self), identity = operation.identity] {
      caf::anon_send(me, OperationPacked{identity});
    });
  }
}

void Collective::packed(const CollectiveIdentity& identity) const {
  for (Operation& operation : channel(identity.channel).operations) {
    if (operation.identity.command == identity.command &&
        operation.identity.index == identity.index) {
      operation.progress = Progress::packed;
      if (operation.op.kind == engine::CollectiveKind::reduce) {
        self->send(
            state().peers.buffers,
            GradientPacked{static_cast<std::uint64_t>(identity.command),
                           static_cast<std::uint32_t>(operation.op.group), operation.op.part});
      }
    }
  }
  move(identity.channel);
}

// The transport runs exchanges in call order, so none may overtake one that is still packing.
void Collective::move(engine::Channel which) const {
  for (Operation& operation : channel(which).operations) {
    if (operation.progress == Progress::moving) {
      continue;
    }
    if (operation.progress != Progress::packed) {
      break;
    }
    operation.progress = Progress::moving;
    engine::Collectives& transport = *context->transports[static_cast<std::size_t>(which)];
    engine::Transfer transfer = context->engine->transfer(operation.op);
    if (context->trace) {
      operation.begin_ns = steady_now_ns();
      operation.sent_bytes = transfer.sent_bytes(context->rank);
    }
    transport.exchange(
        operation.identity, std::move(transfer),
        [me = caf::actor_cast<CollectiveActor>(self),
         identity = operation.identity](const Status& status) {
          caf::anon_send(
              me, BytesMoved{identity, status.ok() ? std::string() : status.error().message});
        });
  }
}

void Collective::moved(const BytesMoved& message) const {
  auto& operations = channel(message.identity.channel).operations;
  TRAIN_CHECK(!operations.empty(), "nobody waits for {}", to_string(message.identity));
  const Operation operation = operations.front();
  if (!message.failure.empty()) {
    // Another rank is gone, or says otherwise: this one ends, but it may not be the cause.
    self->send(state().peers.rank,
               WorkFailed{fmt::format("{} ({}): {}", operation.op.text(context->engine->plan()),
                                      to_string(message.identity), message.failure),
                          1, true});
    return;
  }
  TRAIN_CHECK(operation.identity.command == message.identity.command &&
                  operation.identity.index == message.identity.index,
              "{} before {}", to_string(message.identity), to_string(operation.identity));
  operations.pop_front();
  kernels::Stream& stream = stream_of(operation.op);
  mark(stream, "unpack", operation.op);
  context->engine->unpack(stream, operation.op);
  stream.enqueue([me = caf::actor_cast<CollectiveActor>(self), which = message.identity.channel,
                  slot = message.identity.index % engine::kStagingSlots] {
    caf::anon_send(me, OperationUnpacked{which, slot});
  });
  const auto found = state().wanted.find(to_string(message.identity));
  TRAIN_CHECK(found != state().wanted.end(), "nobody asked for {}", to_string(message.identity));
  Wanted wanted = found->second;
  state().wanted.erase(found);
  record(operation, wanted.requested_ns);
  wanted.promise.deliver(CollectiveFinished{message.identity});
  note_waiting();
}

void Collective::note_waiting() const {
  const bool moving =
      std::any_of(state().channels.begin(), state().channels.end(), [](const ChannelState& one) {
        return !one.operations.empty() && one.operations.front().progress == Progress::moving;
      });
  if (moving) {
    state().wait->begin("the bytes of a collective", -1);
  } else if (!state().wanted.empty()) {
    state().wait->begin("the turn of a parked collective", -1);
  } else {
    state().wait->end();
  }
}

void Collective::mark(kernels::Stream& stream, const char* what, const CollectiveOp& op) const {
  const auto& groups = context->engine->plan().groups();
  const std::int32_t unit =
      op.group < 0
          ? -1
          : static_cast<std::int32_t>(groups[static_cast<std::size_t>(op.group)].first_unit());
  stream.mark({.what = what, .step = -1, .unit = unit, .lane = -1});
}

void Collective::record(const Operation& operation, std::int64_t requested_ns) const {
  if (context->trace) {
    context->trace->add({.channel = operation.op.channel,
                         .kind = operation.op.kind,
                         .command = static_cast<std::uint64_t>(operation.identity.command),
                         .index = operation.op.index,
                         .group = operation.op.group,
                         .part = operation.op.part,
                         .requested_ns = requested_ns,
                         .begin_ns = operation.begin_ns,
                         .end_ns = steady_now_ns(),
                         .sent_bytes = operation.sent_bytes});
  }
}

CollectiveActor::behavior_type collective_behavior(CollectiveSelf self, RankContext context,
                                                   WaitBoard::Line wait) {
  report_exceptions(self, "collective", [] { return std::int64_t{-1}; });
  self->state.order.emplace(context->generation);
  self->state.wait = wait;
  const Collective collective{self, context};
  return {
      [self](const ConnectCollective& peers) { self->state.peers = peers; },
      [collective](const OpenCommand& message) {
        auto& commands = collective.state().commands;
        commands.emplace(message.sequence, message.kind);
        while (commands.size() > 8) {  // far more than can be under way
          commands.erase(commands.begin());
        }
        const auto& runtime = *collective.context;
        collective.take_due(collective.state().order->begin_command(
            static_cast<std::int64_t>(message.sequence), runtime.collectives.of(message.kind)));
      },
      [collective](const RequestCollective& message) -> Promise {
        auto promise = collective.self->make_response_promise<CollectiveFinished>();
        if (message.identity.generation < collective.context->generation) {
          return promise;  // whoever asked is of a generation that is over: nobody hears an answer
        }
        collective.state().wanted.emplace(to_string(message.identity),
                                          Wanted{promise, steady_now_ns(), message.written});
        collective.take_due(collective.state().order->request(message.identity));
        return promise;
      },
      [collective](const OperationPacked& message) { collective.packed(message.identity); },
      [collective](const OperationUnpacked& message) {
        collective.channel(message.channel).staged.at(message.slot) = false;
        collective.start(message.channel);
      },
      [collective](const BytesMoved& message) { collective.moved(message); },
  };
}

}  // namespace

CollectiveActor spawn_collective(caf::actor_system& system, const RankContext& context) {
  return system.spawn(collective_behavior, context, context->waits.add("collective"));
}

}  // namespace train::actors
