#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/result.hpp"

namespace train::storage {

/// Keeps other processes out of a run's directory while it lives (ST-2), also where the kernel
/// alone cannot: on file systems without locks, and where a server keeps the lock of a dead client.
///
/// `<directory>/run.lock` is locked (flock: released however a process of the same machine ends)
/// and names its owner: process, machine, batch job, a random word of this lock, a number that
/// grows with every owner, and a beat that the owner increments every two seconds. A process that
/// finds a lock that was not released watches the beat, by its own clock:
///   - owner on this machine: alive if the flock is held; otherwise it has ended, without a wait,
///     unless the file system has no locks and the owner is in another container: then as below;
///   - owner on another machine, not locked: taken over when the beat has stopped for a while;
///   - owner on another machine, locked: taken over after a minute, with a new file in its place.
/// An owner whose lock was taken over notices before it publishes anything, and ends: check().
///
/// Threading: one owner; a thread increments the beat.
class RunLock {
 public:
  struct Timing {
    std::chrono::milliseconds beat{2000};
    std::chrono::milliseconds look{100};          ///< Interval between looks at another's lock.
    std::chrono::milliseconds unlocked{10'000};   ///< Time without a beat, if nothing is locked.
    std::chrono::milliseconds locked{60'000};     ///< Time without a beat, if the lock is held.
    std::chrono::milliseconds same_job{120'000};  ///< Time to wait for an earlier start of this
                                                  ///< batch job.
  };
  /// Ends the process when another process has taken the directory over; does not return.
  using OnLost = std::function<void(const std::string& text)>;

  /// Blocks while it watches another's beat; returns early on a stop signal. Errors: in use (user;
  /// names process, machine and job); not writable (user); stopped (failure).
  static Result<RunLock> acquire(const std::filesystem::path& directory, OnLost on_lost,
                                 const Timing& timing);
  static Result<RunLock> acquire(const std::filesystem::path& directory, OnLost on_lost) {
    return acquire(directory, std::move(on_lost), Timing());
  }

  RunLock(RunLock&&) noexcept;
  RunLock& operator=(RunLock&&) noexcept;
  ~RunLock();  ///< Releases the lock, and notes that in the file.

  /// Reads the file and calls OnLost if another process has taken the directory over. Errors
  /// (failure): the file cannot be read, which proves nothing. Blocks.
  [[nodiscard]] Status check() const;
  /// check(), valid as long as this object lives, also when moved.
  [[nodiscard]] std::function<Status()> checks() const;

 private:
  class Holder;
  explicit RunLock(std::unique_ptr<Holder> holder);

  std::unique_ptr<Holder> holder_;
};

}  // namespace train::storage
