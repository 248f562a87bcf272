#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "base/process/steady_time.hpp"
#include "kernels/device/stream.hpp"

namespace train::test {

/// Stream that runs its work only on request of the test. Streams that share `clock` number their
/// work in the order of enqueuing. One thread, except that run_next() may come from a helper.
class ManualStream final : public kernels::Stream {
 public:
  using Clock = std::shared_ptr<std::uint64_t>;

  explicit ManualStream(Clock clock) : clock_(std::move(clock)) {}

  void enqueue(Work work) override {
    if (failure_) {
      return;
    }
    if (queue_.empty()) {
      since_ns_ = steady_now_ns();
    }
    queue_.push_back({.work = std::move(work), .mark = mark_, .ticket = (*clock_)++});
  }

  void mark(kernels::Mark mark) override { mark_ = mark; }

  [[nodiscard]] kernels::Mark current(std::int64_t& since_ns) const override {
    since_ns = queue_.empty() ? 0 : since_ns_;
    return next_mark();
  }

  void synchronize() override {
    run_all();
    if (failure_) {
      std::rethrow_exception(failure_->error);
    }
  }

  void on_failure(FailureHandler handler) override {
    handler_ = std::move(handler);
    report();
  }

  [[nodiscard]] int threads() const override { return 1; }

  /// Runs the oldest work item. REQUIRES: pending() > 0.
  void run_next() {
    const Item item = std::move(queue_.front());
    queue_.pop_front();
    since_ns_ = steady_now_ns();
    try {
      item.work();
    } catch (...) {
      failure_ = std::make_unique<kernels::StreamFailure>(
          kernels::StreamFailure{item.mark, std::current_exception()});
      queue_.clear();
      report();
    }
  }
  /// Throws `error` in place of the oldest work item. REQUIRES: pending() > 0.
  void fail_next(std::exception_ptr error) {
    queue_.front().work = [error = std::move(error)] { std::rethrow_exception(error); };
  }
  void run_all() {
    while (!queue_.empty()) {
      run_next();
    }
  }

  [[nodiscard]] std::size_t pending() const { return queue_.size(); }
  [[nodiscard]] std::uint64_t next_ticket() const { return queue_.front().ticket; }
  /// Returns the mark of the oldest pending work item.
  [[nodiscard]] kernels::Mark next_mark() const {
    return queue_.empty() ? mark_ : queue_.front().mark;
  }
  [[nodiscard]] bool next_is(std::string_view what) const {
    return !queue_.empty() && queue_.front().mark.what == what;
  }

  bool held = false;  ///< Work is held back; used by the driver of the streams.

 private:
  struct Item {
    Work work;
    kernels::Mark mark;
    std::uint64_t ticket = 0;
  };

  void report() {
    if (failure_ && handler_ && !std::exchange(reported_, true)) {
      handler_(*failure_);
    }
  }

  Clock clock_;
  std::deque<Item> queue_;
  kernels::Mark mark_;
  std::int64_t since_ns_ = 0;
  std::unique_ptr<kernels::StreamFailure> failure_;
  FailureHandler handler_;
  bool reported_ = false;
};

}  // namespace train::test
