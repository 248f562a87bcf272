#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/result.hpp"

namespace train::engine {

class GlooLink;

/// What a rank tells the others so that they can try to read its memory.
struct DirectNote {
  std::array<char, 40> machine = {};  ///< The boot id; empty: this rank takes no part.
  std::int64_t process = 0;
  std::uint64_t address = 0;  ///< Of a word that holds `value`.
  std::uint64_t value = 0;
};

/// Between this rank and one other: either direction may work without the other.
struct DirectPeer {
  pid_t process = 0;
  bool read = false;  ///< This rank reads the other's memory.
  bool lent = false;  ///< The other reads this rank's.
};

/// Where the bytes of an exchange lie in the memory of the one that sends them.
struct DirectOffer {
  std::uint64_t address = 0;         ///< First byte for the rank that is told.
  std::uint64_t ticket_address = 0;  ///< Of a word that holds `ticket` for as long as they do.
  std::uint64_t ticket = 0;
};

/// Finds out which ranks can read each other's memory: each tells a random word and where it lies,
/// and a pair reads if the reader finds that word there. So a process id of another namespace, a
/// refusal of the kernel or another machine only means that bytes go over the connection. All ranks
/// call it at the same point; blocks for two exchanges. `wanted` false: this rank takes no part.
///
/// Who may read whom is the kernel's decision (process_vm_readv(2)): the same user, with the same
/// privileges at most. Where Yama restricts that to ancestors this process gives the other
/// processes of its user leave, for as long as it lives.
/// Errors: those of an exchange.
[[nodiscard]] Result<std::vector<DirectPeer>> agree_on_direct(GlooLink& link,
                                                              std::uint64_t generation,
                                                              bool wanted);

/// Reading of ranges out of the memory of ranks on the same machine: for one link.
///
/// Why what was read is what was sent. A range is borrowed, unchanged, from offer() to the end of
/// the exchange at the sender. In order that ends after every reader has said that it has read. If
/// it ends in another way (cancelled, a lost rank, the destructor) the sender takes its ticket back
/// (revoke()) before it lets go of the memory. A reader looks at the ticket after the bytes: if it
/// is still there, nothing had been let go of when the last byte was read, in the manner of a
/// sequence lock: sender: ticket, fence, other content; reader: content, fence, ticket. So nobody
/// needs to confirm a confirmation, and a reader that succeeds while the sender fails has good
/// bytes, as one whose bytes had all come over a connection. Tickets are random and never come
/// again, so memory that is given to something else, or to another process under the number of a
/// dead one, does not show them. A dead process has no memory: reading it is an error.
///
/// Threading: one owner.
class GlooDirect {
 public:
  explicit GlooDirect(int world_size);

  void set(std::vector<DirectPeer> peers) { peers_ = std::move(peers); }
  /// Whether this rank reads `bytes` bytes of that peer directly, or the peer this rank's.
  [[nodiscard]] bool reads(int peer, std::size_t bytes) const;
  [[nodiscard]] bool lends(int peer, std::size_t bytes) const;

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
  std::vector<DirectPeer> peers_;  ///< By rank.
  std::uint64_t next_ticket_;
  std::atomic<std::uint64_t> ticket_{0};
};

}  // namespace train::engine
