#include "kernels/device/cuda_stream.hpp"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/base/check.hpp"
#include "kernels/device/cuda_check.hpp"
#include "kernels/device/device_error.hpp"
#include "kernels/device/trace.hpp"

namespace train::kernels {
namespace {

class CudaPoint final : public DevicePoint {
 public:
  /// Records on `stream`, which must live until record() has run.
  explicit CudaPoint(const CudaStream& stream) : stream_(stream) {}
  ~CudaPoint() override {
    if (event_ != nullptr) {
      cudaEventDestroy(event_);  // It can only repeat an earlier failure of the device.
    }
  }

  void record() override {
    TRAIN_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    TRAIN_CUDA_CHECK(cudaEventRecord(event_, stream_.native()));
  }
  [[nodiscard]] bool reached() const override { return cudaEventQuery(event_) == cudaSuccess; }
  void wait() const override { TRAIN_CUDA_CHECK(cudaEventSynchronize(event_)); }
  [[nodiscard]] cudaEvent_t event() const { return event_; }

 private:
  const CudaStream& stream_;
  cudaEvent_t event_ = nullptr;
};

}  // namespace

CudaStream::CudaStream(std::string name, int device)
    : host_(make_thread_stream(std::move(name), 1)) {
  host_->enqueue([this, device] { open(device); });
  try {
    host_->synchronize();
  } catch (...) {
    host_.reset();
    close();
    throw;
  }
}

CudaStream::~CudaStream() {
  host_.reset();
  close();
}

void CudaStream::open(int device) {
  TRAIN_CUDA_CHECK(cudaSetDevice(device));
  TRAIN_CUDA_CHECK(cudaStreamCreateWithFlags(&native_, cudaStreamNonBlocking));
  void* fault = nullptr;
  TRAIN_CUDA_CHECK(cudaHostAlloc(&fault, sizeof(DeviceFault), cudaHostAllocPortable));
  fault_ = new (fault) DeviceFault();
}

// A device that has failed refuses all of this as well; whoever ran the stream has heard of that.
void CudaStream::close() {
  plans_.reset();
  if (native_ != nullptr) {
    cudaStreamSynchronize(native_);
    cudaStreamDestroy(native_);
  }
  cudaFree(scratch_);
  cudaFreeHost(fault_);
}

void CudaStream::wait_for_device() {
  if (!std::exchange(busy_, false)) {
    return;
  }
  TRAIN_CUDA_CHECK(cudaStreamSynchronize(native_));
  if (fault_->found != 0) {
    throw DeviceError(fmt::format("{}: id {} at position {} is outside the vocabulary of {}",
                                  fault_->kernel, fault_->value, fault_->position, fault_->limit));
  }
}

void CudaStream::enqueue(Work work) {
  TRAIN_CHECK(work != nullptr, "a stream cannot run empty work");
  host_->enqueue([this, work = std::move(work)] {
    wait_for_device();
    work();
  });
}

void CudaStream::submit(Work work) {
  TRAIN_CHECK(work != nullptr, "a stream cannot run empty work");
  host_->enqueue([this, work = std::move(work)] {
    busy_ = true;
    work();
  });
}

std::shared_ptr<DevicePoint> CudaStream::make_point() { return std::make_shared<CudaPoint>(*this); }

void CudaStream::await(const DevicePoint& point) {
  if (const auto* here = dynamic_cast<const CudaPoint*>(&point)) {
    TRAIN_CUDA_CHECK(cudaStreamWaitEvent(native_, here->event(), 0));
  } else {
    Stream::await(point);
  }
}

void* CudaStream::scratch(std::size_t size_bytes) {
  if (size_bytes > scratch_bytes_) {
    // Freed in stream order: what runs still may use it.
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

Mark CudaStream::current(std::int64_t& since_ns) const { return host_->current(since_ns); }

bool CudaStream::waits() const { return host_->waits(); }

void CudaStream::synchronize() {
  host_->enqueue([this] { wait_for_device(); });
  host_->synchronize();
}

void CudaStream::on_failure(FailureHandler handler) { host_->on_failure(std::move(handler)); }

int CudaStream::threads() const { return 1; }

void CudaStream::start_trace(std::size_t capacity) { host_->start_trace(capacity); }

Trace CudaStream::trace() const { return host_->trace(); }

CudaStream& cuda_stream_of(Stream& stream) {
  auto* native = dynamic_cast<CudaStream*>(&stream);
  TRAIN_CHECK(native != nullptr, "a kernel of the CUDA table needs a stream of a CUDA device");
  return *native;
}

}  // namespace train::kernels
