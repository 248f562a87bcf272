#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/device/stream.hpp"

namespace train::kernels {

/// Ring of the newest records, in the order added. Memory is bounded; dropped records are counted.
/// Nothing is allocated after construction. Threading: not thread-safe.
template <class Record>
class TraceRing {
 public:
  /// REQUIRES: capacity > 0.
  explicit TraceRing(std::size_t capacity) : capacity_(capacity) { records_.reserve(capacity); }

  void add(const Record& record) {
    if (records_.size() < capacity_) {
      records_.push_back(record);
      return;
    }
    records_[oldest_] = record;
    oldest_ = (oldest_ + 1) % capacity_;
    ++dropped_;
  }

  /// Oldest first.
  [[nodiscard]] std::vector<Record> records() const {
    const auto middle = records_.begin() + static_cast<std::ptrdiff_t>(oldest_);
    std::vector<Record> ordered(middle, records_.end());
    ordered.insert(ordered.end(), records_.begin(), middle);
    return ordered;
  }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  std::size_t capacity_;
  std::vector<Record> records_;
  std::size_t oldest_ = 0;
  std::uint64_t dropped_ = 0;
};

/// Interval of a stream's time under one mark, without a pause. Steady clock, ns.
struct TraceRecord {
  Mark mark;
  bool waited = false;  ///< The stream waited for another stream's event.
  bool host = false;    ///< Host work on a device's stream, while the device was idle.
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

/// Trace of a stream; records are in order and do not overlap.
struct Trace {
  std::vector<TraceRecord> records;
  std::uint64_t dropped = 0;  ///< Number of older records that were dropped.
};

/// Merges consecutive pieces of work under one mark into one record. Threading: not thread-safe; a
/// stream calls it under its own lock.
class StreamTracer {
 public:
  explicit StreamTracer(std::size_t capacity) : ring_(capacity) {}

  void begin(const Mark& mark, std::int64_t now_ns);
  void end(std::int64_t now_ns);
  /// Ends the current record: the mark changes, or the stream becomes idle.
  void pause();
  /// Includes the current record, up to `now_ns`.
  [[nodiscard]] Trace trace(std::int64_t now_ns) const;

 private:
  TraceRing<TraceRecord> ring_;
  TraceRecord open_;
  bool has_open_ = false;
  bool working_ = false;
};

/// Reports that the running work blocked this thread until another stream reached an event, so that
/// its time is not counted as the stream's own.
void note_wait();
/// True if note_wait() was called on this thread since the last call.
[[nodiscard]] bool take_wait_note();
/// Reports that the running work continues after note_wait().
void note_wait_over();
/// Makes note_wait() and note_wait_over() on this thread set and clear `flag`, which is borrowed.
void show_waits_in(std::atomic<bool>& flag);

}  // namespace train::kernels
