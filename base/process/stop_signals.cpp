#include "base/process/stop_signals.hpp"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <ctime>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "base/process/joined_thread.hpp"

namespace train {
namespace {

constexpr int kExitBySignal = 128;  // And the signal's number, as a shell has it.
constexpr int kExitInterrupted = kExitBySignal + SIGINT;

/// True if the program was started to survive its terminal. (A shell without job control makes
/// background programs ignore SIGINT; `kill -INT` still saves there.)
bool stays_ignored(int signal) {
  struct sigaction action = {};
  return signal == SIGHUP && ::sigaction(signal, nullptr, &action) == 0 &&
         action.sa_handler == SIG_IGN;
}

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kStopSignals) {
    if (!stays_ignored(signal)) {
      sigaddset(&set, signal);
    }
  }
  return set;
}

[[noreturn]] void leave_at_once() {
  constexpr std::string_view kLine = "\nexiting immediately; committed checkpoints are safe\n";
  pollfd error = {.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (::poll(&error, 1, 0) == 1) {  // A stopped terminal must not block the exit.
    [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, kLine.data(), kLine.size());
  }
  _exit(kExitInterrupted);
}

[[noreturn]] void end_as_by(int signal) { ::_exit(kExitBySignal + signal); }

}  // namespace

/// Signal watch of the process. Never destroyed: its thread takes signals until the very end.
struct SignalWatch {
  std::atomic<int> taken{0};
  std::mutex mutex;  ///< Guards the members below.
  bool runs = false;
  std::vector<SignalListener*> listeners;

  static SignalWatch& instance() {
    static auto* const watch = new SignalWatch;
    return *watch;
  }

  void start() {
    const std::lock_guard lock(mutex);
    if (!std::exchange(runs, true)) {
      JoinedThread([this] { run(); }).detach();
    }
  }
  void add(SignalListener& listener) {
    const std::lock_guard lock(mutex);
    listener.to_tell_ = taken;
    listeners.push_back(&listener);
  }
  void remove(SignalListener& listener) {
    const std::lock_guard lock(mutex);
    std::erase(listeners, &listener);
  }

 private:
  /// Not asio::signal_set: a blocked signal stays pending in the kernel and can be queried when no
  /// loop runs (during preparation, between generations, in a run of one rank), while a handler
  /// must be installed first and interrupts the system calls of every thread.
  void run() {
    const sigset_t set = watched_signals();
    const timespec patience{.tv_sec = 0, .tv_nsec = 20'000'000};
    int interrupts = 0;
    while (true) {
      const int signal = sigtimedwait(&set, nullptr, &patience);
      interrupts += signal == SIGINT ? 1 : 0;
      if (interrupts > 1) {
        leave_at_once();
      }
      tell(std::max(signal, 0));
    }
  }
  /// `signal`: 0 for none; then only listeners that have missed an earlier one are told.
  void tell(int signal) {
    const std::lock_guard lock(mutex);
    if (signal != 0) {
      taken = signal;
    }
    for (SignalListener* const listener : listeners) {
      const int before = std::exchange(listener->to_tell_, 0);
      if (const int now = signal != 0 ? signal : before; now != 0) {
        listener->on_signal_(now);
      }
    }
  }
};

void block_signals() {
  const sigset_t set = watched_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGCHLD, SIG_DFL);
}

void allow_signals() {
  const sigset_t set = watched_signals();
  // The first process of a container gets no signal whose effect is the default one.
  for (const int signal : kStopSignals) {
    if (::getpid() == 1 && sigismember(&set, signal) == 1) {
      std::signal(signal, end_as_by);
    }
  }
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void watch_signals() { SignalWatch::instance().start(); }

int stop_signal() {
  sigset_t pending;
  sigpending(&pending);
  const sigset_t watched = watched_signals();
  for (const int signal : kStopSignals) {
    if (sigismember(&pending, signal) == 1 && sigismember(&watched, signal) == 1) {
      return signal;
    }
  }
  return SignalWatch::instance().taken;
}

StopOnSignal::StopOnSignal()
    : listener_(
          std::make_unique<SignalListener>([this](int /*signal*/) { stop_.request_stop(); })) {}

StopOnSignal::~StopOnSignal() = default;

SignalListener::SignalListener(std::function<void(int)> on_signal)
    : on_signal_(std::move(on_signal)), to_tell_(0) {
  watch_signals();
  SignalWatch::instance().add(*this);
}

SignalListener::~SignalListener() { SignalWatch::instance().remove(*this); }

}  // namespace train
