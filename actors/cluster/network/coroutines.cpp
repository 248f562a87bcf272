#include "actors/cluster/network/coroutines.hpp"

#include <fmt/format.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/system/system_error.hpp>
#include <exception>
#include <new>

#include "base/text/log.hpp"

namespace train::actors {

void log_failure(const std::exception_ptr& thrown) {
  if (!thrown) {
    return;
  }
  try {
    std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    std::terminate();  // Somebody waits for what the coroutine was to do.
  } catch (const std::exception& failure) {
    const auto* const ended = dynamic_cast<const boost::system::system_error*>(&failure);
    if (ended == nullptr || ended->code() != asio::error::operation_aborted) {
      log_warning(fmt::format("network_failed {}", failure.what()));
    }
  }
}

Task::Task(const EventLoop& loop, asio::awaitable<void> coroutine) : loop_(loop) {
  auto over = [state = state_](const std::exception_ptr& thrown) {
    log_failure(thrown);
    state->over.set_value();
  };
  // Started on the loop: its thread alone may use the signal.
  auto begin = [&] {
    asio::co_spawn(loop.context(), std::move(coroutine),
                   asio::bind_cancellation_slot(state_->cancel.slot(), std::move(over)));
  };
  call_on(loop, begin);
}

Task::~Task() {
  asio::post(loop_.context(),
             [state = state_] { state->cancel.emit(asio::cancellation_type::terminal); });
  state_->over.get_future().wait();
}

}  // namespace train::actors
