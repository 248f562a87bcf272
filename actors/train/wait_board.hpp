#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/steady_time.hpp"
#include "kernels/device/trace.hpp"

namespace train::actors {

/// Who waits for what, and since when: every parked actor writes its own line, the watchdog reads
/// all. And how many of which credits are held. Threading: add() before the actors run; begin/end
/// by the line's owner; waiting() and held() from any thread. Nothing here blocks.
class WaitBoard {
 public:
  /// Credits of one kind: how many there are, and how many are held.
  struct Held {
    const char* what = "";
    std::int64_t in_use = 0;
    std::int64_t limit = 0;
  };

  /// One kind's entry. Copyable handle; the board outlives it.
  class Credits {
   public:
    void in_use(std::int64_t count) { state_->in_use.store(count, std::memory_order_relaxed); }

   private:
    friend class WaitBoard;
    struct State {
      const char* what = "";
      std::int64_t limit = 0;
      std::atomic<std::int64_t> in_use{0};
    };
    explicit Credits(State* state) : state_(state) {}
    State* state_;
  };

  struct Wait {
    std::string who;
    const char* what = "";
    std::int64_t step = -1;
    std::int64_t since_ns = 0;  ///< Steady clock.
  };

  /// A wait that is over. Steady clock, ns.
  struct Past {
    const char* what = "";
    std::int64_t step = -1;
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
  };

  /// The waits of one actor; they follow one another.
  struct History {
    std::string who;
    std::vector<Past> waits;
    std::uint64_t dropped = 0;  ///< Older ones that there was no room for.
  };

  /// One actor's line. Copyable handle; the board outlives it.
  class Line {
   public:
    /// `what` is a string literal. Beginning again while waiting keeps the older time for the same
    /// `what`.
    void begin(const char* what, std::int64_t step);
    void end();

   private:
    friend class WaitBoard;
    struct Record {
      explicit Record(std::size_t capacity) : ring(capacity) {}
      std::mutex mutex;  // the owner writes, whoever wants the history reads
      kernels::TraceRing<Past> ring;
    };
    struct State {
      std::string who;
      std::unique_ptr<Record> record;  // none: what is over is forgotten
      std::atomic<const char*> what{nullptr};
      std::atomic<std::int64_t> step{-1};
      std::atomic<std::int64_t> since_ns{0};
    };
    explicit Line(State* state) : state_(state) {}
    void keep() const;
    State* state_;
  };

  /// Lines added from here on keep their newest `capacity` waits.
  void record(std::size_t capacity) { capacity_ = capacity; }
  [[nodiscard]] Line add(std::string who);
  /// `what` is a string literal.
  [[nodiscard]] Credits add_credits(const char* what, std::int64_t limit);
  [[nodiscard]] std::vector<Wait> waiting() const;
  [[nodiscard]] std::vector<Held> held() const;
  /// Of the recorded lines; a wait under way ends at `now_ns`. From any thread.
  [[nodiscard]] std::vector<History> history(std::int64_t now_ns) const;

 private:
  std::size_t capacity_ = 0;
  std::deque<Line::State> lines_;  // a deque: lines never move
  std::deque<Credits::State> credits_;
};

}  // namespace train::actors
