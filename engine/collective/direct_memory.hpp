#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/collective/shared_inbox.hpp"

namespace train::engine {

class TcpLink;

/// Note of a rank to the others, with which they try to reach its memory.
struct DirectNote {
  std::array<char, 40> machine = {};  ///< The boot id; empty: this rank takes no part.
  std::int64_t process = 0;
  std::uint64_t address = 0;  ///< Address of a word that holds `value`.
  std::uint64_t value = 0;    ///< Also the mark of the inbox.
  std::int32_t inbox = -1;    ///< File descriptor, in that process.
};

/// Memory of the peers as this rank reaches it.
struct LocalRanks {
  std::shared_ptr<InboxMemory> own;  ///< Null: this rank takes no part.
  /// By rank. Null: over the connection, in both directions.
  std::vector<std::shared_ptr<InboxMemory>> inboxes;
  std::vector<pid_t> processes;  ///< By rank.
};

/// Address of the bytes of an exchange in the sender's memory.
struct DirectOffer {
  std::uint64_t address = 0;  ///< First byte for the rank that is told.
  std::uint64_t ticket_address =
      0;  ///< Address of a word that holds `ticket` as long as the bytes are valid.
  std::uint64_t ticket = 0;
};

/// Finds out which ranks can read each other's memory and write to each other's inbox: each tells a
/// random word, where it lies, and where its inbox is; a pair is local if each side finds the
/// other's word in both. So a process id of another namespace, a refusal of the kernel or another
/// machine only means that bytes go over the connection. All ranks call it at the same point;
/// blocks for two exchanges. `wanted` false: this rank takes no part.
///
/// The kernel decides about access (process_vm_readv(2), proc(5) on /proc/PID/fd): only the same
/// user, with at most the same privileges. Where Yama restricts access to ancestors, this process
/// permits the other processes of its user, for as long as it lives.
/// Errors: those of an exchange.
[[nodiscard]] Result<LocalRanks> agree_on_local(TcpLink& link, std::uint64_t generation,
                                                bool wanted);

/// Reading of ranges out of the memory of ranks on the same machine: for one link.
///
/// Correctness of the bytes read: a range is borrowed, unchanged, from offer() to the end of the
/// exchange at the sender. Normally that ends after every reader has reported that it has read. If
/// it ends otherwise (cancelled, a lost rank, the destructor), the sender withdraws its ticket
/// (revoke()) before it releases the memory. A reader checks the ticket after the bytes: if it is
/// still valid, no memory had been released when the last byte was read, as with a sequence lock:
/// sender: ticket, fence, other content; reader: content, fence, ticket. So a confirmation needs no
/// confirmation, and a reader that succeeds while the sender fails has valid bytes, like one whose
/// bytes all came over a connection.
///
/// The ticket lies in memory that both map, where a look costs nothing, but outlives the process
/// there. So the call that reads the bytes reads it as well, out of the same process. Tickets are
/// random and never come again: another process under the number of a dead one does not show them.
/// A dead process has no memory: reading it is an error.
///
/// Threading: one owner.
class DirectMemory {
 public:
  DirectMemory();

  /// The ticket of this rank, and where this process sees that of each peer: borrowed. Null for
  /// those that are not read.
  void set(std::atomic<std::uint64_t>& own, std::vector<const std::atomic<std::uint64_t>*> peers,
           std::vector<pid_t> processes);

  /// Before the first offer() of an exchange: a new ticket.
  void begin();
  [[nodiscard]] DirectOffer offer(std::span<const std::byte> bytes) const;
  /// From here on readers of what was offered fail.
  void revoke();

  /// Copies what a peer has offered into `place`; blocks while it does. Looks between chunks of 16
  /// MiB whether the offer holds, and asks `stop`. Result: why it did not succeed, if it did not.
  [[nodiscard]] std::optional<std::string> read(int peer, const DirectOffer& offer,
                                                std::span<std::byte> place,
                                                const std::function<bool()>& stop) const;

 private:
  std::vector<const std::atomic<std::uint64_t>*> tickets_;  ///< By rank.
  std::vector<pid_t> processes_;                            ///< By rank.
  std::uint64_t next_ticket_;
  std::atomic<std::uint64_t>* ticket_ = nullptr;
};

}  // namespace train::engine
