#include <atomic>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "kernels/device/device_error.hpp"
#include "kernels/device/stream.hpp"
#include "kernels/device/trace.hpp"

namespace train::kernels {

struct Event::State {
  enum class Phase : std::uint8_t { pending, reached, abandoned };

  void finalize(Phase to) {
    {
      const std::lock_guard lock(mutex);
      if (phase.load(std::memory_order_relaxed) != Phase::pending) {
        return;
      }
      phase.store(to, std::memory_order_release);
    }
    changed.notify_all();
  }

  /// Blocks. False when the recording stream failed before it came here.
  bool wait() {
    std::unique_lock lock(mutex);
    if (phase.load() == Phase::pending) {
      note_wait();
    }
    changed.wait(lock, [this] { return phase.load() != Phase::pending; });
    note_wait_over();
    return phase.load() == Phase::reached;
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<Phase> phase = Phase::pending;
  std::shared_ptr<DevicePoint> point;  // nullptr: reached with the phase. Set before all else.
};

Event Event::record(Stream& stream) {
  /// Lives as long as the queued work: a failed stream drops the work without running it, and
  /// whoever waits must hear of that instead of waiting for ever.
  struct Ticket {
    explicit Ticket(std::shared_ptr<State> of) : state(std::move(of)) {}
    ~Ticket() { state->finalize(State::Phase::abandoned); }
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    std::shared_ptr<State> state;
  };
  Event event;
  event.state_ = std::make_shared<State>();
  event.state_->point = stream.make_point();
  stream.submit([ticket = std::make_shared<Ticket>(event.state_)] {
    if (ticket->state->point) {
      ticket->state->point->record();
    }
    ticket->state->finalize(State::Phase::reached);
  });
  return event;
}

void Event::wait_on(Stream& stream) const {
  if (reached()) {
    return;
  }
  stream.submit([state = state_, &stream] {
    if (!state->wait()) {
      throw DeviceError("event: the stream that was to reach it has failed");
    }
    if (state->point) {
      stream.await(*state->point);
    }
  });
}

bool Event::reached() const {
  return !state_ || (state_->phase.load(std::memory_order_acquire) == State::Phase::reached &&
                     (!state_->point || state_->point->reached()));
}

}  // namespace train::kernels
