#pragma once

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/process/joined_thread.hpp"

namespace train::kernels {

/// Blocks all signals while it lives, so that threads started meanwhile inherit the mask and
/// signals reach the main thread. Signals of a thread's own fault stay unblocked, for the crash
/// handler.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) {
      sigdelset(&all, fault);
    }
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

namespace cpu {

/// Team of threads that run a kernel together with the calling thread.
///
/// Not OpenMP's team, which waits either by sleeping (70 us more for every kernel) or by spinning
/// for milliseconds, which takes the core from everything else. This team spins for some 50 us and
/// then sleeps.
///
/// Threading: `run` from one thread at a time, and not from inside a job.
class ThreadTeam {
 public:
  using Job = void (*)(void* context, int worker);

  /// Starts threads - 1 threads with all signals blocked. Throws std::system_error.
  explicit ThreadTeam(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  [[nodiscard]] int threads() const { return static_cast<int>(workers_.size()) + 1; }
  /// Calls job(context, worker) once for each worker in [0, threads), worker 0 on the caller's
  /// thread, and returns, or throws what worker 0 has thrown, when all are done; no other throws.
  void run(Job job, void* context);

  /// Remaining part of one worker's share of a job's items.
  struct alignas(64) Share {
    std::atomic<std::int64_t> next = 0;
    std::int64_t end = 0;
  };
  /// One per worker, free for the running job to use.
  [[nodiscard]] std::vector<Share>& shares() { return shares_; }

  /// The calling thread's own team, started on first use, ended with the thread.
  [[nodiscard]] static ThreadTeam& of_this_thread(int threads);

 private:
  void work(int worker);

  Job job_ = nullptr;
  void* context_ = nullptr;
  bool stopping_ = false;
  alignas(64) std::atomic<int> generation_ = 0;  // Job number; publishes the members above.
  alignas(64) std::atomic<int> pending_ = 0;     // Workers that have not finished the job.
  std::vector<Share> shares_;
  std::vector<JoinedThread> workers_;
};

/// Calls body(index, worker) for every index of [0, count), on whichever of `threads` threads is
/// free; worker in [0, threads) selects scratch memory. REQUIRES: body does not throw, and its
/// result for an index depends on the index alone.
template <class Body>
void parallel_for(int threads, std::int64_t count, const Body& body) {
  if (threads == 1 || count <= 1) {
    for (std::int64_t i = 0; i < count; ++i) {
      body(i, 0);
    }
    return;
  }
  struct Shared {
    const Body& body;
    std::int64_t count;
    std::atomic<std::int64_t> next = 0;
  } shared{.body = body, .count = count};
  const auto job = [](void* context, int worker) {
    auto& s = *static_cast<Shared*>(context);
    while (true) {
      const std::int64_t i = s.next.fetch_add(1, std::memory_order_relaxed);
      if (i >= s.count) {
        return;
      }
      s.body(i, worker);
    }
  };
  ThreadTeam::of_this_thread(threads).run(job, &shared);
}

/// parallel_for() for items that are contiguous in memory. A worker begins with its own share, the
/// same part in every kernel, whose data its core's cache still holds from the previous kernel;
/// then it takes what other workers have left.
template <class Body>
void parallel_shares(int threads, std::int64_t count, const Body& body) {
  if (threads == 1 || count <= 1) {
    parallel_for(1, count, body);
    return;
  }
  ThreadTeam& team = ThreadTeam::of_this_thread(threads);
  struct Shared {
    const Body& body;
    std::vector<ThreadTeam::Share>& shares;
  } shared{.body = body, .shares = team.shares()};
  for (int worker = 0; worker < threads; ++worker) {
    ThreadTeam::Share& share = shared.shares[static_cast<std::size_t>(worker)];
    share.next.store(count * worker / threads, std::memory_order_relaxed);
    share.end = count * (worker + 1) / threads;
  }
  const auto job = [](void* context, int worker) {
    auto& s = *static_cast<Shared*>(context);
    const std::size_t count_of_shares = s.shares.size();
    for (std::size_t after = 0; after < count_of_shares; ++after) {
      ThreadTeam::Share& share =
          s.shares[(static_cast<std::size_t>(worker) + after) % count_of_shares];
      while (true) {
        const std::int64_t i = share.next.fetch_add(1, std::memory_order_relaxed);
        if (i >= share.end) {
          break;
        }
        s.body(i, worker);
      }
    }
  };
  team.run(job, &shared);
}

}  // namespace cpu
}  // namespace train::kernels
