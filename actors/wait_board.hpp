#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace train::actors {

/// Who waits for what, and since when: every parked actor writes its own line, the watchdog reads
/// all. Threading: add() before the actors run; begin/end by the line's owner; waiting() from any
/// thread. Nothing here blocks.
class WaitBoard {
 public:
  struct Wait {
    std::string who;
    const char* what = "";
    std::int64_t step = -1;
    std::int64_t since_ns = 0;  ///< Steady clock.
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
    struct State {
      std::string who;
      std::atomic<const char*> what{nullptr};
      std::atomic<std::int64_t> step{-1};
      std::atomic<std::int64_t> since_ns{0};
    };
    explicit Line(State* state) : state_(state) {}
    State* state_;
  };

  [[nodiscard]] Line add(std::string who);
  [[nodiscard]] std::vector<Wait> waiting() const;

 private:
  std::deque<Line::State> lines_;  // a deque: lines never move
};

[[nodiscard]] std::int64_t steady_now_ns();

}  // namespace train::actors
