#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.hpp"
#include "base/process/joined_thread.hpp"
#include "base/process/steady_time.hpp"
#include "kernels/device/stream.hpp"
#include "kernels/device/trace.hpp"
#include "kernels/thread_team.hpp"

namespace train::kernels {
namespace {

/// Queue entry: work, or a mark if `work` is empty.
struct Item {
  Stream::Work work;
  Mark mark;
};

class ThreadStream final : public Stream {
 public:
  ThreadStream(std::string name, int threads) : threads_(threads) {
    TRAIN_CHECK(threads >= 1, "a stream needs at least one thread, not {}", threads);
    const SignalsBlocked blocked;
    thread_ = JoinedThread([this] { run(); });
    name.resize(std::min(name.size(), kMaxThreadName));
    pthread_setname_np(thread_.native_handle(), name.c_str());
  }

  ~ThreadStream() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  void enqueue(Work work) override {
    TRAIN_CHECK(work != nullptr, "a stream cannot run empty work");
    push({.work = std::move(work), .mark = {}});
  }

  void mark(Mark mark) override { push({.work = {}, .mark = mark}); }

  [[nodiscard]] Mark current(std::int64_t& since_ns) const override {
    const std::lock_guard lock(mutex_);
    since_ns = since_ns_;
    return current_;
  }

  [[nodiscard]] bool waits() const override { return waits_.load(std::memory_order_relaxed); }

  void synchronize() override {
    TRAIN_CHECK(std::this_thread::get_id() != thread_.get_id(), "a stream cannot wait for itself");
    std::unique_lock lock(mutex_);
    const std::uint64_t target = enqueued_;
    done_.wait(lock, [&] {
      const bool done = finished_ >= target;
      awaited_ = done ? awaited_ : std::min(awaited_, target);
      return done;
    });
    if (failure_) {
      std::rethrow_exception(failure_->error);
    }
  }

  void on_failure(FailureHandler handler) override {
    {
      const std::lock_guard lock(mutex_);
      handler_ = std::move(handler);
    }
    wake_.notify_one();
  }

  [[nodiscard]] int threads() const override { return threads_; }

  void start_trace(std::size_t capacity) override {
    const std::lock_guard lock(mutex_);
    TRAIN_CHECK(!tracer_, "a stream's trace is started once");
    tracer_ = std::make_unique<StreamTracer>(capacity);
  }

  [[nodiscard]] Trace trace() const override {
    const std::lock_guard lock(mutex_);
    return tracer_ ? tracer_->trace(steady_now_ns()) : Trace();
  }

 private:
  static constexpr std::size_t kMaxThreadName = 15;  // The kernel's limit, without the terminating
                                                     // zero.
  static constexpr auto kNobodyWaits = std::numeric_limits<std::uint64_t>::max();

  void push(Item item) {
    bool was_idle = false;
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(item));
      ++enqueued_;
      was_idle = waiting_;
    }
    if (was_idle) {
      wake_.notify_one();
    }
  }

  [[nodiscard]] bool report_due() const { return failure_ && handler_ && !reported_; }

  void run() {
    show_waits_in(waits_);
    std::unique_lock lock(mutex_);
    while (true) {
      if (report_due()) {
        report(lock);
      } else if (!queue_.empty()) {
        run_front(lock);
      } else if (stopping_) {
        return;
      } else {
        since_ns_ = 0;
        if (tracer_) {
          tracer_->pause();
        }
        waiting_ = true;
        wake_.wait(lock, [this] { return stopping_ || report_due() || !queue_.empty(); });
        waiting_ = false;
      }
    }
  }

  void run_front(std::unique_lock<std::mutex>& lock) {
    Item item = std::move(queue_.front());
    queue_.pop_front();
    if (failure_) {
      lock.unlock();
      item.work = nullptr;  // Destroyed outside the lock, as dropping work may touch other streams.
      lock.lock();
    } else if (!item.work) {
      current_ = item.mark;
      since_ns_ = steady_now_ns();
      if (tracer_) {
        tracer_->pause();
      }
    } else {
      run_work(lock, item);
    }
    if (++finished_ >= awaited_) {
      awaited_ = kNobodyWaits;
      done_.notify_all();  // Callers that wait for a later item set it again.
    }
  }

  void run_work(std::unique_lock<std::mutex>& lock, Item& item) {
    if (since_ns_ == 0) {
      since_ns_ = steady_now_ns();
    }
    const bool traced = tracer_ != nullptr;
    if (traced) {
      tracer_->begin(current_, steady_now_ns());
    }
    lock.unlock();
    std::exception_ptr error;
    try {
      item.work();
    } catch (...) {
      error = std::current_exception();
    }
    item.work = nullptr;
    lock.lock();
    if (traced) {
      tracer_->end(steady_now_ns());
    }
    if (error) {
      failure_ = std::make_unique<StreamFailure>(StreamFailure{current_, error});
    }
  }

  void report(std::unique_lock<std::mutex>& lock) {
    reported_ = true;
    const FailureHandler handler = handler_;
    const StreamFailure failure = *failure_;
    lock.unlock();
    handler(failure);
    lock.lock();
  }

  const int threads_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;  // Wakes the stream's thread: there is work.
  std::condition_variable done_;  // Wakes `synchronize`: the awaited item has finished.
  std::deque<Item> queue_;
  std::uint64_t enqueued_ = 0;
  std::uint64_t finished_ = 0;
  /// First item that a caller of `synchronize` waits for. Waking the caller for an earlier item
  /// would take a core from the computing threads.
  std::uint64_t awaited_ = kNobodyWaits;
  bool waiting_ = false;
  bool stopping_ = false;
  bool reported_ = false;
  Mark current_;
  std::int64_t since_ns_ = 0;
  std::atomic<bool> waits_{false};
  std::unique_ptr<StreamFailure> failure_;
  FailureHandler handler_;
  std::unique_ptr<StreamTracer> tracer_;  // Null: no trace is kept.
  JoinedThread thread_;
};

}  // namespace

std::unique_ptr<Stream> make_thread_stream(std::string name, int threads) {
  return std::make_unique<ThreadStream>(std::move(name), threads);
}

}  // namespace train::kernels
