#pragma once

#include <future>
#include <memory>

#include "base/process/joined_thread.hpp"

namespace boost::asio {
class io_context;
}

namespace train::actors {

/// Thread that serves a process's sockets, timers and worker processes, as coroutines of one
/// io_context. Its coroutines never block and never compute for long.
///
/// Threading: thread-safe. Ownership: outlives everything it serves.
class EventLoop {
 public:
  EventLoop();
  /// Waits at most 1 s for holders of hold(); then cancels the rest.
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  [[nodiscard]] boost::asio::io_context& context() const { return *context_; }

  /// Keeps the loop running while the result lives: for bytes not yet sent.
  [[nodiscard]] std::shared_ptr<void> hold() const { return held_; }

 private:
  std::unique_ptr<boost::asio::io_context> context_;
  std::promise<void> released_;
  std::shared_ptr<void> held_;  // Sets released_ when the last copy is destroyed.
  JoinedThread thread_;         // Declared last, as it uses the members above.
};

}  // namespace train::actors
