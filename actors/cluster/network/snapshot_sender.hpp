#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>

#include "actors/cluster/network/credentials.hpp"
#include "actors/cluster/network/endpoint.hpp"
#include "actors/cluster/network/tls_stream.hpp"
#include "base/result.hpp"
#include "base/wake.hpp"
#include "checkpoint/memory/memory_snapshots.hpp"

namespace train::actors {

/// Sends a launcher's snapshots in memory to a SnapshotReceiver: for as long as this lives each
/// that all its ranks have sealed, the newest first. Ranks never wait for it: what they write over
/// meanwhile is left out, and a connection that is lost is made again.
///
/// Threading: one of its own, which only reads the memory. Ownership: shares the memory.
class SnapshotSender {
 public:
  using Memory = std::shared_ptr<const checkpoint::MemorySnapshots>;

  /// Errors (user): as TlsContext::load().
  [[nodiscard]] static Result<std::unique_ptr<SnapshotSender>> start(
      const CredentialFiles& credentials, Endpoint to, Memory memory);
  /// Does not wait for what is under way.
  ~SnapshotSender();
  SnapshotSender(const SnapshotSender&) = delete;
  SnapshotSender& operator=(const SnapshotSender&) = delete;

 private:
  SnapshotSender(TlsContext context, Endpoint to, Memory memory);
  void serve();
  void follow(TlsStream& stream);

  TlsContext context_;
  Endpoint to_;
  Memory memory_;
  Wake stop_;
  std::atomic<bool> stopping_{false};
  int missed_ = 0;  // in a row
  std::thread thread_;
};

/// Sends the snapshot of `step` alone, while no rank writes. Blocks. Errors (failure): the receiver
/// cannot be reached, or takes nothing for `patience`; there is no such snapshot.
[[nodiscard]] Status send_once(const CredentialFiles& credentials, const Endpoint& to,
                               const checkpoint::MemorySnapshots& memory, std::int64_t step,
                               std::chrono::milliseconds patience);

}  // namespace train::actors
