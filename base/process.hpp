#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "base/result.hpp"

namespace train {

/// How a process ended.
struct ProcessEnd {
  int exit_code = -1;  ///< -1: a signal ended it.
  int signal = 0;      ///< That ended it, or 0.

  /// "exit code 3", "killed by SIGKILL".
  [[nodiscard]] std::string text() const;
};

/// A child process that runs another program. It reads /dev/null, blocks no signal, inherits no
/// descriptor that it is not given, and the kernel kills it when the thread that started it ends,
/// however that ends. Not thread-safe.
class Process {
 public:
  struct Options {
    std::span<const int> inherited = {};  ///< Descriptors that it has under the same numbers.
    std::span<const int> ignored = {};    ///< Signals that it ignores.
    int errors = -1;                      ///< Its standard error; -1: ours.
    int output = -1;        ///< Its standard output; -1: ours, dropped where `errors` is given.
    bool isolated = false;  ///< A process group of its own, in which no signal is ignored.
    int nice = 0;           ///< Not below the caller's own.
  };

  /// Starts `words`: an absolute path, then arguments. On return the program runs.
  /// Errors (failure): the system's text alone.
  [[nodiscard]] static Result<Process> start(const std::vector<std::string>& words,
                                             const Options& options);
  Process(Process&& other) noexcept = default;
  Process& operator=(Process&& other) = delete;
  /// Kills it, and its group if it is isolated, and waits for its end.
  ~Process();

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Readable when it has ended.
  [[nodiscard]] int handle() const { return handle_.get(); }
  /// SIGKILL, also for its group if it is isolated. REQUIRES: it has not been reaped.
  void kill() const;
  /// Blocks until it has ended; its number stays taken until it is reaped.
  void await_end() const;
  /// How it ended; none: it runs. Does not block.
  [[nodiscard]] std::optional<ProcessEnd> try_reap();
  /// Blocks until it has ended. REQUIRES: it has not been reaped.
  ProcessEnd reap();

 private:
  Process(pid_t pid, bool isolated);

  pid_t pid_ = -1;
  bool isolated_ = false;
  Descriptor handle_;  // none: it has been reaped
};

/// How a program ended that was run to its end.
struct ChildEnd : ProcessEnd {
  bool stopped = false;    ///< Killed because a stop was asked for.
  bool timed_out = false;  ///< Killed because its time was over.
  std::string errors;      ///< The last 4 KiB of its standard error.
};

struct ChildOptions {
  int nice = 0;                          ///< Not below the caller's own.
  std::chrono::milliseconds timeout{0};  ///< 0: none.
  std::stop_token stop = {};
  std::function<void()> started = {};  ///< Called once it runs.
};

/// Runs `words` as an isolated Process and waits for its end; its group is killed when it has ended
/// or has to: on return, all of it has ended. Blocks. Errors (failure): it could not be started.
Result<ChildEnd> run_child(const std::vector<std::string>& words, const ChildOptions& options);

/// Where the shell would find `program`: a name with a slash as it is, another in PATH. Empty:
/// nowhere.
std::optional<std::string> find_program(const std::string& program);

/// Processes that the kernel has killed on this machine because memory ran out, as `vmstat` (a file
/// like /proc/vmstat) counts them; none: it does not say.
[[nodiscard]] std::optional<std::uint64_t> count_oom_kills(
    const std::filesystem::path& vmstat = "/proc/vmstat");

}  // namespace train
