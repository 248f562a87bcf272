#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "kernels/device/trace.hpp"

struct CUstream_st;
struct CUevent_st;

namespace train::kernels {

/// When a device worked on what a stream gave it: an event of the device before and after each
/// piece of work. Between them lies also the time that the launch itself took if the device had
/// nothing else to do (microseconds), and what a piece of several kernels waited between them.
///
/// Threading: trace() is safe from any thread, all else is for the stream's thread.
class CudaTracer {
 public:
  /// Keeps the newest `capacity` stretches. Blocks until the stream has come here. Throws
  /// DeviceError. The stream must outlive this.
  CudaTracer(CUstream_st* stream, std::size_t capacity);
  ~CudaTracer();
  CudaTracer(const CudaTracer&) = delete;
  CudaTracer& operator=(const CudaTracer&) = delete;

  /// Around what hands a piece of work to the device; `waited`: it lets the stream wait for another
  /// one. Throws DeviceError.
  void begin();
  void end(const Mark& mark, bool waited);
  /// Work of the host for which the device had to be done with all before it; steady clock, ns.
  void host_work(const Mark& mark, std::int64_t begin_ns, std::int64_t end_ns);

  /// What the device has done so far.
  [[nodiscard]] Trace trace();

 private:
  struct Piece {
    Mark mark;
    bool waited = false;
    CUevent_st* begin = nullptr;
    CUevent_st* end = nullptr;
  };

  [[nodiscard]] CUevent_st* recorded();
  /// Takes the times of all pieces that are done, in order.
  void finalize();
  [[nodiscard]] std::int64_t time_of(CUevent_st* event) const;
  void add(const TraceRecord& record);

  CUstream_st* stream_;
  std::mutex mutex_;  // Guards everything below.
  TraceRing<TraceRecord> ring_;
  TraceRecord newest_;  // May grow; not in the ring yet.
  bool has_newest_ = false;
  std::deque<Piece> pieces_;  // Whose times are not known yet.
  CUevent_st* began_ = nullptr;
  std::vector<CUevent_st*> spare_;
  CUevent_st* base_ = nullptr;  // Its time is known.
  std::int64_t base_ns_ = 0;
};

}  // namespace train::kernels
