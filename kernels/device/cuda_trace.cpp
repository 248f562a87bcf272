#include "kernels/device/cuda_trace.hpp"

#include <cuda_runtime.h>

#include <cmath>
#include <utility>

#include "base/steady_time.hpp"
#include "kernels/device/cuda_check.hpp"

namespace train::kernels {
namespace {

/// Pieces of one mark that follow each other so closely are one stretch: an event takes the device
/// about that long.
constexpr std::int64_t kJoined_ns = 2'000;
/// The device gives differences in milliseconds as a float, which is exact enough for so long.
constexpr std::int64_t kLongest_ns = 500'000'000;

bool same(const Mark& left, const Mark& right) {
  return left.what == right.what && left.step == right.step && left.unit == right.unit &&
         left.lane == right.lane;
}

}  // namespace

CudaTracer::CudaTracer(CUstream_st* stream, std::size_t capacity)
    : stream_(stream), ring_(capacity) {
  base_ = recorded();
  TRAIN_CUDA_CHECK(cudaEventSynchronize(base_));
  base_ns_ = steady_now_ns();
}

CudaTracer::~CudaTracer() {
  for (const Piece& piece : pieces_) {
    spare_.insert(spare_.end(), {piece.begin, piece.end});
  }
  spare_.insert(spare_.end(), {base_, began_});
  for (CUevent_st* event : spare_) {
    if (event != nullptr) {
      cudaEventDestroy(event);  // It can only repeat an earlier failure of the device.
    }
  }
}

CUevent_st* CudaTracer::recorded() {
  CUevent_st* event = nullptr;
  if (spare_.empty()) {
    TRAIN_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDefault));
  } else {
    event = spare_.back();
    spare_.pop_back();
  }
  TRAIN_CUDA_CHECK(cudaEventRecord(event, stream_));
  return event;
}

void CudaTracer::begin() {
  const std::lock_guard lock(mutex_);
  finalize();
  began_ = recorded();
}

void CudaTracer::end(const Mark& mark, bool waited) {
  const std::lock_guard lock(mutex_);
  CUevent_st* const end = recorded();
  pieces_.push_back(
      {.mark = mark, .waited = waited, .begin = std::exchange(began_, nullptr), .end = end});
}

void CudaTracer::host_work(const Mark& mark, std::int64_t begin_ns, std::int64_t end_ns) {
  const std::lock_guard lock(mutex_);
  finalize();
  add({.mark = mark, .waited = false, .host = true, .begin_ns = begin_ns, .end_ns = end_ns});
}

std::int64_t CudaTracer::time_of(CUevent_st* event) const {
  float milliseconds = 0.0F;
  TRAIN_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, base_, event));
  return base_ns_ + std::llround(static_cast<double>(milliseconds) * 1e6);
}

void CudaTracer::finalize() {
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

void CudaTracer::add(const TraceRecord& record) {
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

Trace CudaTracer::trace() {
  const std::lock_guard lock(mutex_);
  finalize();
  Trace trace{.records = ring_.records(), .dropped = ring_.dropped()};
  if (has_newest_) {
    trace.records.push_back(newest_);
  }
  return trace;
}

}  // namespace train::kernels
