#pragma once

#include <cstdint>

namespace train::engine {

/// How one owner sleeps and others ring, in one 32-bit word: whether the owner sleeps in the lowest
/// bit, the count of rings in the others. `Word` is that word as a shared futex:
///
///   load(), fetch_add(n), compare_exchange(expected, desired), each sequentially consistent;
///   wait(value): sleeps while the word is `value` and nobody wakes; false: the time is over;
///   wake(): ends every such sleep.
///
/// Why no ring is missed. The owner notes the rings, looks at what it waits for, and sets the bit
/// only if nobody has rung since; it sleeps only while the word is what it then was. Who rings
/// counts it after writing what is waited for. So a ring before the bit keeps the owner awake, and
/// one after it finds the bit and wakes, or changes the word before the owner sleeps on it.
///
/// Why only the owner takes the bit away: a ringer that did could be stopped before it wakes, or
/// killed there; those after it would find no bit, and the owner would sleep on, though rung.
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

/// For the owner: sleeps until somebody has rung since rings() was `seen`; may return earlier.
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
}  // namespace train::engine
