#include "base/process/stop_signals.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <functional>

#include "tests/support/harness/hang_limit.hpp"

namespace train {
namespace {

constexpr int kInterruptedTwice = 130;

/// What `work` returns in a process of its own, whose signals are blocked; less the signal that
/// ended it instead.
int in_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(static_cast<unsigned>(test::hang_limit.count()));
    for (const int signal : kStopSignals) {  // The tests' runner handles some.
      ::signal(signal, SIG_DFL);
    }
    block_signals();
    ::_exit(work());
  }
  int end = 0;
  REQUIRE(::waitpid(child, &end, 0) == child);
  return WIFEXITED(end) ? WEXITSTATUS(end) : -WTERMSIG(end);
}

bool is_pending(int signal) {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, signal) == 1;
}

TEST_CASE("stop_signals: the signals that stop a run become calls", "[base][stop_signals]") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
    CHECK(in_child([signal] {
            ::kill(::getpid(), signal);
            std::atomic<int> heard{0};
            const SignalListener listener([&heard](int number) {
              heard = number;
              heard.notify_all();
            });
            heard.wait(0);
            return stop_signal() == signal ? heard.load() : -1;
          }) == signal);
  }
}

TEST_CASE("stop_signals: the second interrupt leaves at once", "[base][stop_signals][P3]") {
  CHECK(in_child([] {
          std::atomic<int> heard{0};
          const SignalListener listener([&heard](int /*signal*/) {
            ++heard;
            heard.notify_all();
          });
          ::kill(::getpid(), SIGINT);
          heard.wait(0);
          ::kill(::getpid(), SIGINT);
          heard.wait(1);
          return 0;
        }) == kInterruptedTwice);
}

TEST_CASE("stop_signals: the second interrupt leaves at once where nobody listens",
          "[base][stop_signals][P3]") {
  CHECK(in_child([] {
          watch_signals();
          ::kill(::getpid(), SIGINT);
          if (!test::comes_true([] { return stop_signal() == SIGINT && !is_pending(SIGINT); })) {
            return -1;
          }
          ::kill(::getpid(), SIGINT);
          ::pause();  // at most until the alarm
          return 0;
        }) == kInterruptedTwice);
}

TEST_CASE("stop_signals: one that came before is told to who listens later",
          "[base][stop_signals]") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
    CHECK(in_child([signal] {
            {
              const StopOnSignal stop;
              if (stop_signal() != 0 || stop.token().stop_requested()) {
                return -1;
              }
              ::kill(::getpid(), signal);
              // Any thread may take it.
              if (!test::comes_true(
                      [&] { return stop_signal() == signal && stop.token().stop_requested(); })) {
                return -1;
              }
            }
            std::atomic<int> heard{0};
            const SignalListener listener([&heard](int number) {
              heard = number;
              heard.notify_all();
            });
            heard.wait(0);
            return stop_signal() == signal ? heard.load() : -1;
          }) == signal);
  }
}

TEST_CASE("stop_signals: a terminal that has gone stops nobody who was started with nohup",
          "[base][stop_signals]") {
  CHECK(in_child([] {
          std::signal(SIGHUP, SIG_IGN);
          watch_signals();
          ::kill(::getpid(), SIGHUP);
          ::kill(::getpid(), SIGUSR2);
          const bool heard = test::comes_true([] { return stop_signal() != 0; });
          return heard ? stop_signal() : -1;
        }) == SIGUSR2);
}

/// Result of `work` in the first process of a container; 255: no container may be made here.
int in_container(const std::function<int()>& work) {
  return in_child([&work] {
    if (::unshare(CLONE_NEWPID) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
      return 255;
    }
    const pid_t first = ::fork();
    if (first == 0) {
      ::_exit(::getpid() == 1 ? work() : 0);
    }
    int end = 0;
    return first > 0 && ::waitpid(first, &end, 0) == first && WIFEXITED(end) ? WEXITSTATUS(end) : 0;
  });
}

TEST_CASE("stop_signals: a command with nothing to save ends, also as a container's first process",
          "[base][stop_signals]") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const auto end_by = [signal] {
      allow_signals();
      ::kill(::getpid(), signal);
      return 0;
    };
    CHECK(in_child(end_by) == -signal);
    const int code = in_container(end_by);
    if (code == 255) {
      std::puts("skipped: stop_signals: no process may have process numbers of its own here");
      return;
    }
    CHECK(code == 128 + signal);
  }
}

TEST_CASE("stop_signals: how a child has ended is known, whoever had it forgotten",
          "[base][stop_signals]") {
  CHECK(in_child([] {
          std::signal(SIGCHLD, SIG_IGN);
          block_signals();
          const pid_t child = ::fork();
          if (child == 0) {
            ::_exit(7);
          }
          int end = 0;
          return ::waitpid(child, &end, 0) == child ? WEXITSTATUS(end) : -1;
        }) == 7);
}

TEST_CASE("stop_signals: a file that may not grow is an error of the write",
          "[base][stop_signals]") {
  CHECK(in_child([] {
          const rlimit nothing = {.rlim_cur = 0, .rlim_max = 0};
          const int file = ::memfd_create("file", MFD_CLOEXEC);
          return ::setrlimit(RLIMIT_FSIZE, &nothing) == 0 && ::write(file, "x", 1) < 0 ? errno : 0;
        }) == EFBIG);
}

}  // namespace
}  // namespace train
