#include "actors/train/rank_actors.hpp"

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
#include "actors/messages/command_messages.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/messages/lane_messages.hpp"
#include "actors/system/supervision.hpp"
#include "actors/train/rank_registry.hpp"

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
  std::int64_t begin_ns = 0;  // Start of the transfer, for the profile.
  std::uint64_t sent_bytes = 0;
  std::vector<std::int32_t> from = {};  // Ranks with outstanding bytes.
};

struct Wanted {
  Promise promise;
  std::int64_t requested_ns = 0;
  kernels::Event written;
};

struct ChannelState {
  std::deque<Operation> operations;  // Due or under way, in order; removed on arrival.
  // Slots in use: from pack() until the work enqueued by unpack() has run. An operation uses the
  // slot of its index in its command, so the first ones of a command may have to wait for the last
  // ones of another.
  std::array<bool, engine::kStagingSlots> staged{};
  std::optional<WaitTable::Credits> slots;
  std::optional<ChannelProgress> noted;  // Progress as noted on the board.
};

bool same_place(const ChannelProgress& left, const ChannelProgress& right) {
  return left.phase == right.phase && left.command.sequence == right.command.sequence &&
         left.op.index == right.op.index;
}

std::vector<std::int32_t> senders_of(const engine::Transfer& transfer, std::int32_t rank) {
  std::vector<std::int32_t> senders;
  for (std::size_t from = 0; from < transfer.receive.size(); ++from) {
    const auto peer = static_cast<std::int32_t>(from);
    if (peer != rank && !transfer.receive[from].empty()) {
      senders.push_back(peer);
    }
  }
  return senders;
}

struct CollectiveState {
  static inline const char* name = "collective";
  std::optional<engine::ChannelOrder> order;
  std::map<std::string, Wanted> wanted;       // Keyed by the identity's text.
  std::map<std::uint64_t, Command> commands;  // Begun; the newest few.
  std::array<ChannelState, engine::kChannelCount> channels;
  ConnectCollective peers;
  std::optional<WaitTable::Line> wait;
  std::int64_t step = -1;  // Step of the newest command.
};

using Slots = std::array<WaitTable::Credits, engine::kChannelCount>;
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
  void note_places() const;
  [[nodiscard]] std::optional<ChannelProgress> place_in(engine::Channel which) const;
  void mark(kernels::Stream& stream, const char* what, const Operation& operation) const;
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

