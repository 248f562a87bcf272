#include "actors/cluster/network/rendezvous.hpp"

#include <fmt/format.h>

#include <caf/all.hpp>
#include <utility>

#include "actors/messages/cluster_messages.hpp"

namespace train::actors {

Status RendezvousTable::set(const std::string& key, Bytes bytes) {
  if (const auto known = values_.find(key); known != values_.end()) {
    return known->second == bytes
               ? Status()
               : failure(fmt::format("rendezvous: {} is set to something else already", key));
  }
  const std::size_t size = key.size() + bytes.size();
  if (key.size() > limits_.key_bytes || bytes.size() > limits_.value_bytes ||
      stored_bytes_ + size > limits_.stored_bytes) {
    return failure(fmt::format("rendezvous: {} ({} bytes) is more than it may hold",
                               key.substr(0, limits_.key_bytes), bytes.size()));
  }
  stored_bytes_ += size;
  const Result<Bytes> value = values_.emplace(key, std::move(bytes)).first->second;
  const auto [first, last] = waiting_.equal_range(key);
  std::vector<Answer> answers;
  for (auto entry = first; entry != last; ++entry) {
    answers.push_back(std::move(entry->second));
  }
  waiting_.erase(first, last);
  for (const Answer& answer : answers) {
    answer(value);
  }
  return {};
}

void RendezvousTable::get(const std::string& key, Answer answer) {
  if (const auto known = values_.find(key); known != values_.end()) {
    answer(known->second);
  } else if (key.size() > limits_.key_bytes || waiting_.size() >= limits_.waiting) {
    answer(failure("rendezvous: too many wait for keys that nobody has set"));
  } else {
    waiting_.emplace(key, std::move(answer));
  }
}

namespace {

constexpr std::chrono::seconds kSetTime{60};  // a loaded head is slow, a lost one is seen at once

struct RendezvousState {
  static constexpr const char* name = "rendezvous";
  RendezvousTable table;
};

caf::behavior rendezvous_behavior(caf::stateful_actor<RendezvousState>* self) {
  return {[self](const RendezvousSet& message) {
            const Status set =
                self->state.table.set(message.key, {message.bytes.begin(), message.bytes.end()});
            return RendezvousAnswer{message.key, {}, set ? "" : set.error().message};
          },
          [self](const RendezvousGet& message) {
            auto asker = caf::actor_cast<caf::actor>(self->current_sender());
            if (!asker) {
              return;
            }
            self->state.table.get(message.key, [self, asker, key = message.key](const auto& value) {
              self->send(asker, value ? RendezvousAnswer{key, {value->begin(), value->end()}, {}}
                                      : RendezvousAnswer{key, {}, value.error().message});
            });
          }};
}

}  // namespace

caf::actor spawn_rendezvous(caf::actor_system& system) { return system.spawn(rendezvous_behavior); }

RemoteStore::RemoteStore(caf::actor_system& system, caf::actor store, std::string prefix)
    : system_(&system), store_(std::move(store)), prefix_(std::move(prefix)) {}

template <class Message>
Result<std::vector<char>> RemoteStore::ask(Message message, const std::string& key,
                                           std::chrono::milliseconds timeout) {
  Result<std::vector<char>> result =
      failure(fmt::format("rendezvous: no answer for {} within {} ms", key, timeout.count()));
  // A request to a head that dies would only time out; a monitor hears of it at once.
  caf::scoped_actor self(*system_);
  self->monitor(store_);
  self->send(store_, std::move(message));
  self->receive(
      [&](const RendezvousAnswer& answer) {
        result = answer.refusal.empty()
                     ? Result(std::vector(answer.bytes.begin(), answer.bytes.end()))
                     : failure(answer.refusal);
      },
      [&](const caf::down_msg&) {
        result = failure(fmt::format("rendezvous: the head is gone ({})", key));
      },
      caf::after(timeout) >> [] {});
  return result;
}

Status RemoteStore::set(const std::string& key, const std::vector<char>& bytes) {
  const std::string full = prefix_ + key;
  const auto answer = ask(RendezvousSet{full, {bytes.begin(), bytes.end()}}, full, kSetTime);
  return answer ? Status() : answer.error();
}

Result<std::vector<char>> RemoteStore::get(const std::string& key,
                                           std::chrono::milliseconds timeout) {
  const std::string full = prefix_ + key;
  return ask(RendezvousGet{full}, full, timeout);
}

}  // namespace train::actors
