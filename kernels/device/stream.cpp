#include "kernels/device/stream.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/check.hpp"
#include "base/process/steady_time.hpp"
#include "kernels/device/trace.hpp"

namespace train::kernels {

void Stream::submit(Work work) { enqueue(std::move(work)); }

void Stream::notify(Work work) { enqueue(std::move(work)); }

std::shared_ptr<DevicePoint> Stream::make_point() { return nullptr; }

void Stream::await(const DevicePoint& point) {
  note_wait();
  point.wait();
  note_wait_over();
}

bool Stream::waits() const { return false; }

void Stream::start_trace(std::size_t /*capacity*/) {}

Trace Stream::trace() const { return {}; }

struct Event::State {
  enum class Phase : std::uint8_t { pending, reached, abandoned };

  void finalize(Phase to) {
    {
      const std::lock_guard lock(mutex);
      if (phase.load(std::memory_order_relaxed) != Phase::pending) {
        return;
      }
      phase.store(to, std::memory_order_release);
    }
    changed.notify_all();
  }

  /// Blocks. Returns false if the recording stream failed first.
  bool wait() {
    std::unique_lock lock(mutex);
    if (phase.load() == Phase::pending) {
      note_wait();
    }
    changed.wait(lock, [this] { return phase.load() != Phase::pending; });
    note_wait_over();
    return phase.load() == Phase::reached;
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<Phase> phase = Phase::pending;
  std::shared_ptr<DevicePoint> point;  // nullptr: reached with the phase. Set before everything
                                       // else.
};

Event Event::record(Stream& stream) {
  /// Lives as long as the queued work: a failed stream drops the work without running it, and its
  /// waiters must be told instead of waiting for ever.
  struct Ticket {
    explicit Ticket(std::shared_ptr<State> of) : state(std::move(of)) {}
    ~Ticket() { state->finalize(State::Phase::abandoned); }
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    std::shared_ptr<State> state;
  };
  Event event;
  event.state_ = std::make_shared<State>();
  event.state_->point = stream.make_point();
  stream.submit([ticket = std::make_shared<Ticket>(event.state_)] {
    if (ticket->state->point) {
      ticket->state->point->record();
    }
    ticket->state->finalize(State::Phase::reached);
  });
  return event;
}

void Event::wait_on(Stream& stream) const {
  if (reached()) {
    return;
  }
  stream.submit([state = state_, &stream] {
    if (!state->wait()) {
      throw DeviceError("event: the stream that was to reach it has failed");
    }
    if (state->point) {
      stream.await(*state->point);
    }
  });
}

bool Event::reached() const {
  return !state_ || (state_->phase.load(std::memory_order_acquire) == State::Phase::reached &&
                     (!state_->point || state_->point->reached()));
}

namespace {

class InlineStream final : public Stream {
 public:
  explicit InlineStream(int threads) : threads_(threads) {
    TRAIN_CHECK(threads >= 1, "a stream needs at least one thread, not {}", threads);
  }

  void enqueue(Work work) override {
    TRAIN_CHECK(work != nullptr, "a stream cannot run empty work");
    // Recursive: work may enqueue on its own stream.
    const std::lock_guard running(running_);
    if (!begin()) {
      return;
    }
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    end(error);
  }

  void mark(Mark mark) override {
    const std::lock_guard lock(mutex_);
    if (!failure_) {
      current_ = mark;
    }
  }

  [[nodiscard]] Mark current(std::int64_t& since_ns) const override {
    const std::lock_guard lock(mutex_);
    since_ns = since_ns_;
    return current_;
  }

  void synchronize() override {
    const std::lock_guard running(running_);
    const std::lock_guard lock(mutex_);
    if (failure_) {
      std::rethrow_exception(failure_->error);
    }
  }

  void on_failure(FailureHandler handler) override {
    const std::lock_guard running(running_);
    {
      const std::lock_guard lock(mutex_);
      handler_ = std::move(handler);
    }
    report();
  }

  [[nodiscard]] int threads() const override { return threads_; }

  void start_trace(std::size_t capacity) override {
    // Taken between two pieces of work, so that every begin has its end.
    const std::lock_guard running(running_);
    const std::lock_guard lock(mutex_);
    TRAIN_CHECK(!tracer_ && depth_ == 0, "a stream's trace is started once, not from its work");
    tracer_ = std::make_unique<StreamTracer>(capacity);
  }

  [[nodiscard]] Trace trace() const override {
    const std::lock_guard lock(mutex_);
    return tracer_ ? tracer_->trace(steady_now_ns()) : Trace();
  }

 private:
  /// Returns false if the stream has failed and the work must be dropped.
  bool begin() {
    const std::lock_guard lock(mutex_);
    if (failure_) {
      return false;
    }
    if (depth_++ == 0) {
      since_ns_ = steady_now_ns();
      if (tracer_) {
        tracer_->begin(current_, since_ns_);
      }
    }
    return true;
  }

  void end(const std::exception_ptr& error) {
    {
      const std::lock_guard lock(mutex_);
      if (--depth_ == 0) {
        since_ns_ = 0;
        if (tracer_) {
          tracer_->end(steady_now_ns());
          tracer_->pause();
        }
      }
      if (error && !failure_) {
        failure_ = std::make_unique<StreamFailure>(StreamFailure{current_, error});
      }
    }
    report();
  }

  void report() {
    FailureHandler handler;
    {
      const std::lock_guard lock(mutex_);
      if (!failure_ || !handler_ || reported_) {
        return;
      }
      reported_ = true;
      handler = handler_;
    }
    handler(*failure_);
  }

  const int threads_;
  std::recursive_mutex running_;  // Runs one item at a time, also when several threads enqueue.
  mutable std::mutex mutex_;      // Guards everything below.
  int depth_ = 0;
  bool reported_ = false;
  Mark current_;
  std::int64_t since_ns_ = 0;
  std::unique_ptr<StreamFailure> failure_;
  FailureHandler handler_;
  std::unique_ptr<StreamTracer> tracer_;  // Null: no trace is kept.
};

}  // namespace

std::unique_ptr<Stream> make_inline_stream(int threads) {
  return std::make_unique<InlineStream>(threads);
}

}  // namespace train::kernels
