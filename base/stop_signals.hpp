#pragma once

#include <array>
#include <csignal>
#include <functional>
#include <memory>
#include <stop_token>

namespace train {

/// The signals that ask to stop: SIGHUP says that the terminal has gone, and batch systems are told
/// to send SIGUSR1 or SIGUSR2; SIGXCPU says that a process has used the time that `ulimit -t` gives
/// it, and comes again each second. A SIGHUP that was ignored when the program started, as nohup
/// does, stays so.
inline constexpr std::array<int, 6> stop_signals = {SIGINT,  SIGTERM, SIGHUP,
                                                    SIGUSR1, SIGUSR2, SIGXCPU};

/// Blocks them in the calling thread and all it starts later: from then on they only reach
/// watch_signals(). SIGPIPE and SIGXFSZ (a file as long as `ulimit -f` lets it be) are ignored, and
/// are errors of the calls that raise them. Call it first in main.
///
/// A SIGCHLD that was ignored when the program started, as some init programs of containers have
/// it, is not any more: the system would forget each child as it ends, and nobody could tell how.
void block_signals();

/// Gives the signals back their usual effect, to end the process: for commands that have nothing to
/// save. Before any thread is started.
void allow_signals();

/// From here to the end of the process a thread takes the signals, in every phase: a second SIGINT
/// ends the process at once with code 130 (what is committed stands, P3; the step in flight is
/// lost); the others stay for stop_signal() and go to the SignalListener that there is. Again: no
/// effect. REQUIRES: block_signals().
void watch_signals();

/// The last of them that came, whether watch_signals() has taken it yet or not; 0: none.
[[nodiscard]] int stop_signal();

/// Asks to stop as soon as one comes: for long work before the actors run.
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

/// Turns signals into calls, from watch_signals()' thread, which it starts if nobody has.
class SignalListener {
 public:
  /// `on_signal` is called for every signal from now on, and for the last that came before.
  explicit SignalListener(std::function<void(int)> on_signal);
  ~SignalListener();  ///< Waits for a call that is under way.
  SignalListener(const SignalListener&) = delete;
  SignalListener& operator=(const SignalListener&) = delete;

 private:
  friend struct SignalWatch;

  std::function<void(int)> on_signal_;
  int to_tell_;  ///< The one that came before; 0: it knows of all.
};

}  // namespace train
