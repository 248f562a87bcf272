#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "actors/cluster/network/credentials.hpp"
#include "actors/cluster/network/endpoint.hpp"
#include "actors/cluster/network/event_loop.hpp"
#include "actors/messages/cluster_messages.hpp"
#include "base/result.hpp"
#include "checkpoint/memory/memory_snapshots.hpp"
#include "run/memory/node_memory.hpp"
#include "run/plan/run_plan.hpp"

namespace boost::asio::ssl {
class context;
}

namespace train::actors {

class Task;
using Identity = std::shared_ptr<boost::asio::ssl::context>;  // See secure_stream.hpp.

/// Port of a launcher for snapshots of other nodes' ranks. Only peers with a certificate of this
/// run are accepted, the most recent one wins, and a stream that does not match the memory is
/// dropped: its sender reconnects.
///
/// Threading: one thread; bytes arrive on the loop's. Ownership: shares the memory.
class SnapshotReceiver {
 public:
  using Memory = std::shared_ptr<const checkpoint::MemorySnapshots>;

  /// Listens on any free port of `interface`; on the loopback if it is empty. Errors: those of
  /// interface_address() and HeadListener::open().
  [[nodiscard]] static Result<std::unique_ptr<SnapshotReceiver>> open(
      const EventLoop& loop, const CredentialFiles& credentials, const std::string& interface);

  [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }

  /// Directs later data into `memory`; null: it waits. The previous memory is no longer written.
  /// Waits for a piece in progress.
  void receive_into(const Memory& memory);

  /// Waits until all ranks of the memory have `step` complete, with digests verified. Errors
  /// (failure): no progress for `patience`, or the last data was damaged.
  [[nodiscard]] Status wait_for(std::int64_t step, std::chrono::milliseconds patience);

 private:
  struct Inflow;
  SnapshotReceiver(Endpoint endpoint, std::shared_ptr<Inflow> inflow)
      : endpoint_(std::move(endpoint)), inflow_(std::move(inflow)) {}

  Endpoint endpoint_;
  std::shared_ptr<Inflow> inflow_;
};

/// Sends a launcher's snapshots to a SnapshotReceiver while the result lives: each one sealed by
/// all ranks, newest first. Ranks never wait for it: snapshots overwritten meanwhile are skipped,
/// and a lost connection is reopened. Its destruction does not wait for data in transit.
/// `identity`: a worker's.
///
/// Threading: one thread; the loop's only reads the memory. Ownership: shares the memory.
[[nodiscard]] std::shared_ptr<Task> start_sending(
    const EventLoop& loop, const Identity& identity, const Endpoint& to,
    std::shared_ptr<const checkpoint::MemorySnapshots> memory);

/// Sends only the snapshot of `step`, while no rank writes. Blocks. Errors (failure): the receiver
/// is unreachable, or reads nothing for `patience`; there is no such snapshot.
[[nodiscard]] Status send_once(const EventLoop& loop, const Identity& identity, const Endpoint& to,
                               const checkpoint::MemorySnapshots& memory, std::int64_t step,
                               std::chrono::milliseconds patience);

/// Part of a launcher in the ring of buddies, for one generation of ranks: node n keeps copies of
/// node n - 1's snapshots, and returns them when that node comes without. Never delays training: a
/// slow or lost link only makes the buddy's copy older, or absent.
///
/// Threading: one thread. Ownership: shares the node's memory as of each call, which may be laid
/// out again until keep().
class BuddyLink {
 public:
  /// Null if the node has no buddy, or if it cannot listen (which is logged).
  [[nodiscard]] static std::unique_ptr<BuddyLink> open(const EventLoop& loop,
                                                       const CredentialFiles& credentials,
                                                       const run::RunPlan& plan);

  /// Address at which this node receives snapshots, HOST:PORT.
  [[nodiscard]] std::string address() const { return to_string(receiver_->endpoint()); }

  /// Sends and receives what the order says; blocks while bytes move. REQUIRES: no rank runs, and
  /// keep() was not called yet. Errors (failure): the transfer failed or is incomplete.
  [[nodiscard]] Status restore(const RestoreMemory& order, run::NodeMemory& memory);

  /// From now on sends snapshots sealed here to the next node (`buddy`: its address()), and keeps
  /// those that the previous node sends. Does not block.
  void keep(const std::string& buddy, const run::NodeMemory& memory);

 private:
  BuddyLink(const EventLoop& loop, Identity identity, std::unique_ptr<SnapshotReceiver> receiver)
      : loop_(loop), identity_(std::move(identity)), receiver_(std::move(receiver)) {}

  const EventLoop& loop_;
  Identity identity_;
  std::unique_ptr<SnapshotReceiver> receiver_;
  std::shared_ptr<Task> sending_;
};

}  // namespace train::actors
