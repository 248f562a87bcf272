#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

namespace train::kernels {

struct Trace;  // trace.hpp

/// Out of device memory, a failed launch, a library's error status: statement, place and reason in
/// one line. Caught in one place: the stream's failure handler or the actor's exception handler.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What a stream is busy with: for error reports and for the watchdog.
/// `what` points to a string literal.
struct Mark {
  const char* what = "idle";
  std::int64_t step = -1;
  std::int32_t unit = -1;  ///< Sharding unit (0 embedding, 1.. blocks, last head); -1: none.
  std::int32_t lane = -1;
};

/// An error met by work on a stream, with the mark that was current.
struct StreamFailure {
  Mark mark;
  std::exception_ptr error;
};

/// A point in the work that a stream has handed to a device, for events.
class DevicePoint {
 public:
  virtual ~DevicePoint() = default;
  /// From here on the point is behind everything that was handed to the device so far. On the
  /// stream's thread, once.
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

  /// Host work in stream order. Returns at once.
  virtual void enqueue(Work work) = 0;
  /// Work that only hands work to a device (launches of kernels): in stream order, but it does not
  /// wait for what the device still has to do. Returns at once. On the CPU the same as enqueue.
  virtual void submit(Work work);
  /// Host work in stream order that nothing on the device waits for: messages that something is
  /// done. What is submitted later runs on meanwhile; host work that is enqueued later comes after
  /// it. It must not wait for this stream. Returns at once. On the CPU the same as enqueue.
  virtual void notify(Work work);
  /// A point for this stream to record; nullptr where work is done when it has run, as on the CPU.
  [[nodiscard]] virtual std::shared_ptr<DevicePoint> make_point();
  /// What the stream does from here on comes after `point`, recorded before. From the stream's own
  /// work alone; on the CPU it blocks the stream's thread.
  virtual void await(const DevicePoint& point);
  /// Names the work enqueued from here on.
  virtual void mark(Mark mark) = 0;
  /// The mark reached by the running work, and since when (steady clock, ns; 0 when idle).
  [[nodiscard]] virtual Mark current(std::int64_t& since_ns) const = 0;
  /// The running work does nothing but wait until another stream has come to an event.
  [[nodiscard]] virtual bool waits() const;
  /// Blocks until everything enqueued so far has run; rethrows the first failure.
  virtual void synchronize() = 0;
  virtual void on_failure(FailureHandler handler) = 0;
  /// Threads that a kernel on this stream may use; never changes a result.
  [[nodiscard]] virtual int threads() const = 0;
  /// From here on the stream keeps what it ran when, the newest `capacity` stretches of it
  /// (trace.hpp); it costs nothing before. Streams that cannot keep none. REQUIRES: called once.
  virtual void start_trace(std::size_t capacity);
  /// What was kept so far. Safe from any thread, also while work runs.
  [[nodiscard]] virtual Trace trace() const;

 protected:
  Stream() = default;
};

/// A point in one stream that work of another stream can wait for. Copyable; all copies are one
/// event. A default event counts as reached. Re-record by assigning a new one.
class Event {
 public:
  Event() = default;

  /// Reached when `stream` has run everything enqueued before this call. Returns at once.
  [[nodiscard]] static Event record(Stream& stream);
  /// Work enqueued on `stream` after this call starts only when the event is reached.
  /// Blocks the stream (its thread), never the caller. REQUIRES: not an inline stream that would
  /// have to wait for itself.
  void wait_on(Stream& stream) const;
  [[nodiscard]] bool reached() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// A stream with a thread of its own, named `name` for debuggers. Joins in the destructor after
/// running what is enqueued.
[[nodiscard]] std::unique_ptr<Stream> make_thread_stream(std::string name, int threads);

/// Runs work inside enqueue(), on the caller's thread: for tests on the deterministic scheduler.
[[nodiscard]] std::unique_ptr<Stream> make_inline_stream(int threads);

}  // namespace train::kernels
