#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace train::engine {

/// Wakeup of one owner by any number of ringers through one 32-bit word: the lowest bit says that
/// the owner sleeps, the others count rings. `Word` is that word as a shared futex:
///
///   load(), fetch_add(n), compare_exchange(expected, desired), each sequentially consistent;
///   wait(value): sleeps while the word is `value` and no wake() comes; false: the time is over;
///   wake(): ends every such sleep.
///
/// No ring is missed: the owner notes the rings, checks for the awaited data, and sets the bit only
/// if no ring has come since; it sleeps only while the word keeps that value. A ringer counts its
/// ring after writing the data. A ring before the bit therefore keeps the owner awake, and a ring
/// after the bit finds it and wakes, or changes the word before the owner sleeps on it.
///
/// Only the owner clears the bit: a ringer that cleared it could be stopped or killed before it
/// wakes the owner; later ringers would find no bit, and the owner would sleep on, though rung.
/// A bit that stays too long costs a ringer one system call.
namespace wakeup {

inline constexpr std::uint32_t kSleeps = 1;
inline constexpr std::uint32_t kRing = 2;

template <class Word>
[[nodiscard]] std::uint32_t rings(const Word& word) {
  return word.load() & ~kSleeps;
}

/// From any thread or process. Does not block.
template <class Word>
void ring(Word& word) {
  if ((word.fetch_add(kRing) & kSleeps) != 0) {
    word.wake();
  }
}

/// For the owner: sleeps until a ring after rings() was `seen`; may return earlier.
/// False: the time is over.
template <class Word>
[[nodiscard]] bool sleep(Word& word, std::uint32_t seen) {
  if (!word.compare_exchange(seen, seen | kSleeps)) {
    return true;
  }
  const bool in_time = word.wait(seen | kSleeps);
  word.fetch_add(0U - kSleeps);
  return in_time;
}

}  // namespace wakeup

/// Bytes of one message in an inbox: a header and what is short enough to travel with it.
inline constexpr std::size_t kInboxMessageBytes = 4352;

/// Part of a rank's inbox that one peer writes.
struct InboxDrawer {
  struct Message {
    alignas(64) std::atomic<std::uint64_t> number{0};  ///< Number of the exchange; written last.
    std::array<std::byte, kInboxMessageBytes> bytes = {};
  };
  std::array<Message, 2> messages;                  ///< By the lowest bit of the number.
  alignas(64) std::atomic<std::uint64_t> taken{0};  ///< Number of the last range it has read.
};

/// Futex on which the owner of an inbox sleeps, and the ticket it shows its peers.
struct InboxWakeup {
  alignas(64) std::atomic<std::uint32_t> word{0};    ///< A futex.
  alignas(64) std::atomic<std::uint64_t> ticket{0};  ///< Written by the owner: see DirectMemory.
};

/// Memory of one rank that the ranks of its machine map: an inbox for each channel. Comes from the
/// kernel zeroed and of a fixed size, so an access cannot fail. Unmapped when it is destroyed; the
/// mappings of others remain.
class InboxMemory {
 public:
  /// Creates this rank's memory. Null: the kernel provides none.
  [[nodiscard]] static std::shared_ptr<InboxMemory> make(int world_size, std::uint64_t mark);
  /// Maps another process's memory by the descriptor that it published. Null: the descriptor does
  /// not exist, access is denied, or its memory does not bear `mark`.
  [[nodiscard]] static std::shared_ptr<InboxMemory> of(pid_t process, int descriptor,
                                                       int world_size, std::uint64_t mark);
  InboxMemory(const InboxMemory&) = delete;
  InboxMemory& operator=(const InboxMemory&) = delete;
  ~InboxMemory();

  [[nodiscard]] int descriptor() const { return descriptor_; }
  /// Ends further mapping of the memory.
  void close_descriptor();

  [[nodiscard]] InboxWakeup& wakeup(std::size_t channel) const;
  [[nodiscard]] InboxDrawer& drawer(std::size_t channel, int peer) const;

 private:
  InboxMemory(int descriptor, void* start, std::size_t bytes, int world_size);
  [[nodiscard]] static std::shared_ptr<InboxMemory> map(int descriptor, int world_size);
  [[nodiscard]] std::atomic<std::uint64_t>& mark() const;

  int descriptor_;
  std::byte* start_;
  std::size_t bytes_;
  int world_size_;
};

/// The messages of one rank with those of its machine, on one channel.
///
/// The exchanges of a pair are numbered from 1 at both ends alike. In the n-th each side sends the
/// other one message; after a range that is read out of the sender's memory the reader says taken.
///
/// No message is overwritten before it has been read: the n-th takes the place of the (n-2)-th.
/// The sender of the n-th has ended its (n-1)-th exchange, so it has seen the peer's (n-1)-th
/// message; the peer sent that message after the end of its own (n-2)-th exchange, in which it read
/// the (n-2)-th message. Each of these steps is a release store met by an acquire load. A failed
/// link sends nothing any more.
///
/// A writer rings the reader's wakeup; a ring costs a system call only if the reader sleeps.
///
/// Threading: one owner; ring_own() from any thread.
class SharedInbox {
 public:
  using Clock = std::chrono::steady_clock;

  /// `peers`: by rank, null for those that are not reached this way (the own included).
  SharedInbox(int rank, std::size_t channel, std::shared_ptr<InboxMemory> own,
              std::vector<std::shared_ptr<InboxMemory>> peers);

  [[nodiscard]] bool reaches(int peer) const {
    return peers_[static_cast<std::size_t>(peer)] != nullptr;
  }
  /// Writes `header` and `small`, at most kInboxMessageBytes together, into the peer's inbox.
  void send(int peer, std::uint64_t number, std::span<const std::byte> header,
            std::span<const std::byte> small);
  /// Message `number` of the peer; null until it has arrived. Valid until this rank's next message
  /// but one to the peer.
  [[nodiscard]] const std::byte* message(int peer, std::uint64_t number) const;

  void say_taken(int peer, std::uint64_t number);
  [[nodiscard]] bool taken(int peer, std::uint64_t number) const;

  /// Word that peers see as ticket_of().
  [[nodiscard]] std::atomic<std::uint64_t>& ticket() { return own_->wakeup(channel_).ticket; }
  [[nodiscard]] const std::atomic<std::uint64_t>& ticket_of(int peer) const;

  [[nodiscard]] std::uint32_t rings() const;
  /// Sleeps until the inbox has been rung since rings() was `seen`; may return earlier. False: at
  /// `deadline`.
  [[nodiscard]] bool sleep(std::uint32_t seen, Clock::time_point deadline);
  void ring_own();

 private:
  [[nodiscard]] InboxDrawer& at_peer(int peer) const;
  [[nodiscard]] InboxDrawer& own_drawer(int peer) const { return own_->drawer(channel_, peer); }

  int rank_;
  std::size_t channel_;
  std::shared_ptr<InboxMemory> own_;
  std::vector<std::shared_ptr<InboxMemory>> peers_;
};

}  // namespace train::engine
