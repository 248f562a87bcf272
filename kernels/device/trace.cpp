#include "kernels/device/trace.hpp"

#include <utility>

namespace train::kernels {
namespace {

thread_local bool waited = false;
thread_local std::atomic<bool>* shown = nullptr;

void show(bool waits) {
  if (shown != nullptr) {
    shown->store(waits, std::memory_order_relaxed);
  }
}

}  // namespace

void note_wait() {
  waited = true;
  show(true);
}

void note_wait_over() { show(false); }

void show_waits_in(std::atomic<bool>& flag) { shown = &flag; }

bool take_wait_note() { return std::exchange(waited, false); }

void StreamTracer::begin(const Mark& mark, std::int64_t now_ns) {
  if (!has_open_) {
    open_ = {.mark = mark, .waited = false, .host = false, .begin_ns = now_ns, .end_ns = now_ns};
    has_open_ = true;
  }
  working_ = true;
}

void StreamTracer::end(std::int64_t now_ns) {
  working_ = false;
  if (!take_wait_note()) {
    open_.end_ns = now_ns;
    return;
  }
  // The wait gets a record of its own: the time since `end_ns` was spent waiting.
  TraceRecord wait = open_;
  wait.waited = true;
  wait.begin_ns = open_.end_ns;
  wait.end_ns = now_ns;
  pause();
  ring_.add(wait);
}

void StreamTracer::pause() {
  if (has_open_ && open_.end_ns > open_.begin_ns) {
    ring_.add(open_);
  }
  has_open_ = false;
}

Trace StreamTracer::trace(std::int64_t now_ns) const {
  Trace trace{.records = ring_.records(), .dropped = ring_.dropped()};
  if (has_open_) {
    trace.records.push_back(open_);
    trace.records.back().end_ns = working_ ? now_ns : open_.end_ns;
  }
  return trace;
}

}  // namespace train::kernels
