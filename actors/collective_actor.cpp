#include "actors/collective_actor.hpp"

#include <caf/all.hpp>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

#include "actors/messages/collective_messages.hpp"
#include "actors/supervision.hpp"

namespace train::actors {
namespace {

using Promise = caf::typed_response_promise<CollectiveFinished>;

struct CollectiveState {
  static inline const char* name = "collective";
  std::optional<engine::ChannelOrder> order;
  std::map<std::string, Promise> promises;  // by the identity's text
  std::optional<WaitBoard::Line> wait;
};

using CollectiveSelf = CollectiveActor::stateful_pointer<CollectiveState>;

// With one rank there is nobody to exchange bytes with: what is due has already happened.
void run_due(CollectiveSelf self, Result<engine::ChannelOrder::Due> due) {
  if (!due) {
    throw std::runtime_error(due.error().message);
  }
  for (const engine::CollectiveIdentity& identity : *due) {
    const auto found = self->state.promises.find(to_string(identity));
    TRAIN_CHECK(found != self->state.promises.end(), "nobody asked for {}", to_string(identity));
    Promise promise = found->second;
    self->state.promises.erase(found);
    promise.deliver(CollectiveFinished{identity});
  }
  if (self->state.promises.empty()) {
    self->state.wait->end();
  } else {
    self->state.wait->begin("the turn of a parked collective", -1);
  }
}

CollectiveActor::behavior_type collective(CollectiveSelf self, RankContext context,
                                          WaitBoard::Line wait) {
  report_exceptions(self, "collective", [] { return std::int64_t{-1}; });
  self->state.order.emplace(context->generation);
  self->state.wait = wait;
  return {
      [self, context](const OpenCommand& message) {
        const auto units = static_cast<std::int32_t>(context->engine->unit_count());
        run_due(self, self->state.order->begin_command(
                          static_cast<std::int64_t>(message.sequence),
                          engine::expand({.kind = message.kind, .units = units})));
      },
      [self, context](const RequestCollective& message) -> Promise {
        auto promise = self->make_response_promise<CollectiveFinished>();
        if (message.identity.generation < context->generation) {
          return promise;  // whoever asked is of a generation that is over: nobody hears an answer
        }
        self->state.promises.emplace(to_string(message.identity), promise);
        run_due(self, self->state.order->request(message.identity));
        return promise;
      },
  };
}

}  // namespace

engine::CollectiveIdentity identity_of(std::uint32_t generation, std::uint64_t sequence,
                                       engine::CommandShape command, engine::Channel channel,
                                       std::int32_t unit) {
  for (const engine::CollectiveOp& op : engine::expand(command)) {
    if (op.channel == channel && op.unit == unit) {
      return {.generation = generation,
              .command = static_cast<std::int64_t>(sequence),
              .channel = channel,
              .index = op.index,
              .hash = op.hash};
    }
  }
  TRAIN_CHECK(false, "a {} has no {} collective for unit {}", engine::command_name(command.kind),
              engine::channel_name(channel), unit);
  return {};
}

CollectiveActor spawn_collective(caf::actor_system& system, const RankContext& context) {
  return system.spawn(collective, context, context->waits.add("collective"));
}

}  // namespace train::actors
