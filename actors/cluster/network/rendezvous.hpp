#pragma once

#include <caf/actor.hpp>
#include <caf/fwd.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/collective/gloo_transport.hpp"

// Where ranks tell each other how to connect: a small store of named bytes at the head. Keys begin
// with their generation, so that what an older one left behind is never read.
namespace train::actors {

/// The store itself: a key is set once; who asks before that is answered when it is.
/// Not thread-safe. No call blocks.
class RendezvousTable {
 public:
  using Bytes = std::vector<char>;
  /// The value, or why there will be none.
  using Answer = std::function<void(const Result<Bytes>&)>;

  struct Limits {
    std::size_t key_bytes = 1024;
    std::size_t value_bytes = std::size_t{1} << 20U;
    std::size_t stored_bytes = std::size_t{64} << 20U;  ///< Of all keys and values.
    std::size_t waiting = 65536;
  };

  RendezvousTable() = default;
  explicit RendezvousTable(Limits limits) : limits_(limits) {}

  /// Answers all who wait for `key`. Setting the same bytes again is fine.
  /// Errors: other bytes than before, or a limit (failure).
  [[nodiscard]] Status set(const std::string& key, Bytes bytes);

  /// Calls `answer` now or later, exactly once (never, if this ends before).
  void get(const std::string& key, Answer answer);

  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }

 private:
  Limits limits_;
  std::map<std::string, Bytes> values_;
  std::multimap<std::string, Answer> waiting_;
  std::size_t stored_bytes_ = 0;
};

/// The table as an actor: RendezvousSet, RendezvousGet. Lives at the head; hand
/// workers its handle.
[[nodiscard]] caf::actor spawn_rendezvous(caf::actor_system& system);

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
  Result<std::vector<char>> ask(Message message, const std::string& key,
                                std::chrono::milliseconds timeout);

  caf::actor_system* system_;
  caf::actor store_;
  std::string prefix_;
};

}  // namespace train::actors
