#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/device/stream.hpp"

namespace train::kernels {

/// The newest records of something, in the order in which they were added: memory is bounded, and
/// what had to go is counted. No record is allocated for after the constructor.
/// Threading: not thread-safe.
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

/// A stretch of a stream's time under one mark: work that ran without a pause. Steady clock, ns.
struct TraceRecord {
  Mark mark;
  bool waited = false;  ///< Blocked until another stream had come to an event.
  bool host = false;    ///< The host's work on a stream of a device, which did nothing meanwhile.
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

/// What a stream has done; stretches follow one another and do not overlap.
struct Trace {
  std::vector<TraceRecord> records;
  std::uint64_t dropped = 0;  ///< Older ones that there was no room for.
};

/// Makes stretches of single pieces of work: those that follow each other under one mark are one.
/// Threading: not thread-safe; a stream calls it under the lock that it holds anyway.
class StreamTracer {
 public:
  explicit StreamTracer(std::size_t capacity) : ring_(capacity) {}

  void begin(const Mark& mark, std::int64_t now_ns);
  void end(std::int64_t now_ns);
  /// Another mark, or nothing to do: what comes next is another stretch.
  void pause();
  /// With the stretch under way, up to `now_ns`.
  [[nodiscard]] Trace trace(std::int64_t now_ns) const;

 private:
  TraceRing<TraceRecord> ring_;
  TraceRecord open_;
  bool has_open_ = false;
  bool working_ = false;
};

/// Work says that it blocked this thread until another stream had come somewhere: its time is not
/// the stream's own. Holds for the piece of work that runs now.
void note_wait();
/// Whether note_wait() was called on this thread since the last call.
[[nodiscard]] bool take_wait_note();
/// And that it goes on.
void note_wait_over();
/// What note_wait() and note_wait_over() on this thread set and clear from here on; borrowed.
void show_waits_in(std::atomic<bool>& flag);

}  // namespace train::kernels
