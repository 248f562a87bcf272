#include "kernels/device/cuda_stream.hpp"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/process/steady_time.hpp"
#include "kernels/device/cuda_device.hpp"
#include "kernels/device/device_gate.hpp"
#include "kernels/device/stream.hpp"
#include "kernels/device/trace.hpp"

namespace train::kernels {
namespace {

/// Pieces of one mark with at most this gap are merged into one record: an event takes the device
/// about that long.
constexpr std::int64_t kJoined_ns = 2'000;
/// The device reports differences in milliseconds as a float, which is exact enough up to this
/// length.
constexpr std::int64_t kLongest_ns = 500'000'000;

bool same(const Mark& left, const Mark& right) {
  return left.what == right.what && left.step == right.step && left.unit == right.unit &&
         left.lane == right.lane;
}

}  // namespace

/// Times at which a device worked on a stream's pieces: a device event before and after each. The
/// time between them includes the launch itself if the device was idle (microseconds), and gaps
/// between a piece's kernels.
///
/// Threading: trace() is safe from any thread; everything else only from the stream's thread.
class CudaTracer {
 public:
  /// Keeps the newest `capacity` records. Blocks until the stream reaches this point. Throws
  /// DeviceError. The stream must outlive this.
  CudaTracer(cudaStream_t stream, std::size_t capacity) : stream_(stream), ring_(capacity) {
    base_ = recorded();
    TRAIN_CUDA_CHECK(cudaEventSynchronize(base_));
    base_ns_ = steady_now_ns();
  }
  ~CudaTracer() {
    for (const Piece& piece : pieces_) {
      spare_.insert(spare_.end(), {piece.begin, piece.end});
    }
    spare_.insert(spare_.end(), {base_, began_});
    for (cudaEvent_t event : spare_) {
      if (event != nullptr) {
        cudaEventDestroy(event);  // An error can only repeat an earlier failure of the device.
      }
    }
  }
  CudaTracer(const CudaTracer&) = delete;
  CudaTracer& operator=(const CudaTracer&) = delete;

  /// Called around handing a piece of work to the device; `waited`: the piece makes the stream wait
  /// for another. Throws DeviceError.
  void begin() {
    const std::lock_guard lock(mutex_);
    finalize();
    began_ = recorded();
  }
  void end(const Mark& mark, bool waited) {
    const std::lock_guard lock(mutex_);
    cudaEvent_t const end = recorded();
    pieces_.push_back(
        {.mark = mark, .waited = waited, .begin = std::exchange(began_, nullptr), .end = end});
  }
  /// Records host work, before which the device had to finish all earlier work; steady clock, ns.
  void host_work(const Mark& mark, std::int64_t begin_ns, std::int64_t end_ns) {
    const std::lock_guard lock(mutex_);
    finalize();
    add({.mark = mark, .waited = false, .host = true, .begin_ns = begin_ns, .end_ns = end_ns});
  }

  /// Trace of the work finished so far.
  [[nodiscard]] Trace trace() {
    const std::lock_guard lock(mutex_);
    finalize();
    Trace trace{.records = ring_.records(), .dropped = ring_.dropped()};
    if (has_newest_) {
      trace.records.push_back(newest_);
    }
    return trace;
  }

 private:
  struct Piece {
    Mark mark;
    bool waited = false;
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
  };

  [[nodiscard]] cudaEvent_t recorded() {
    cudaEvent_t event = nullptr;
    if (spare_.empty()) {
      TRAIN_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDefault));
    } else {
      event = spare_.back();
      spare_.pop_back();
    }
    TRAIN_CUDA_CHECK(cudaEventRecord(event, stream_));
    return event;
  }
  /// Reads the times of all finished pieces, in order.
  void finalize() {
    while (!pieces_.empty() && cudaEventQuery(pieces_.front().end) == cudaSuccess) {
      const Piece piece = pieces_.front();
      pieces_.pop_front();
      const std::int64_t end_ns = time_of(piece.end);
      add({.mark = piece.mark,
           .waited = piece.waited,
           .host = false,
           .begin_ns = time_of(piece.begin),
           .end_ns = end_ns});
      spare_.push_back(piece.begin);
      if (end_ns - base_ns_ > kLongest_ns) {
        spare_.push_back(std::exchange(base_, piece.end));
        base_ns_ = end_ns;
      } else {
        spare_.push_back(piece.end);
      }
    }
  }
  [[nodiscard]] std::int64_t time_of(cudaEvent_t event) const {
    float milliseconds = 0.0F;
    TRAIN_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, base_, event));
    return base_ns_ + std::llround(static_cast<double>(milliseconds) * 1e6);
  }
  void add(const TraceRecord& record) {
    if (has_newest_ && same(newest_.mark, record.mark) && newest_.waited == record.waited &&
        newest_.host == record.host && record.begin_ns - newest_.end_ns <= kJoined_ns) {
      newest_.end_ns = record.end_ns;
      return;
    }
    if (has_newest_) {
      ring_.add(newest_);
    }
    newest_ = record;
    has_newest_ = true;
  }

  cudaStream_t stream_;
  std::mutex mutex_;  // Guards everything below.
  TraceRing<TraceRecord> ring_;
  TraceRecord newest_;  // May still grow; not yet in the ring.
  bool has_newest_ = false;
  std::deque<Piece> pieces_;  // Pieces whose times are not known yet.
  cudaEvent_t began_ = nullptr;
  std::vector<cudaEvent_t> spare_;
  cudaEvent_t base_ = nullptr;  // Event whose time is known.
  std::int64_t base_ns_ = 0;
};

