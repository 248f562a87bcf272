#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "actors/cluster/network/event_loop.hpp"

// Coroutines of the event loop. Only for sources of actors/cluster: the library's headers are
// large.
namespace train::actors {

namespace asio = boost::asio;

/// Returns errors as values: `auto [error, size] = co_await ...(kUseTuple)`.
inline constexpr auto kUseTuple = asio::as_tuple(asio::use_awaitable);

[[nodiscard]] inline asio::awaitable<void> pause(std::chrono::milliseconds time) {
  asio::steady_timer timer(co_await asio::this_coro::executor, time);
  co_await timer.async_wait(kUseTuple);
}

/// Completion handler of a detached coroutine: logs its exception, unless it was cancelled.
void log_failure(const std::exception_ptr& thrown);

/// Runs a coroutine on the loop and waits for its result. REQUIRES: not on the loop's thread.
template <class T>
T run_on(const EventLoop& loop, asio::awaitable<T> coroutine) {
  std::optional<T> result;  // The library's own way needs a default-constructible T.
  const auto fill = [](asio::awaitable<T> own, std::optional<T>& into) -> asio::awaitable<void> {
    into = co_await std::move(own);
  };
  asio::co_spawn(loop.context(), fill(std::move(coroutine), result), asio::use_future).get();
  return std::move(*result);
}

/// Calls `function` on the loop's thread and waits for it. REQUIRES: not on that thread.
template <class Function>
void call_on(const EventLoop& loop, Function function) {
  asio::post(loop.context(), asio::use_future(std::move(function))).get();
}

/// Coroutine on the loop with the lifetime of this object: the destructor cancels its waits and
/// returns when it has ended. Threading: REQUIRES: not on the loop's thread.
class Task {
 public:
  Task(const EventLoop& loop, asio::awaitable<void> coroutine);
  ~Task();
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

 private:
  struct State {
    asio::cancellation_signal cancel;
    std::promise<void> over;
  };
  const EventLoop& loop_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace train::actors
