#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

namespace train::kernels {

struct Trace;  // See trace.hpp.

/// Error of a device: out of memory, a failed launch, a library's error status. One line with
/// statement, place and reason. Caught by the stream's failure handler or the actor's exception
/// handler.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Label of a stream's current work, for error reports and the watchdog. `what` points to a string
/// literal.
struct Mark {
  const char* what = "idle";
  std::int64_t step = -1;
  std::int32_t unit = -1;  ///< Sharding unit (0 embedding, 1.. blocks, last head); -1: none.
  std::int32_t lane = -1;
};

/// Error of work on a stream, with the mark that was current.
struct StreamFailure {
  Mark mark;
  std::exception_ptr error;
};

/// Point in the work handed to a device; the basis of events.
class DevicePoint {
 public:
  virtual ~DevicePoint() = default;
  /// Places the point behind everything handed to the device so far. Called once, on the stream's
  /// thread.
  virtual void record() = 0;
  /// Never blocks. REQUIRES: recorded.
  [[nodiscard]] virtual bool reached() const = 0;
  /// Blocks this thread. Throws DeviceError when the device has failed. REQUIRES: recorded.
  virtual void wait() const = 0;
};

/// An in-order queue of device work: a thread on the CPU, a CUDA stream on the GPU.
///
/// Threading: enqueue, mark and current are safe from any thread; work runs in enqueue order, one
/// item at a time (but see notify). Nothing here blocks the caller, except `synchronize` (plain
/// loops, tests, shutdown). Errors: the first exception thrown by work is kept, `on_failure` is
/// called once (on the stream's thread), and everything enqueued later is dropped, so a failed step
/// never updates a weight. A stream that waits for an event of a failed stream fails as well. The
/// handler must not throw; one that is set after the failure is called then.
class Stream {
 public:
  using Work = std::function<void()>;
  using FailureHandler = std::function<void(const StreamFailure&)>;

  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Enqueues host work in stream order. Returns at once.
  virtual void enqueue(Work work) = 0;
  /// Enqueues work that only hands work to a device (kernel launches): in stream order, without
  /// waiting for the device to finish earlier work. Returns at once. On the CPU equal to enqueue().
  virtual void submit(Work work);
  /// Enqueues host work in stream order that nothing on the device waits for, such as messages
  /// about completion. Later submitted work runs meanwhile; later enqueued host work waits for it.
  /// The work must not wait for this stream. Returns at once. On the CPU equal to enqueue().
  virtual void notify(Work work);
  /// Makes a point for this stream to record; nullptr if work is complete when it has run, as on
  /// the CPU.
  [[nodiscard]] virtual std::shared_ptr<DevicePoint> make_point();
  /// Makes later work of the stream wait for `point`, which must be recorded. Only from the
  /// stream's own work; on the CPU it blocks the stream's thread.
  virtual void await(const DevicePoint& point);
  /// Labels the work enqueued from here on.
  virtual void mark(Mark mark) = 0;
  /// Mark of the running work, and its start time (steady clock, ns; 0 when idle).
  [[nodiscard]] virtual Mark current(std::int64_t& since_ns) const = 0;
  /// True if the running work only waits for another stream's event.
  [[nodiscard]] virtual bool waits() const;
  /// Blocks until everything enqueued so far has run; rethrows the first failure.
  virtual void synchronize() = 0;
  virtual void on_failure(FailureHandler handler) = 0;
  /// Threads that a kernel on this stream may use; results never depend on it.
  [[nodiscard]] virtual int threads() const = 0;
  /// Starts recording what the stream runs, keeping the newest `capacity` records (trace.hpp). Free
  /// before this call. Streams without support ignore it. REQUIRES: called once.
  virtual void start_trace(std::size_t capacity);
  /// Records kept so far. Safe from any thread, also while work runs.
  [[nodiscard]] virtual Trace trace() const;

 protected:
  Stream() = default;
};

/// Point in one stream that work of another can wait for. Copyable; copies share one event. A
/// default event counts as reached. Assign a new event to record again.
class Event {
 public:
  Event() = default;

  /// Reached when `stream` has run everything enqueued before this call. Returns at once.
  [[nodiscard]] static Event record(Stream& stream);
  /// Makes work enqueued on `stream` after this call start only when the event is reached. Blocks
  /// the stream (its thread), never the caller. REQUIRES: not an inline stream that would have to
  /// wait for itself.
  void wait_on(Stream& stream) const;
  [[nodiscard]] bool reached() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Makes a stream with its own thread, named `name` for debuggers. The destructor runs all enqueued
/// work, then joins.
[[nodiscard]] std::unique_ptr<Stream> make_thread_stream(std::string name, int threads);

/// Makes a stream that runs work inside enqueue(), on the caller's thread: for tests on the
/// deterministic scheduler.
[[nodiscard]] std::unique_ptr<Stream> make_inline_stream(int threads);

}  // namespace train::kernels
