#pragma once

#include <atomic>
#include <functional>
#include <stop_token>
#include <thread>

namespace train {

/// Blocks SIGINT, SIGTERM and SIGUSR1 in the calling thread and all it starts later, and ignores
/// SIGPIPE: from then on signals only reach a SignalWatcher. Call it first in main.
void block_signals();

/// Gives the signals back their usual effect, to end the process: for commands that have nothing to
/// save. Before any thread is started.
void allow_signals();

/// A blocked signal has come that no SignalWatcher took.
[[nodiscard]] bool signal_pending();

/// The last blocked signal that came, whether a SignalWatcher took it or none has yet; 0: none.
[[nodiscard]] int stop_signal();

/// Asks to stop as soon as a blocked signal comes, and leaves it to the SignalWatcher that takes it
/// later: for long work before the actors run.
class StopOnSignal {
 public:
  StopOnSignal();
  [[nodiscard]] std::stop_token token() const { return stop_.get_token(); }

 private:
  std::stop_source stop_;
  std::jthread thread_;  // last: it uses the source
};

/// Turns signals into calls: a thread waits for them. A second SIGINT leaves the process at once
/// with code 130: what is committed stands (P3), the step in flight is lost.
class SignalWatcher {
 public:
  /// `on_signal` is called on the watcher's thread, also for a signal that came before.
  explicit SignalWatcher(std::function<void(int)> on_signal);
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  void watch();

  std::function<void(int)> on_signal_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace train
