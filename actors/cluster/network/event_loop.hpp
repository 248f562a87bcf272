#pragma once

#include <future>
#include <memory>

#include "base/joined_thread.hpp"

namespace boost::asio {
class io_context;
}

namespace train::actors {

/// The thread that serves a process's sockets, timers and worker processes, as coroutines of one
/// io_context. What runs there never waits and never computes for long.
///
/// Threading: thread-safe. Ownership: outlives all that is served there.
class EventLoop {
 public:
  EventLoop();
  /// Waits for those that hold() it, at most 1 s; then ends what is left where it stands.
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  [[nodiscard]] boost::asio::io_context& context() const { return *context_; }

  /// Keeps the loop going for as long as it lives: for bytes that are promised but not yet sent.
  [[nodiscard]] std::shared_ptr<void> hold() const { return held_; }

 private:
  std::unique_ptr<boost::asio::io_context> context_;
  std::promise<void> released_;
  std::shared_ptr<void> held_;  // released_ is kept when the last copy goes
  JoinedThread thread_;         // last: it uses all of the above
};

}  // namespace train::actors
