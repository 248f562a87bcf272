#include "kernels/thread_team.hpp"

#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <atomic>
#include <mutex>
#include <new>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/harness/thread_sleep.hpp"
#include "tests/support/processes/few_threads.hpp"

namespace train::kernels::cpu::thread_team_test {
namespace {

TEST_CASE("thread_team: where a thread cannot be started, those before it end",
          "[kernels][thread_team][P2]") {
  CHECK(test::gives_up_without_threads([] { const ThreadTeam team(200); }));
}

TEST_CASE("thread_team: an exception of worker 0 is passed on when all others have returned",
          "[kernels][thread_team]") {
  constexpr int kThreads = 3;
  ThreadTeam team(kThreads);
  std::atomic<int> returned = 0;
  const auto job = [](void* context, int worker) {
    if (worker == 0) {
      throw std::bad_alloc();
    }
    std::this_thread::yield();
    ++*static_cast<std::atomic<int>*>(context);
  };
  for (int round = 1; round <= 100; ++round) {
    CHECK_THROWS_AS(team.run(job, &returned), std::bad_alloc);
    REQUIRE(returned == round * (kThreads - 1));
  }
}

TEST_CASE("thread_team: every index is visited once, by workers in range",
          "[kernels][thread_team]") {
  const bool shares = GENERATE(false, true);
  for (const int threads : {1, 2, 3, 5}) {
    for (const std::int64_t count : {0, 1, 2, 4, 1000}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
      std::atomic<bool> in_range = true;
      const auto see = [&](std::int64_t i, int worker) {
        ++visits[static_cast<std::size_t>(i)];
        if (worker < 0 || worker >= threads) {
          in_range = false;
        }
      };
      if (shares) {
        parallel_shares(threads, count, see);
      } else {
        parallel_for(threads, count, see);
      }
      REQUIRE(in_range);
      for (const std::atomic<int>& visit : visits) {
        REQUIRE(visit == 1);
      }
    }
  }
}

TEST_CASE("thread_team: everybody takes part, and again after having slept",
          "[kernels][thread_team]") {
  for (int round = 0; round < 3; ++round) {
    std::atomic<int> arrived = 0;
    std::set<int> workers;
    std::set<pid_t> threads;
    std::mutex mutex;
    // Each of the three waits for the other two: one thread alone would never finish.
    parallel_for(3, 3, [&](std::int64_t, int worker) {
      {
        const std::lock_guard lock(mutex);
        workers.insert(worker);
        if (worker != 0) {
          threads.insert(::gettid());
        }
      }
      ++arrived;
      while (arrived < 3) {
        std::this_thread::yield();
      }
    });
    REQUIRE(workers == std::set<int>{0, 1, 2});
    for (const pid_t thread : threads) {
      REQUIRE(test::falls_asleep(thread));
    }
  }
}

TEST_CASE("thread_team: a worker begins with its own share, and takes what another leaves",
          "[kernels][thread_team]") {
  constexpr std::int64_t count = 8;
  std::vector<int> visitor(count, -1);
  std::atomic<int> begun = 0;
  std::atomic<int> left = count;
  parallel_shares(2, count, [&](std::int64_t i, int worker) {
    visitor[static_cast<std::size_t>(i)] = worker;
    const bool first = i == 0 || i == count / 2;
    begun += first ? 1 : 0;
    while (begun < 2) {  // Nobody steals a share that has not begun.
      std::this_thread::yield();
    }
    --left;
    while (i == 0 && left > 0) {  // Worker 0 does nothing else.
      std::this_thread::yield();
    }
  });
  CHECK(visitor == std::vector<int>{0, 1, 1, 1, 1, 1, 1, 1});
}

TEST_CASE("thread_team: many short jobs follow each other without loss", "[kernels][thread_team]") {
  std::atomic<std::int64_t> sum = 0;
  for (int job = 0; job < 20'000; ++job) {
    parallel_for(2, 4, [&](std::int64_t i, int) { sum += i; });
  }
  REQUIRE(sum == 20'000 * 6);
}

TEST_CASE("thread_team: teams of two threads do not meet", "[kernels][thread_team]") {
  std::atomic<std::int64_t> sum = 0;
  const auto jobs = [&] {
    for (int job = 0; job < 500; ++job) {
      parallel_for(2, 8, [&](std::int64_t i, int) { sum += i; });
    }
  };
  std::thread other(jobs);
  jobs();
  other.join();
  REQUIRE(sum == 2 * 500 * 28);
}

TEST_CASE("thread_team: its threads take no signals", "[kernels][thread_team]") {
  std::atomic<int> arrived = 0;
  std::atomic<bool> blocked = false;
  parallel_for(2, 2, [&](std::int64_t, int worker) {
    ++arrived;
    while (arrived < 2) {
      std::this_thread::yield();
    }
    if (worker == 1) {
      sigset_t mask;
      pthread_sigmask(SIG_BLOCK, nullptr, &mask);
      blocked = sigismember(&mask, SIGTERM) == 1;
    }
  });
  REQUIRE(blocked);
}

}  // namespace
}  // namespace train::kernels::cpu::thread_team_test
