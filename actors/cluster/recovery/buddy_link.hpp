#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "actors/cluster/network/credentials.hpp"
#include "actors/cluster/network/endpoint.hpp"
#include "actors/cluster/network/event_loop.hpp"
#include "actors/cluster/recovery/node_memory.hpp"
#include "actors/head/run_plan.hpp"
#include "actors/messages/cluster_messages.hpp"
#include "base/result.hpp"
#include "checkpoint/memory/memory_snapshots.hpp"

namespace boost::asio::ssl {
class context;
}

namespace train::actors {

class Task;
using Identity = std::shared_ptr<boost::asio::ssl::context>;  // secure_stream.hpp

/// A launcher's port for snapshots in memory of other nodes' ranks. Who holds no certificate of
/// this run is not heard; of those who do the last to come is, and a stream that does not fit the
/// memory is dropped: its sender comes again.
///
/// Threading: one thread; bytes come on the loop's. Ownership: shares the memory.
class SnapshotReceiver {
 public:
  using Memory = std::shared_ptr<const checkpoint::MemorySnapshots>;

  /// Listens on any free port of `interface`; of loopback if it is empty. Errors: those of
  /// interface_address() and HeadListener::open().
  [[nodiscard]] static Result<std::unique_ptr<SnapshotReceiver>> open(
      const EventLoop& loop, const CredentialFiles& credentials, const std::string& interface);

  [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }

  /// What comes from here on goes into `memory`; none: it waits. Nothing is written any more to
  /// what was there before. Waits for a piece under way.
  void receive_into(const Memory& memory);

  /// Waits until all ranks of the memory have `step` whole, their digests compared. Errors
  /// (failure): nothing came for `patience`, or what came last is damaged.
  [[nodiscard]] Status wait_for(std::int64_t step, std::chrono::milliseconds patience);

 private:
  struct Inflow;
  SnapshotReceiver(Endpoint endpoint, std::shared_ptr<Inflow> inflow)
      : endpoint_(std::move(endpoint)), inflow_(std::move(inflow)) {}

  Endpoint endpoint_;
  std::shared_ptr<Inflow> inflow_;
};

/// Sends a launcher's snapshots in memory to a SnapshotReceiver: for as long as the result lives
/// each that all its ranks have sealed, the newest first. Ranks never wait for it: what they write
/// over meanwhile is left out, and a connection that is lost is made again. Its end does not wait
/// for what is under way. `identity`: a worker's.
///
/// Threading: one thread; the loop's only reads the memory. Ownership: shares the memory.
[[nodiscard]] std::shared_ptr<Task> start_sending(
    const EventLoop& loop, const Identity& identity, const Endpoint& to,
    std::shared_ptr<const checkpoint::MemorySnapshots> memory);

/// Sends the snapshot of `step` alone, while no rank writes. Blocks. Errors (failure): the receiver
/// cannot be reached, or takes nothing for `patience`; there is no such snapshot.
[[nodiscard]] Status send_once(const EventLoop& loop, const Identity& identity, const Endpoint& to,
                               const checkpoint::MemorySnapshots& memory, std::int64_t step,
                               std::chrono::milliseconds patience);

/// A launcher's part in the ring of buddies, for one generation of ranks: node n keeps what node
/// n - 1 has in memory, and gives it back when that node comes without. Beside training, never in
/// its way: a link that is slow or cut makes a buddy's copy older, or absent.
///
/// Threading: one thread. Ownership: shares the node's memory as it is at each call, which may be
/// laid out anew until keep().
class BuddyLink {
 public:
  /// None if the node is nobody's buddy, or if it cannot listen (which is said).
  [[nodiscard]] static std::unique_ptr<BuddyLink> open(const EventLoop& loop,
                                                       const CredentialFiles& credentials,
                                                       const RunPlan& plan);

  /// Where this node takes snapshots, HOST:PORT.
  [[nodiscard]] std::string address() const { return to_string(receiver_->endpoint()); }

  /// Gives and takes what the order says; blocks while bytes move. REQUIRES: no rank runs, and
  /// nothing has been kept yet. Errors (failure): they do not move, or not all.
  [[nodiscard]] Status restore(const RestoreMemory& order, NodeMemory& memory);

  /// From here on the next node is sent what is sealed here (`buddy`: its address()), and what the
  /// node before sends is kept. Does not block.
  void keep(const std::string& buddy, const NodeMemory& memory);

 private:
  BuddyLink(const EventLoop& loop, Identity identity, std::unique_ptr<SnapshotReceiver> receiver)
      : loop_(loop), identity_(std::move(identity)), receiver_(std::move(receiver)) {}

  const EventLoop& loop_;
  Identity identity_;
  std::unique_ptr<SnapshotReceiver> receiver_;
  std::shared_ptr<Task> sending_;
};

}  // namespace train::actors
