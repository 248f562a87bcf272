#include "kernels/thread_team.hpp"

#include <hwy/cache_control.h>
#include <pthread.h>

#include <chrono>
#include <memory>

#include "base/process/joined_thread.hpp"

namespace train::kernels::cpu {
namespace {

/// Longer than a kernel's last stragglers plus the gap to the next kernel; too short for a busy
/// neighbour to notice.
constexpr std::chrono::microseconds kSpinTime{50};

/// Waits until `value` is not `old`: spins first, then sleeps.
void wait_for_change(const std::atomic<int>& value, int old) {
  constexpr int pauses_per_look = 32;
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < pauses_per_look; ++i) {
      if (value.load(std::memory_order_acquire) != old) {
        return;
      }
      hwy::Pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  value.wait(old, std::memory_order_acquire);
}

/// Lets the workers see what was written before.
void begin_generation(std::atomic<int>& generation) {
  generation.fetch_add(1, std::memory_order_release);
  generation.notify_all();
}

/// Waits in its destructor until all workers have returned: also if worker 0 throws, for want of
/// memory, since the others use the job until then.
class AllReturned {
 public:
  explicit AllReturned(const std::atomic<int>& pending) : pending_(pending) {}
  ~AllReturned() {
    for (int left = pending_.load(std::memory_order_acquire); left != 0;
         left = pending_.load(std::memory_order_acquire)) {
      wait_for_change(pending_, left);
    }
  }
  AllReturned(const AllReturned&) = delete;
  AllReturned& operator=(const AllReturned&) = delete;

 private:
  const std::atomic<int>& pending_;
};

}  // namespace

ThreadTeam::ThreadTeam(int threads) : shares_(static_cast<std::size_t>(threads)) {
  const SignalsBlocked blocked;
  try {
    for (int worker = 1; worker < threads; ++worker) {
      workers_.emplace_back([this, worker] { work(worker); });
      pthread_setname_np(workers_.back().native_handle(), "kernel-team");
    }
  } catch (...) {
    // One that cannot be started: the ones before it are joined next, and would wait for ever.
    stopping_ = true;
    begin_generation(generation_);
    throw;
  }
}

ThreadTeam::~ThreadTeam() {
  stopping_ = true;
  begin_generation(generation_);
  for (JoinedThread& worker : workers_) {
    worker.join();
  }
}

void ThreadTeam::run(Job job, void* context) {
  job_ = job;
  context_ = context;
  pending_.store(threads() - 1, std::memory_order_relaxed);
  begin_generation(generation_);
  const AllReturned returned(pending_);
  job(context, 0);
}

void ThreadTeam::work(int worker) {
  int seen = 0;
  while (true) {
    wait_for_change(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stopping_) {
      return;
    }
    job_(context_, worker);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      pending_.notify_one();
    }
  }
}

ThreadTeam& ThreadTeam::of_this_thread(int threads) {
  static thread_local std::unique_ptr<ThreadTeam> team;
  if (team == nullptr || team->threads() != threads) {
    team.reset();  // The old threads end before new ones start.
    team = std::make_unique<ThreadTeam>(threads);
  }
  return *team;
}

}  // namespace train::kernels::cpu
