#pragma once

#include <caf/actor.hpp>
#include <caf/fwd.hpp>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/collective/tcp_transport.hpp"

// Rendezvous of ranks: a small key-value store at the head. Keys begin with their generation, so
// that values of an older one are never read.
namespace train::actors {

/// Limits of the store.
struct RendezvousLimits {
  std::size_t key_bytes = 1024;
  std::size_t value_bytes = std::size_t{1} << 20U;
  std::size_t stored_bytes = std::size_t{64} << 20U;  ///< Bytes of all keys and values.
  std::size_t waiting = 65536;  ///< Pending requests for keys that are not set.
};

/// Spawns the store, an actor at the head whose handle workers get: RendezvousSet, RendezvousGet. A
/// key is set once (repeating the same bytes is allowed); earlier requests are answered when it is
/// set. Other bytes, or exceeding the limits, are rejected.
[[nodiscard]] caf::actor spawn_rendezvous(caf::actor_system& system,
                                          const RendezvousLimits& limits = {});

/// Client of the store for a worker or the head. Thread-safe; its calls block the thread, so it
/// must not be used in a message handler.
class RemoteStore final : public engine::RendezvousStore {
 public:
  /// `prefix` is prepended to every key: one per generation and purpose.
  RemoteStore(caf::actor_system& system, caf::actor store, std::string prefix);

  /// On return all can read the value. Errors (failure): set to another value before, rejected, no
  /// answer within 60 s, or the head is gone.
  [[nodiscard]] Status set(const std::string& key, const std::vector<char>& bytes) override;

  /// Waits until `key` is set. Errors (failure): not set in time, or the head is gone.
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
