#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "actors/cluster/network/credentials.hpp"
#include "actors/cluster/network/snapshot_receiver.hpp"
#include "actors/cluster/network/snapshot_sender.hpp"
#include "actors/cluster/recovery/node_memory.hpp"
#include "actors/head/run_plan.hpp"
#include "actors/messages/cluster_messages.hpp"
#include "base/result.hpp"

namespace train::actors {

/// A launcher's part in the ring of buddies, for one generation of ranks: node n keeps what node
/// n - 1 has in memory, and gives it back when that node comes without. Beside training, never in
/// its way: a link that is slow or cut makes a buddy's copy older, or absent.
///
/// Threading: one thread. Ownership: shares the node's memory as it is at each call, which may be
/// laid out anew until keep().
class BuddyLink {
 public:
  /// None if the node is nobody's buddy, or if it cannot listen (which is said).
  [[nodiscard]] static std::unique_ptr<BuddyLink> open(const CredentialFiles& credentials,
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
  BuddyLink(CredentialFiles credentials, std::unique_ptr<SnapshotReceiver> receiver)
      : credentials_(std::move(credentials)), receiver_(std::move(receiver)) {}

  CredentialFiles credentials_;
  std::unique_ptr<SnapshotReceiver> receiver_;
  std::unique_ptr<SnapshotSender> sender_;
};

}  // namespace train::actors
