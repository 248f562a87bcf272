#include "actors/system/background_io.hpp"

#include <sched.h>
#include <sys/resource.h>

#include <chrono>
#include <exception>

#include "base/process/joined_thread.hpp"

namespace train::actors {
namespace {

constexpr std::chrono::seconds kBusyPatience{3};

/// Sets policy and nice value of the calling thread only. A refusal costs only speed.
void be_modest(int policy) noexcept {
  constexpr int kLeastUrgent = 19;
  (void)::setpriority(PRIO_PROCESS, 0, kLeastUrgent);
  const sched_param none{};
  (void)::sched_setscheduler(0, policy, &none);
}

}  // namespace

void take_smallest_share() noexcept { be_modest(SCHED_BATCH); }

void BackgroundIo::run(const std::function<void()>& work, Beside beside) {
  if (thread_ == Thread::callers) {
    work();
    return;
  }
  const auto begin = std::chrono::steady_clock::now();
  std::exception_ptr error;
  // A new thread each time: an unprivileged thread cannot leave SCHED_IDLE again.
  JoinedThread thread([&] {
    if (beside == Beside::steps) {
      be_modest(starved_ ? SCHED_BATCH : SCHED_IDLE);
    }
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
  });
  thread.join();
  starved_ = std::chrono::steady_clock::now() - begin > kBusyPatience;
  if (error) {
    std::rethrow_exception(error);
  }
}

}  // namespace train::actors
