#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/cluster/network/event_loop.hpp"
#include "base/process.hpp"

namespace train::actors {

/// The exit code of a worker that has lost its head: the world's doing, as if it had been killed.
/// The head may only have stood still for longer than the network waits for a word of it, stopped
/// together with all of its ranks, as batch systems do to make room.
inline constexpr int kExitWithoutHead = 3;

/// How a worker process ended.
struct WorkerEnd {
  std::int32_t rank = 0;
  pid_t pid = -1;      ///< -1: it could not be started.
  std::string text;    ///< "exit code 1", "killed by SIGKILL", or why it could not be started.
  bool clean = false;  ///< Exit code 0.
  /// By a signal from outside, not one that an error of its own raises; or kExitWithoutHead.
  bool killed = false;
  /// By a signal, and terminate_all() had not sent one.
  bool unasked = false;
};

/// The worker processes of one node. Each is killed by the kernel when this process ends, however
/// it ends, so none is ever orphaned. They read /dev/null, share standard output and error, inherit
/// no other descriptor but those of start(), and ignore stop_signals: a terminal or
/// a batch system sends those to every process, but only commands of the head stop a worker.
///
/// Threading: thread-safe, but not on the loop's thread, except start(), which only enqueues. The
/// loop starts all processes (the kernel ties a child's life to the thread that made it), watches
/// them and calls `on_end`.
class WorkerProcesses {
 public:
  /// Called once for every start(). REQUIRES: does not call back into this but for start().
  using OnEnd = std::function<void(const WorkerEnd&)>;

  WorkerProcesses(const EventLoop& loop, OnEnd on_end);
  /// Kills what still runs and waits for its end.
  ~WorkerProcesses();
  WorkerProcesses(const WorkerProcesses&) = delete;
  WorkerProcesses& operator=(const WorkerProcesses&) = delete;

  /// Starts `words` (a program's path and its arguments) as `rank`. It inherits the descriptors
  /// `inherited`, under their numbers; they stay open here until it has ended.
  void start(std::int32_t rank, std::vector<std::string> words, std::vector<int> inherited = {});

  /// Waits until all have ended by themselves, at most `grace`; then kills the rest and waits for
  /// their end. Blocks. The number of those that had to be killed.
  std::size_t terminate_all(std::chrono::milliseconds grace);

 private:
  struct Children;
  const EventLoop& loop_;
  std::shared_ptr<Children> children_;
};

/// The words that start this very program as a worker.
[[nodiscard]] std::vector<std::string> worker_words(std::int32_t rank, const std::string& head,
                                                    const std::string& credentials);

}  // namespace train::actors
