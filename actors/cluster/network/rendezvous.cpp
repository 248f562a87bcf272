#include "actors/cluster/network/rendezvous.hpp"

#include <fmt/format.h>

#include <caf/all.hpp>
#include <map>
#include <utility>

#include "actors/messages/cluster_messages.hpp"
#include "actors/system/supervision.hpp"

namespace train::actors {
namespace {

constexpr std::chrono::seconds kSetTime{60};  // A loaded head is slow; a lost one is noticed at
                                              // once.

struct RendezvousState {
  static constexpr const char* name = "rendezvous";
  RendezvousLimits limits = {};
  std::map<std::string, std::string> values = {};
  std::multimap<std::string, caf::typed_response_promise<RendezvousAnswer>> waiting = {};
  std::size_t stored_bytes = 0;

  /// Error text; empty: the key is set.
  std::string set(const std::string& key, const std::string& bytes) {
    if (const auto known = values.find(key); known != values.end()) {
      return known->second == bytes
                 ? ""
                 : fmt::format("rendezvous: {} is set to something else already", key);
    }
    const std::size_t size = key.size() + bytes.size();
    if (key.size() > limits.key_bytes || bytes.size() > limits.value_bytes ||
        stored_bytes + size > limits.stored_bytes) {
      return fmt::format("rendezvous: {} ({} bytes) is more than it may hold",
                         key.substr(0, limits.key_bytes), bytes.size());
    }
    stored_bytes += size;
    values.emplace(key, bytes);
    const auto [first, last] = waiting.equal_range(key);
    for (auto asker = first; asker != last; ++asker) {
      asker->second.deliver(RendezvousAnswer{key, bytes, {}});
    }
    waiting.erase(first, last);
    return {};
  }
};

caf::behavior rendezvous_behavior(caf::stateful_actor<RendezvousState>* self,
                                  const RendezvousLimits& limits) {
  report_exceptions(self, "rendezvous", [] { return std::int64_t{-1}; });
  RendezvousState& store = self->state;
  store.limits = limits;
  return {[&store](const RendezvousSet& message) {
            return RendezvousAnswer{message.key, {}, store.set(message.key, message.bytes)};
          },
          [&store, self](const RendezvousGet& message) -> caf::result<RendezvousAnswer> {
            if (const auto known = store.values.find(message.key); known != store.values.end()) {
              return RendezvousAnswer{message.key, known->second, {}};
            }
            if (message.key.size() > store.limits.key_bytes ||
                store.waiting.size() >= store.limits.waiting) {
              return RendezvousAnswer{
                  message.key, {}, "rendezvous: too many wait for keys that nobody has set"};
            }
            return store.waiting
                .emplace(message.key, self->make_response_promise<RendezvousAnswer>())
                ->second;
          }};
}

}  // namespace

caf::actor spawn_rendezvous(caf::actor_system& system, const RendezvousLimits& limits) {
  return system.spawn(rendezvous_behavior, limits);
}

RemoteStore::RemoteStore(caf::actor_system& system, caf::actor store, std::string prefix)
    : system_(&system), store_(std::move(store)), prefix_(std::move(prefix)) {}

template <class Message>
Result<std::vector<char>> RemoteStore::ask(Message message, std::chrono::milliseconds timeout) {
  message.key.insert(0, prefix_);
  const std::string key = message.key;
  Result<std::vector<char>> result =
      failure(fmt::format("rendezvous: no answer for {} within {} ms", key, timeout.count()));
  // A request to a dying head would only time out; a monitor notices at once.
  caf::scoped_actor self(*system_);
  self->monitor(store_);
  self->send(store_, std::move(message));
  self->receive(
      [&](const RendezvousAnswer& answer) {
        result = answer.refusal.empty()
                     ? Result(std::vector(answer.bytes.begin(), answer.bytes.end()))
                     : failure(answer.refusal);
      },
      [&](const caf::down_msg& down) {
        result = failure(down.reason == caf::sec::runtime_error
                             ? failure_text(down.reason)
                             : fmt::format("rendezvous: the head is gone ({})", key));
      },
      caf::after(timeout) >> [] {});
  return result;
}

Status RemoteStore::set(const std::string& key, const std::vector<char>& bytes) {
  const auto answer = ask(RendezvousSet{key, {bytes.begin(), bytes.end()}}, kSetTime);
  return answer ? Status() : answer.error();
}

Result<std::vector<char>> RemoteStore::get(const std::string& key,
                                           std::chrono::milliseconds timeout) {
  return ask(RendezvousGet{key}, timeout);
}

}  // namespace train::actors