// Reductions run on their own stream: behind the lanes queued on the compute stream, a sum would
// keep its staging slot and delay packing of the next gradient, which would stall the channel until
// the end of the backward pass.
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
  const bool at_once = context->engine->exchanges().packed_already(operation.op);
  kernels::Stream& stream = stream_of(operation.op);
  operation.written.wait_on(stream);
  mark(stream, "pack", operation);
  context->engine->exchanges().pack(stream, operation.op);
  operation.progress = at_once ? Progress::packed : Progress::packing;
  if (!at_once) {
    stream.notify([me = caf::actor_cast<CollectiveActor>(self), identity = operation.identity] {
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
  note_places();
}

// The transport runs exchanges in call order, so none may overtake an exchange that is still
// packing.
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
    engine::Transfer transfer = context->engine->exchanges().transfer(operation.op);
    operation.from = senders_of(transfer, context->rank);
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
    // Another rank is lost or disagrees: this rank ends, but may not be the cause.
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
  mark(stream, "unpack", operation);
  context->engine->exchanges().unpack(stream, operation.op);
  stream.notify([me = caf::actor_cast<CollectiveActor>(self), which = message.identity.channel,
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

std::optional<ChannelProgress> Collective::place_in(engine::Channel which) const {
  const ChannelState& here = channel(which);
  ChannelProgress place;
  std::optional<CollectiveIdentity> oldest = state().order->expected(which);
  if (!here.operations.empty()) {
    const Operation& operation = here.operations.front();
    oldest = operation.identity;
    place.phase = operation.progress == Progress::moving ? run::ChannelPhase::moving
                  : operation.progress == Progress::due  ? run::ChannelPhase::slot
                                                         : run::ChannelPhase::packing;
    place.from = operation.from;
  }
  if (!oldest) {
    return std::nullopt;
  }
  place.op.index = oldest->index;
  place.command.sequence = static_cast<std::uint64_t>(oldest->command);
  if (here.noted && same_place(*here.noted, place)) {
    return here.noted;
  }
  const Command& command = state().commands.at(place.command.sequence);
  place.op = op_of(*oldest);
  place.command.name = context->name_of(command);
  place.command.step = context->step_index(command);
  place.since_ns = steady_now_ns();
  return place;
}

// Notes the channels' progress for the watchdog.
void Collective::note_places() const {
  for (std::size_t which = 0; which < engine::kChannelCount; ++which) {
    ChannelState& here = state().channels[which];
    here.slots->in_use(std::count(here.staged.begin(), here.staged.end(), true));
    const auto place = place_in(static_cast<engine::Channel>(which));
    if (place.has_value() != here.noted.has_value() ||
        (place && !same_place(*place, *here.noted))) {
      here.noted = place;
      context->board.place(static_cast<engine::Channel>(which), place);
    }
  }
}

void Collective::note_waiting() const {
  note_places();
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

void Collective::mark(kernels::Stream& stream, const char* what, const Operation& operation) const {
  const CollectiveOp& op = operation.op;
  const auto& groups = context->engine->plan().groups();
  const std::int32_t unit =
      op.group < 0
          ? -1
          : static_cast<std::int32_t>(groups[static_cast<std::size_t>(op.group)].first_unit());
  const auto command =
      state().commands.find(static_cast<std::uint64_t>(operation.identity.command));
  const std::int64_t step =
      command == state().commands.end() ? -1 : context->step_index(command->second);
  stream.mark({.what = what, .step = step, .unit = unit, .lane = -1});
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

CollectiveActor::behavior_type collective_behavior(CollectiveSelf self, const RankContext& context,
                                                   WaitTable::Line wait, const Slots& slots) {
  report_exceptions(self, "collective", [self] { return self->state.step; });
  self->state.order.emplace(context->generation);
  self->state.wait = wait;
  for (std::size_t which = 0; which < slots.size(); ++which) {
    self->state.channels[which].slots = slots[which];
  }
  const Collective collective{self, context};
  return {
      [self](const ConnectCollective& peers) { self->state.peers = peers; },
      [collective](const Command& message) {
        auto& commands = collective.state().commands;
        commands.emplace(message.sequence, message);
        collective.state().step = collective.context->step_index(message);
        while (commands.size() > 8) {  // Far more than can be under way.
          commands.erase(commands.begin());
        }
        const auto& runtime = *collective.context;
        collective.take_due(collective.state().order->begin_command(
            static_cast<std::int64_t>(message.sequence), runtime.collectives.of(message)));
      },
      [collective](const RequestCollective& message) -> Promise {
        auto promise = collective.self->make_response_promise<CollectiveFinished>();
        if (message.identity.generation < collective.context->generation) {
          return promise;  // The requester is of an old generation: an answer has no receiver.
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
        collective.note_places();
      },
      [collective](const BytesMoved& message) { collective.moved(message); },
  };
}

}  // namespace

CollectiveActor spawn_collective(caf::actor_system& system, const RankContext& context) {
  const Slots slots = {context->waits.add_credits("gather slots", engine::kStagingSlots),
                       context->waits.add_credits("reduce slots", engine::kStagingSlots),
                       context->waits.add_credits("control slots", engine::kStagingSlots)};
  return system.spawn(collective_behavior, context, context->waits.add("collective"), slots);
}

void add_collective(RankAssembly& rank) {
  const CollectiveActor actor =
      rank.add("collective", spawn_collective(rank.system(), rank.context()));
  if (rank.context()->engine->plan().ranks() > 1) {
    rank.follow_commands(actor);
  }
  rank.when_spawned([&rank, actor] {
    caf::anon_send(actor, ConnectCollective{rank.rank(), rank.the<BuffersActor>()});
  });
}

}  // namespace train::actors
