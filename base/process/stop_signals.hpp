#pragma once

#include <array>
#include <csignal>
#include <functional>
#include <memory>
#include <stop_token>

namespace train {

/// Signals that request a stop: SIGHUP means that the terminal is gone; batch systems are
/// configured to send SIGUSR1 or SIGUSR2; SIGXCPU means that the limit of `ulimit -t` is used up,
/// and repeats each second. A SIGHUP ignored at program start, as by nohup, stays ignored.
inline constexpr std::array<int, 6> kStopSignals = {SIGINT,  SIGTERM, SIGHUP,
                                                    SIGUSR1, SIGUSR2, SIGXCPU};

/// Blocks the stop signals in the calling thread and all threads started later, so that they only
/// reach watch_signals(). SIGPIPE and SIGXFSZ (a file at the limit of `ulimit -f`) are ignored, and
/// become errors of the calls that raise them. Call it first in main.
///
/// A SIGCHLD ignored at program start, as by some container init programs, is reset: otherwise the
/// system would discard each child's exit status.
void block_signals();

/// Restores the default effect of the signals, which ends the process, also where it is the first
/// one of a container: for commands that have nothing to save. Call it before any thread is
/// started.
void allow_signals();

/// Starts a thread that takes the signals until the process ends: a second SIGINT ends the process
/// at once with code 130 (committed checkpoints are safe, P3; the current step is lost); others are
/// kept for stop_signal() and passed to the SignalListener, if any. Calling it again has no effect.
/// REQUIRES: block_signals().
void watch_signals();

/// Last signal that arrived, whether or not watch_signals() has taken it; 0: none.
[[nodiscard]] int stop_signal();

/// Requests a stop when a signal arrives: for long work before the actors run.
class StopOnSignal {
 public:
  StopOnSignal();
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  [[nodiscard]] std::stop_token token() const { return stop_.get_token(); }

 private:
  std::stop_source stop_;
  std::unique_ptr<class SignalListener> listener_;
};

/// Turns signals into calls, on watch_signals()' thread, which it starts if needed.
class SignalListener {
 public:
  /// `on_signal` is called for every signal from now on, and for the last earlier one.
  explicit SignalListener(std::function<void(int)> on_signal);
  ~SignalListener();  ///< Waits for a running call.
  SignalListener(const SignalListener&) = delete;
  SignalListener& operator=(const SignalListener&) = delete;

 private:
  friend struct SignalWatch;

  std::function<void(int)> on_signal_;
  int to_tell_;  ///< Earlier signal still to be passed on; 0: none.
};

}  // namespace train
