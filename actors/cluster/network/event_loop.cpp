#include "actors/cluster/network/event_loop.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>

namespace train::actors {
namespace {

constexpr std::chrono::seconds kFlushTime{1};

}  // namespace

EventLoop::EventLoop()
    : context_(std::make_unique<boost::asio::io_context>(1)),
      held_(nullptr, [this](void*) { released_.set_value(); }),
      thread_([this] {
        const auto work = boost::asio::make_work_guard(*context_);
        context_->run();
      }) {}

EventLoop::~EventLoop() {
  auto released = released_.get_future();
  held_.reset();
  released.wait_for(kFlushTime);
  context_->stop();
  thread_.join();
  context_.reset();  // With its coroutines, before the objects that their holds refer to.
}

}  // namespace train::actors
