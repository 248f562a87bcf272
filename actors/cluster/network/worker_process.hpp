#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/cluster/network/event_loop.hpp"
#include "base/process/process.hpp"
#include "run/events/outcome.hpp"

namespace train::actors {

/// Exit code of a worker that has lost its head: an environment failure, as if it had been killed.
/// The head may only have been stopped for longer than the network timeout, together with all of
/// its ranks, as batch systems do to make room.
inline constexpr int kExitWithoutHead = 3;

/// Worker processes of one node. The kernel kills each when this process ends in any way, so none
/// is orphaned. They read /dev/null, share standard output and error, inherit only the descriptors
/// given to start(), and ignore stop_signals: a terminal or batch system sends those to every
/// process, but only the head's commands stop a worker.
///
/// Threading: thread-safe, but not on the loop's thread, except start(), which only enqueues. The
/// loop starts all processes (the kernel ties a child's life to the thread that made it), watches
/// them and calls `on_end`.
class WorkerProcesses {
 public:
  /// Called once per start(). REQUIRES: calls nothing of this object except start().
  using OnEnd = std::function<void(const run::WorkerEnd&)>;

  WorkerProcesses(const EventLoop& loop, OnEnd on_end);
  /// Kills running processes and waits for their end.
  ~WorkerProcesses();
  WorkerProcesses(const WorkerProcesses&) = delete;
  WorkerProcesses& operator=(const WorkerProcesses&) = delete;

  /// Starts `words` (a program's path and its arguments) as `rank`. It inherits the descriptors
  /// `inherited` under the same numbers; they stay open here until it has ended.
  void start(std::int32_t rank, std::vector<std::string> words, std::vector<int> inherited = {});

  /// Waits at most `grace` until all have ended by themselves, then kills the rest and waits for
  /// their end. Blocks. Returns the number killed.
  std::size_t terminate_all(std::chrono::milliseconds grace);

 private:
  struct Children;
  const EventLoop& loop_;
  std::shared_ptr<Children> children_;
};

/// Command line that starts this program as a worker.
[[nodiscard]] std::vector<std::string> worker_words(std::int32_t rank, const std::string& head,
                                                    const std::string& credentials);

}  // namespace train::actors
