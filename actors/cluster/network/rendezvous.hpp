#pragma once

#include <caf/actor.hpp>
#include <caf/fwd.hpp>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/collective/tcp_transport.hpp"

// Where ranks tell each other how to connect: a small store of named bytes at the head. Keys begin
// with their generation, so that what an older one left behind is never read.
namespace train::actors {

/// What the store may hold.
struct RendezvousLimits {
  std::size_t key_bytes = 1024;
  std::size_t value_bytes = std::size_t{1} << 20U;
  std::size_t stored_bytes = std::size_t{64} << 20U;  ///< Of all keys and values.
  std::size_t waiting = 65536;                        ///< Who ask for a key that is not set.
};

/// The store, an actor at the head whose handle workers get: RendezvousSet, RendezvousGet. A key is
/// set once, and the same bytes again are fine; who asks before that is answered when it is. Other
/// bytes, or more than the limits, are refused.
[[nodiscard]] caf::actor spawn_rendezvous(caf::actor_system& system,
                                          const RendezvousLimits& limits = {});

/// A worker's (or the head's own) way to the store. Thread-safe; its calls block the thread, so
/// never make one in a message handler.
class RemoteStore final : public engine::RendezvousStore {
 public:
  /// `prefix` is put before every key: one per generation and purpose.
  RemoteStore(caf::actor_system& system, caf::actor store, std::string prefix);

  /// On return the value can be read by all. Errors (failure): set to something else before,
  /// refused, no answer within 60 s, or the head is gone.
  [[nodiscard]] Status set(const std::string& key, const std::vector<char>& bytes) override;

  /// Waits until somebody sets `key`. Errors (failure): nobody did in time, or the head is gone.
  [[nodiscard]] Result<std::vector<char>> get(const std::string& key,
                                              std::chrono::milliseconds timeout) override;

 private:
  template <class Message>
  Result<std::vector<char>> ask(Message message, std::chrono::milliseconds timeout);

  caf::actor_system* system_;
  caf::actor store_;
  std::string prefix_;
};

}  // namespace train::actors
