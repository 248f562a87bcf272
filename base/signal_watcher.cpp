#include "base/signal_watcher.hpp"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <utility>

namespace train {
namespace {

constexpr int kExitInterrupted = 130;

std::atomic<int> taken_signal{0};  // of any watcher of this process

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR1);
  return set;
}

}  // namespace

void block_signals() {
  const sigset_t set = watched_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

void allow_signals() {
  const sigset_t set = watched_signals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

bool signal_pending() {
  const sigset_t set = watched_signals();
  const timespec at_once{.tv_sec = 0, .tv_nsec = 0};
  return sigtimedwait(&set, nullptr, &at_once) > 0;
}

int stop_signal() {
  sigset_t pending;
  sigpending(&pending);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    if (sigismember(&pending, signal) == 1) {
      return signal;
    }
  }
  return taken_signal;
}

StopOnSignal::StopOnSignal()
    : thread_([stop = stop_](const std::stop_token& done) {
        constexpr std::chrono::milliseconds kPause{20};
        while (!done.stop_requested() && !stop.stop_requested()) {
          if (stop_signal() != 0) {
            std::stop_source(stop).request_stop();
          }
          std::this_thread::sleep_for(kPause);
        }
      }) {}

SignalWatcher::SignalWatcher(std::function<void(int)> on_signal)
    : on_signal_(std::move(on_signal)), thread_([this] { watch(); }) {}

SignalWatcher::~SignalWatcher() {
  done_ = true;
  thread_.join();
}

/// Not asio::signal_set: a blocked signal waits in the kernel, and can be asked for, wherever
/// nobody watches and no loop runs (in the preparation, between generations, in a run of one rank),
/// while the set's handler would have to be there first and interrupt the system calls of every
/// thread.
void SignalWatcher::watch() {
  const sigset_t set = watched_signals();
  const timespec patience{.tv_sec = 0, .tv_nsec = 50'000'000};
  int interrupts = 0;
  while (!done_) {
    const int signal = sigtimedwait(&set, nullptr, &patience);
    if (signal <= 0) {
      continue;
    }
    taken_signal = signal;
    interrupts += signal == SIGINT ? 1 : 0;
    if (interrupts > 1) {
      std::fputs("\nleft at once: the committed checkpoints stand\n", stderr);
      _exit(kExitInterrupted);
    }
    on_signal_(signal);
  }
}

}  // namespace train