namespace {

class CudaPoint final : public DevicePoint {
 public:
  /// Records on `stream`, which must live until record() has run. `flags` are added to "no timing".
  explicit CudaPoint(const CudaStream& stream, unsigned flags = 0)
      : stream_(stream), flags_(flags) {}
  ~CudaPoint() override {
    if (event_ != nullptr) {
      cudaEventDestroy(event_);  // An error can only repeat an earlier failure of the device.
    }
  }

  void record() override {
    TRAIN_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming | flags_));
    TRAIN_CUDA_CHECK(cudaEventRecord(event_, stream_.native()));
  }
  [[nodiscard]] bool reached() const override { return cudaEventQuery(event_) == cudaSuccess; }
  void wait() const override { TRAIN_CUDA_CHECK(cudaEventSynchronize(event_)); }
  [[nodiscard]] cudaEvent_t event() const { return event_; }

 private:
  const CudaStream& stream_;
  const unsigned flags_;
  cudaEvent_t event_ = nullptr;
};

constexpr const char* kNoticesSuffix = " notices";

}  // namespace

CudaStream::CudaStream(std::string name, int device)
    : notices_(make_thread_stream(name + kNoticesSuffix, 1)),
      host_(make_thread_stream(std::move(name), 1)) {
  host_->enqueue([this, device] { open(device); });
  notices_->enqueue([device] { TRAIN_CUDA_CHECK(cudaSetDevice(device)); });
  notices_->on_failure([this](const StreamFailure& failure) { fail(failure); });
  try {
    host_->synchronize();
  } catch (...) {
    end_threads();
    close();
    throw;
  }
}

CudaStream::~CudaStream() {
  end_threads();
  close();
}

// Launching work may still enqueue notices, and a notice may fail the launching stream.
void CudaStream::end_threads() {
  {
    const std::lock_guard lock(closing_mutex_);
    closing_ = true;
  }
  host_.reset();
  notices_.reset();
}

void CudaStream::fail(const StreamFailure& failure) {
  const std::lock_guard lock(closing_mutex_);
  if (!closing_) {
    host_->mark(failure.mark);
    host_->enqueue([error = failure.error] { std::rethrow_exception(error); });
  }
}

void CudaStream::open(int device) {
  TRAIN_CUDA_CHECK(cudaSetDevice(device));
  TRAIN_CUDA_CHECK(cudaStreamCreateWithFlags(&native_, cudaStreamNonBlocking));
  void* fault = nullptr;
  const DeviceGate::Call call;
  TRAIN_CUDA_CHECK(cudaHostAlloc(&fault, sizeof(DeviceFault), cudaHostAllocPortable));
  fault_ = new (fault) DeviceFault();
  void* counters = nullptr;
  TRAIN_CUDA_CHECK(cudaMalloc(&counters, sizeof(WorkCounters)));
  counters_ = static_cast<WorkCounters*>(counters);
  TRAIN_CUDA_CHECK(cudaMemset(counters, 0, sizeof(WorkCounters)));
}

// A failed device fails all of these calls as well; the stream's owner already knows of that
// failure.
void CudaStream::close() {
  plans_.reset();
  tracer_.reset();
  if (native_ != nullptr) {
    cudaStreamSynchronize(native_);
    cudaStreamDestroy(native_);
  }
  const DeviceGate::Call call;
  cudaFree(scratch_);
  cudaFree(counters_);
  cudaFreeHost(fault_);
}

void CudaStream::wait_for_device() {
  if (std::exchange(noticed_, false)) {
    notices_->synchronize();
  }
  if (std::exchange(busy_, false)) {
    TRAIN_CUDA_CHECK(cudaStreamSynchronize(native_));
    check_fault();
  }
}

void CudaStream::check_fault() const {
  if (fault_->found == 0) {
    return;
  }
  const DeviceFault& at = *fault_;
  switch (at.kind) {
    case DeviceFault::Kind::token:
      throw DeviceError(fmt::format("{}: id {} at position {} is outside the vocabulary of {}",
                                    at.kernel, at.value, at.position, at.limit));
    case DeviceFault::Kind::position:
      throw DeviceError(fmt::format("{}: position {} of row {} is outside the {} that there are",
                                    at.kernel, at.value, at.position, at.limit));
    case DeviceFault::Kind::document:
      throw DeviceError(
          fmt::format("{}: position {} of token {} neither begins a document nor "
                      "follows the one before",
                      at.kernel, at.value, at.position));
  }
}

