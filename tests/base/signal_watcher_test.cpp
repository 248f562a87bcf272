#include "base/signal_watcher.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
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
    block_signals();
    ::_exit(work());
  }
  int end = 0;
  REQUIRE(::waitpid(child, &end, 0) == child);
  return WIFEXITED(end) ? WEXITSTATUS(end) : -WTERMSIG(end);
}

TEST_CASE("signal_watcher: the signals that stop a run become calls", "[base][signal_watcher]") {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    CHECK(in_child([signal] {
            ::kill(::getpid(), signal);
            std::atomic<int> heard{0};
            const SignalWatcher watcher([&heard](int number) {
              heard = number;
              heard.notify_all();
            });
            heard.wait(0);
            return stop_signal() == signal ? heard.load() : -1;
          }) == signal);
  }
}

TEST_CASE("signal_watcher: the second interrupt leaves at once", "[base][signal_watcher][P3]") {
  CHECK(in_child([] {
          std::atomic<int> heard{0};
          const SignalWatcher watcher([&heard](int /*signal*/) {
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

TEST_CASE("signal_watcher: a signal that nobody has taken asks to stop and stays",
          "[base][signal_watcher]") {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    CHECK(in_child([signal] {
            const StopOnSignal stop;
            if (stop_signal() != 0 || signal_pending() || stop.token().stop_requested()) {
              return -1;
            }
            ::kill(::getpid(), signal);
            if (stop_signal() != signal) {
              return -1;
            }
            const bool asked = test::comes_true([&stop] { return stop.token().stop_requested(); });
            return asked && stop_signal() == signal && signal_pending() ? signal : -1;
          }) == signal);
  }
}

}  // namespace
}  // namespace train
