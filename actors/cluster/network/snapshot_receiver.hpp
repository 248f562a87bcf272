#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "actors/cluster/network/credentials.hpp"
#include "actors/cluster/network/endpoint.hpp"
#include "actors/cluster/network/tls_acceptor.hpp"
#include "actors/cluster/network/tls_connect.hpp"
#include "base/result.hpp"
#include "base/wake.hpp"
#include "checkpoint/memory/memory_snapshots.hpp"

namespace train::actors {

/// A launcher's port for snapshots in memory of other nodes' ranks. Who holds no certificate of
/// this run is not heard; of those who do the last to come is, and a stream that does not fit the
/// memory is dropped: its sender comes again.
///
/// Threading: one thread but for the acceptor's and its own. Ownership: shares the memory.
class SnapshotReceiver {
 public:
  using Memory = std::shared_ptr<const checkpoint::MemorySnapshots>;

  /// Listens on any free port of `address`. Errors: as HeadListener::open().
  [[nodiscard]] static Result<std::unique_ptr<SnapshotReceiver>> open(
      const CredentialFiles& credentials, const std::string& address);
  ~SnapshotReceiver();
  SnapshotReceiver(const SnapshotReceiver&) = delete;
  SnapshotReceiver& operator=(const SnapshotReceiver&) = delete;

  [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }

  /// What comes from here on goes into `memory`; none: it waits. Nothing is written any more to
  /// what was there before. Waits for a piece under way.
  void receive_into(Memory memory);

  /// Waits until all ranks of the memory have `step` whole, their digests compared. Errors
  /// (failure): nothing came for `patience`, or what came last is damaged.
  [[nodiscard]] Status wait_for(std::int64_t step, std::chrono::milliseconds patience);

 private:
  SnapshotReceiver() = default;
  void admit(TlsConnection connection);
  void stop();
  void serve(const checkpoint::MemorySnapshots& memory);
  void follow(TlsConnection connection, const checkpoint::MemorySnapshots& memory);
  [[nodiscard]] std::optional<TlsConnection> next();

  Endpoint endpoint_;
  Wake wake_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::optional<TlsConnection> arrived_;  // guarded by mutex_
  std::uint64_t frames_ = 0;              // guarded by mutex_: that have come
  std::atomic<bool> stopping_{false};
  Memory memory_;
  std::thread thread_;
  std::unique_ptr<TlsAcceptor> acceptor_;  // last: it uses the above
};

}  // namespace train::actors
