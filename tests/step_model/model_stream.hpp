#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace train::engine {

/// Things that happen at a time, in order of time, then of being planned.
class EventQueue {
 public:
  using Happening = std::function<void()>;

  [[nodiscard]] double now() const { return now_; }
  void after(double seconds, Happening happening) {
    events_.push({now_ + seconds, next_++, std::move(happening)});
  }
  /// False when nothing is left.
  bool run_one() {
    if (events_.empty()) {
      return false;
    }
    const Event event = events_.top();
    events_.pop();
    now_ = event.time;
    event.happening();
    return true;
  }

 private:
  struct Event {
    double time;
    std::uint64_t number;
    Happening happening;
    bool operator<(const Event& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };
  std::priority_queue<Event> events_;
  double now_ = 0.0;
  std::uint64_t next_ = 0;
};

/// A compute stream whose work only takes time. Borrows `events`; must not move once used.
class ModelStream {
 public:
  ModelStream(EventQueue& events, double slowdown) : events_(&events), slowdown_(slowdown) {}

  /// In order; `done` (may be empty) is called when the work has run.
  void enqueue(double seconds, std::function<void()> done = {}) {
    work_.push_back({seconds, std::move(done)});
    if (!running_) {
      start();
    }
  }
  /// Takes `seconds` away from the work to come.
  void steal(double seconds) { stolen_ += seconds; }
  /// Seconds in which work ran, until now.
  [[nodiscard]] double busy_seconds() const {
    return busy_ + (running_ ? events_->now() - since_ : 0.0);
  }

 private:
  struct Work {
    double seconds;
    std::function<void()> done;
  };

  void start() {
    running_ = true;
    since_ = events_->now();
    // Work that takes no time (a message at a point of the stream) has none to lose.
    const double stolen = work_.front().seconds > 0.0 ? std::exchange(stolen_, 0.0) : 0.0;
    events_->after((work_.front().seconds + stolen) * slowdown_, [this] { finish(); });
  }
  void finish() {
    busy_ += events_->now() - since_;
    const std::function<void()> done = std::move(work_.front().done);
    work_.pop_front();
    running_ = false;
    if (!work_.empty()) {
      start();
    }
    if (done) {
      done();
    }
  }

  EventQueue* events_;
  double slowdown_;
  std::deque<Work> work_;
  bool running_ = false;
  double since_ = 0.0, busy_ = 0.0, stolen_ = 0.0;
};

}  // namespace train::engine
