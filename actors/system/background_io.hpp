#pragma once

#include <cstdint>
#include <functional>

namespace train::actors {

/// Runs the long disk work of saves in the time left by compute threads, so that steps during a
/// save are as fast as others; a fully loaded machine does not starve it.
///
/// Threading: one run() at a time.
class BackgroundIo {
 public:
  enum class Thread : std::uint8_t { own, callers };
  enum class Beside : std::uint8_t {
    steps,   ///< The rank computes steps meanwhile.
    nothing  ///< Its last step is done, and the end of the run waits for the work.
  };

  /// `callers`: run() calls `work` directly; for runs on one thread.
  explicit BackgroundIo(Thread thread = Thread::own) : thread_(thread) {}

  /// Calls `work` on a new thread, waits for it, and rethrows its exception. Beside steps the
  /// thread, and the programs it starts, get only idle cores; or, if the work before took longer
  /// than 3 s, a guaranteed small share (nice 19).
  void run(const std::function<void()>& work, Beside beside = Beside::steps);

 private:
  Thread thread_;
  bool starved_ = false;
};

/// Gives the calling thread, and the programs it starts, the smallest share of a core, without
/// preempting compute threads. Cannot be undone.
void take_smallest_share() noexcept;

}  // namespace train::actors
