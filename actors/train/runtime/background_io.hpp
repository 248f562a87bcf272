#pragma once

#include <cstdint>
#include <functional>

namespace train::actors {

/// Runs the long disk work of saves in the time that computing threads leave over, so that the
/// steps beside a save are as fast as others; a machine that leaves none does not starve it.
///
/// Threading: one run() at a time.
class BackgroundIo {
 public:
  enum class Thread : std::uint8_t { own, callers };

  /// `callers`: run() only calls `work`; for runs on one thread.
  explicit BackgroundIo(Thread thread = Thread::own) : thread_(thread) {}

  /// Calls `work` on a thread of its own and waits for its end; what it throws is thrown here.
  /// That thread, and the programs it starts, have a core only while nobody else wants it; or, if
  /// the work before took longer than 3 s, a small share of one in any case (nice 19).
  void run(const std::function<void()>& work);

 private:
  Thread thread_;
  bool starved_ = false;
};

/// Gives the calling thread, and the programs it starts, the smallest share of a core that there
/// is, and no right to push a computing thread aside. Cannot be undone.
void take_smallest_share() noexcept;

}  // namespace train::actors
