#include "actors/wait_board.hpp"

#include <chrono>
#include <utility>

namespace train::actors {

std::int64_t steady_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void WaitBoard::Line::begin(const char* what, std::int64_t step) {
  if (state_->what.load(std::memory_order_relaxed) == what) {
    return;
  }
  state_->step.store(step, std::memory_order_relaxed);
  state_->since_ns.store(steady_now_ns(), std::memory_order_relaxed);
  state_->what.store(what, std::memory_order_release);
}

void WaitBoard::Line::end() { state_->what.store(nullptr, std::memory_order_release); }

WaitBoard::Line WaitBoard::add(std::string who) {
  Line::State& state = lines_.emplace_back();
  state.who = std::move(who);
  return Line(&state);
}

std::vector<WaitBoard::Wait> WaitBoard::waiting() const {
  std::vector<Wait> waits;
  for (const Line::State& line : lines_) {
    if (const char* what = line.what.load(std::memory_order_acquire); what != nullptr) {
      waits.push_back({.who = line.who,
                       .what = what,
                       .step = line.step.load(std::memory_order_relaxed),
                       .since_ns = line.since_ns.load(std::memory_order_relaxed)});
    }
  }
  return waits;
}

}  // namespace train::actors
