#include "actors/run/signal_watcher.hpp"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <ctime>
#include <utility>

namespace train::actors {
namespace {

constexpr int kExitInterrupted = 130;

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

SignalWatcher::SignalWatcher(std::function<void(int)> on_signal)
    : on_signal_(std::move(on_signal)), thread_([this] { watch(); }) {}

SignalWatcher::~SignalWatcher() {
  done_ = true;
  thread_.join();
}

void SignalWatcher::watch() {
  const sigset_t set = watched_signals();
  const timespec patience{.tv_sec = 0, .tv_nsec = 50'000'000};
  int interrupts = 0;
  while (!done_) {
    const int signal = sigtimedwait(&set, nullptr, &patience);
    if (signal <= 0) {
      continue;
    }
    interrupts += signal == SIGINT ? 1 : 0;
    if (interrupts > 1) {
      std::fputs("\nleft at once: the committed checkpoints stand\n", stderr);
      _exit(kExitInterrupted);
    }
    on_signal_(signal);
  }
}

}  // namespace train::actors
