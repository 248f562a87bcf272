#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "kernels/device/stream.hpp"

struct CUstream_st;

namespace train::kernels {

/// What a kernel found wrong in its data: written by the device, read by the host when the stream
/// has come to host work. The first finding stays.
struct DeviceFault {
  enum class Kind : std::uint32_t {
    token,     ///< An id outside the vocabulary.
    position,  ///< Outside the rows of a table.
    document,  ///< A position that neither begins a document nor goes on with one.
  };
  std::uint32_t claimed = 0;  ///< A kernel is writing the fields.
  std::uint32_t found = 0;    ///< They are written.
  Kind kind = Kind::token;
  std::int32_t value = 0;
  std::int64_t position = 0;
  std::int64_t limit = 0;
  const char* kernel = nullptr;  ///< A string literal of the host.
};

/// Work that the blocks of a kernel have taken, beyond what each began with, and blocks that have
/// asked for all they do.
struct WorkCounters {
  int taken = 0;
  int gone = 0;
};

class CudaTracer;  // cuda_stream.cpp

/// Plans of matrix products, which a stream keeps for its kernels (matmul.cu).
class MatmulPlans;

/// The stream of cuda_device.hpp, with what launchers need. Launching is left to one host thread
/// per stream: callers never wait for the driver, and after a failure nothing more is launched. A
/// second thread waits for the device on behalf of notices, so that the first can go on launching.
///
/// Threading: native, scratch, fault and plans are for submitted work alone, on the stream's
/// thread. Ownership: owns the CUDA stream and the scratch memory; frees them when all has run.
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
  /// At least `size_bytes` of device memory, 256-byte aligned, contents undefined; the next call
  /// hands out the same memory again, which is right for kernels that follow each other.
  [[nodiscard]] void* scratch(std::size_t size_bytes);
  /// Of the kernels that run on this stream, one after the other: zeros before and after each.
  [[nodiscard]] WorkCounters* work_counters() const { return counters_; }
  /// For kernels to write; nothing else may.
  [[nodiscard]] DeviceFault* fault() const { return fault_; }
  /// Empty at first.
  [[nodiscard]] std::shared_ptr<MatmulPlans>& plans() { return plans_; }

 private:
  void open(int device);
  void end_threads();
  void close();
  /// Blocks the stream's thread until the device has done everything and all notices have gone
  /// out. Throws DeviceError.
  void wait_for_device();
  /// Throws DeviceError if a kernel that has run found something wrong.
  void check_fault() const;
  /// Of what the stream's thread is at.
  [[nodiscard]] Mark launching_mark() const;
  /// On the thread of the notices.
  void fail(const StreamFailure& failure);

  CUstream_st* native_ = nullptr;
  void* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;
  WorkCounters* counters_ = nullptr;
  DeviceFault* fault_ = nullptr;  // Pinned.
  std::shared_ptr<MatmulPlans> plans_;
  std::unique_ptr<CudaTracer> tracer_;  // None: nothing is kept.
  bool busy_ = false;                   // Something was handed over since wait_for_device,
  bool noticed_ = false;                // and to the thread of the notices.
  bool awaits_ = false;  // The work that is being handed over waits for another stream.
  std::mutex closing_mutex_;
  bool closing_ = false;
  std::unique_ptr<Stream> notices_;  // Waits for the device where nothing else shall.
  std::unique_ptr<Stream> host_;     // Joined first: what it runs uses all of the above.
};

/// Lets a kernel have `size_bytes` of dynamic shared memory on the current device, if it has not
/// been given as much. Callable from any thread. Throws DeviceError.
void raise_shared_limit(const void* kernel, std::size_t size_bytes);
/// The current device has been reset.
void forget_shared_limits();

/// `stream` as one of a CUDA device. REQUIRES: it is one.
[[nodiscard]] CudaStream& cuda_stream_of(Stream& stream);

}  // namespace train::kernels
