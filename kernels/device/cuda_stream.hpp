#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "kernels/device/stream.hpp"

struct CUstream_st;

namespace train::kernels {

/// Invalid data found by a kernel: written by the device, read by the host when the stream reaches
/// host work. The first finding stays.
struct DeviceFault {
  enum class Kind : std::uint32_t {
    token,     ///< Token id outside the vocabulary.
    position,  ///< Position outside the rows of a table.
    document,  ///< Position that neither begins nor continues a document.
  };
  std::uint32_t claimed = 0;  ///< A kernel is writing the fields below.
  std::uint32_t found = 0;    ///< The fields are written.
  Kind kind = Kind::token;
  std::int32_t value = 0;
  std::int64_t position = 0;
  std::int64_t limit = 0;
  const char* kernel = nullptr;  ///< String literal of the host.
};

/// Counters of work taken by a kernel's blocks beyond their first share, and of blocks that are
/// done.
struct WorkCounters {
  int taken = 0;
  int gone = 0;
};

class CudaTracer;  // See cuda_stream.cpp.

/// Matrix product plans that a stream caches for its kernels (matmul_cuda.cpp).
class MatmulPlans;

/// Stream of cuda_device.hpp, with what launchers need. One host thread per stream launches, so
/// callers never wait for the driver, and nothing is launched after a failure. A second thread
/// waits for the device to deliver notices, so that the first can go on launching.
///
/// Threading: native, scratch, fault and plans only from submitted work, on the stream's thread.
/// Ownership: owns the CUDA stream and the scratch memory; frees both after all work has run.
class CudaStream final : public Stream {
 public:
  /// Blocks until the device is ready. Throws DeviceError.
  CudaStream(std::string name, int device);
  ~CudaStream() override;

  void enqueue(Work work) override;
  void submit(Work work) override;
  void notify(Work work) override;
  [[nodiscard]] std::shared_ptr<DevicePoint> make_point() override;
  void await(const DevicePoint& point) override;
  void mark(Mark mark) override;
  [[nodiscard]] Mark current(std::int64_t& since_ns) const override;
  [[nodiscard]] bool waits() const override;
  void synchronize() override;
  void on_failure(FailureHandler handler) override;
  [[nodiscard]] int threads() const override;
  void start_trace(std::size_t capacity) override;
  [[nodiscard]] Trace trace() const override;

  [[nodiscard]] CUstream_st* native() const { return native_; }
  /// Returns at least `size_bytes` of device memory, 256-byte aligned, contents undefined. The next
  /// call returns the same memory, which is safe for kernels that run one after the other.
  [[nodiscard]] void* scratch(std::size_t size_bytes);
  /// Counters shared by this stream's kernels, one at a time; zero before and after each.
  [[nodiscard]] WorkCounters* work_counters() const { return counters_; }
  /// For kernels to write only.
  [[nodiscard]] DeviceFault* fault() const { return fault_; }
  /// Empty at first.
  [[nodiscard]] std::shared_ptr<MatmulPlans>& plans() { return plans_; }

 private:
  void open(int device);
  void end_threads();
  void close();
  /// Blocks the stream's thread until the device is idle and all notices are delivered. Throws
  /// DeviceError.
  void wait_for_device();
  /// Throws DeviceError if a finished kernel found invalid data.
  void check_fault() const;
  /// Mark of the work that the stream's thread is launching.
  [[nodiscard]] Mark launching_mark() const;
  /// Runs on the notice thread.
  void fail(const StreamFailure& failure);

  CUstream_st* native_ = nullptr;
  void* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;
  WorkCounters* counters_ = nullptr;
  DeviceFault* fault_ = nullptr;  // Pinned.
  std::shared_ptr<MatmulPlans> plans_;
  std::unique_ptr<CudaTracer> tracer_;  // Null: no trace is kept.
  bool busy_ = false;                   // Work was handed to the device since wait_for_device(),
  bool noticed_ = false;                // and to the notice thread.
  bool awaits_ = false;                 // The work being handed over waits for another stream.
  std::mutex closing_mutex_;
  bool closing_ = false;
  std::unique_ptr<Stream> notices_;  // Notice thread: waits for the device so that the launching
                                     // thread need not.
  std::unique_ptr<Stream> host_;     // Joined first, as its work uses all of the above.
};

/// Raises a kernel's limit of dynamic shared memory on the current device to at least `size_bytes`.
/// Callable from any thread. Throws DeviceError.
void raise_shared_limit(const void* kernel, std::size_t size_bytes);
/// To be called when the current device has been reset.
void forget_shared_limits();

/// Casts `stream` to the stream of a CUDA device. REQUIRES: it is one.
[[nodiscard]] CudaStream& cuda_stream_of(Stream& stream);

}  // namespace train::kernels