void CudaStream::enqueue(Work work) {
  TRAIN_CHECK(work != nullptr, "a stream cannot run empty work");
  host_->enqueue([this, work = std::move(work)] {
    wait_for_device();
    if (!tracer_) {
      work();
      return;
    }
    const std::int64_t begin_ns = steady_now_ns();
    work();
    tracer_->host_work(launching_mark(), begin_ns, steady_now_ns());
  });
}

void CudaStream::submit(Work work) {
  TRAIN_CHECK(work != nullptr, "a stream cannot run empty work");
  host_->enqueue([this, work = std::move(work)] {
    busy_ = true;
    if (!tracer_) {
      work();
      return;
    }
    awaits_ = false;
    (void)take_wait_note();
    tracer_->begin();
    work();
    tracer_->end(launching_mark(), awaits_ || take_wait_note());
  });
}

// The notice thread sleeps until the device is here, as the launching thread needs the core more.
void CudaStream::notify(Work work) {
  TRAIN_CHECK(work != nullptr, "a stream cannot run empty work");
  host_->enqueue([this, work = std::move(work)] {
    const auto point = std::make_shared<CudaPoint>(*this, cudaEventBlockingSync);
    point->record();
    notices_->mark(launching_mark());
    notices_->enqueue([this, point, work] {
      point->wait();
      check_fault();
      work();
    });
    noticed_ = true;
  });
}

std::shared_ptr<DevicePoint> CudaStream::make_point() { return std::make_shared<CudaPoint>(*this); }

void CudaStream::await(const DevicePoint& point) {
  if (const auto* here = dynamic_cast<const CudaPoint*>(&point)) {
    awaits_ = true;
    TRAIN_CUDA_CHECK(cudaStreamWaitEvent(native_, here->event(), 0));
  } else {
    Stream::await(point);
  }
}

void* CudaStream::scratch(std::size_t size_bytes) {
  if (size_bytes > scratch_bytes_) {
    // Freed in stream order, as running work may still use it.
    if (scratch_ != nullptr) {
      TRAIN_CUDA_CHECK(cudaFreeAsync(std::exchange(scratch_, nullptr), native_));
    }
    scratch_bytes_ = 0;
    TRAIN_CUDA_CHECK(cudaMallocAsync(&scratch_, size_bytes, native_));
    scratch_bytes_ = size_bytes;
  }
  return scratch_;
}

void CudaStream::mark(Mark mark) { host_->mark(mark); }

Mark CudaStream::launching_mark() const {
  std::int64_t since_ns = 0;
  return host_->current(since_ns);
}

// Work of a mark being waited for was launched before the work being launched now.
Mark CudaStream::current(std::int64_t& since_ns) const {
  const Mark noticed = notices_->current(since_ns);
  return since_ns != 0 ? noticed : host_->current(since_ns);
}

bool CudaStream::waits() const { return host_->waits(); }

void CudaStream::synchronize() {
  host_->enqueue([this] { wait_for_device(); });
  try {
    host_->synchronize();
  } catch (...) {
    const auto failure = std::current_exception();
    try {
      notices_->synchronize();  // The objects that notices refer to may be destroyed after this
                                // returns.
    } catch (...) {
      // The error is the cause of the stream's failure or follows from it.
    }
    std::rethrow_exception(failure);
  }
}

void CudaStream::on_failure(FailureHandler handler) { host_->on_failure(std::move(handler)); }

int CudaStream::threads() const { return 1; }

void CudaStream::start_trace(std::size_t capacity) {
  host_->enqueue([this, capacity] {
    TRAIN_CHECK(!tracer_, "a stream's trace is started once");
    tracer_ = std::make_unique<CudaTracer>(native_, capacity);
  });
  host_->synchronize();
}

Trace CudaStream::trace() const { return tracer_ ? tracer_->trace() : Trace(); }

namespace {

/// Dynamic shared memory limits of kernels, by device.
struct SharedLimits {
  std::mutex mutex;
  std::map<std::pair<int, const void*>, std::size_t> given;
};
SharedLimits& shared_limits() {
  static SharedLimits limits;
  return limits;
}

}  // namespace

void raise_shared_limit(const void* kernel, std::size_t size_bytes) {
  int device = 0;
  TRAIN_CUDA_CHECK(cudaGetDevice(&device));
  SharedLimits& limits = shared_limits();
  const std::lock_guard lock(limits.mutex);
  std::size_t& most = limits.given[{device, kernel}];
  if (size_bytes > most) {
    TRAIN_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(size_bytes)));
    most = size_bytes;
  }
}

void forget_shared_limits() {
  SharedLimits& limits = shared_limits();
  const std::lock_guard lock(limits.mutex);
  limits.given.clear();
}

CudaStream& cuda_stream_of(Stream& stream) {
  auto* native = dynamic_cast<CudaStream*>(&stream);
  TRAIN_CHECK(native != nullptr, "a kernel of the CUDA table needs a stream of a CUDA device");
  return *native;
}

}  // namespace train::kernels
