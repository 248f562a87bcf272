#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/result.hpp"

namespace train::storage {

/// Keeps a second process out of the directory of a run for as long as it lives (ST-2), also where
/// the kernel alone cannot: on file systems without locks, and where a server keeps the lock of a
/// client that is dead.
///
/// `<directory>/run.lock` is locked (flock: a process of the same machine drops it however it ends)
/// and says who has it: process, machine, batch job, a random word of this lock, a number that
/// grows with every owner, and a beat that the owner counts up every two seconds. Whoever finds one
/// that was not given back watches the beat, by its own clock:
///   - owner of this machine: alive, as the lock says; or else it has ended, and there is no wait,
///     unless the file system has no locks and the owner is in another container: then as below;
///   - of another machine, and not locked: taken over when the beat has stood still for a while;
///   - of another machine, and locked: the same after a minute, with a new file in its place.
/// One that was taken over finds out before it publishes anything, and ends: check().
///
/// Threading: one owner; a thread counts the beat.
class RunLock {
 public:
  struct Timing {
    std::chrono::milliseconds beat{2000};
    std::chrono::milliseconds look{100};          ///< Between looks at another's.
    std::chrono::milliseconds unlocked{10'000};   ///< Of stillness, where nothing is locked.
    std::chrono::milliseconds locked{60'000};     ///< The same where the lock is held.
    std::chrono::milliseconds same_job{120'000};  ///< For an earlier start of this very batch job.
  };
  /// What ends the process when the directory has become another's; it does not return.
  using OnLost = std::function<void(const std::string& text)>;

  /// Blocks while it watches another's beat; ends early for a signal that asks to stop. Errors: in
  /// use (user; names process, machine and job); not writable (user); stopped (failure).
  static Result<RunLock> acquire(const std::filesystem::path& directory, OnLost on_lost,
                                 const Timing& timing);
  static Result<RunLock> acquire(const std::filesystem::path& directory, OnLost on_lost) {
    return acquire(directory, std::move(on_lost), Timing());
  }

  RunLock(RunLock&&) noexcept;
  RunLock& operator=(RunLock&&) noexcept;
  ~RunLock();  ///< Gives it back, and says so in the file.

  /// Reads the file: nobody has taken the directory over. Calls OnLost if somebody has. Errors
  /// (failure): the file cannot be read, which is no word of anybody. Blocks.
  [[nodiscard]] Status check() const;
  /// check(), for as long as this lives, wherever it is moved.
  [[nodiscard]] std::function<Status()> checks() const;

 private:
  class Holder;
  explicit RunLock(std::unique_ptr<Holder> holder);

  std::unique_ptr<Holder> holder_;
};

}  // namespace train::storage
