#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/process/descriptor.hpp"
#include "base/process/joined_thread.hpp"
#include "base/result.hpp"

namespace train {

/// End of a process.
struct ProcessEnd {
  int exit_code = -1;  ///< -1: ended by a signal.
  int signal = 0;      ///< Signal that ended it, or 0.

  /// "exit code 3", "killed by SIGKILL".
  [[nodiscard]] std::string text() const;
};

/// Child process that runs another program. It reads /dev/null, blocks no signal, inherits only
/// given descriptors, and the kernel kills it when the thread that started it ends in any way. Not
/// thread-safe.
class Process {
 public:
  struct Options {
    std::span<const int> inherited = {};  ///< Descriptors inherited under the same numbers.
    std::span<const int> ignored = {};    ///< Signals to ignore.
    int errors = -1;                      ///< Standard error; -1: the parent's.
    int output = -1;        ///< Standard output; -1: the parent's, discarded if `errors` is given.
    bool isolated = false;  ///< Own process group, in which no signal is ignored.
    int nice = 0;           ///< Niceness, not below the caller's.
  };

  /// Starts `words`: an absolute path, then arguments, with environment_of_others(). On return the
  /// program runs. Errors (failure): only the system's text.
  [[nodiscard]] static Result<Process> start(const std::vector<std::string>& words,
                                             const Options& options);
  Process(Process&& other) noexcept = default;
  Process& operator=(Process&& other) = delete;
  /// Kills the process, and its group if isolated, and waits for its end.
  ~Process();

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Becomes readable when the process has ended.
  [[nodiscard]] int handle() const { return handle_.get(); }
  /// Sends SIGKILL, also to its group if isolated. REQUIRES: it has not been reaped.
  void kill() const;
  /// Blocks until the process has ended; its pid is not reused until it is reaped.
  void await_end() const;
  /// Result of an ended process; nullopt: it still runs. Does not block.
  [[nodiscard]] std::optional<ProcessEnd> try_reap();
  /// Blocks until the process has ended. REQUIRES: it has not been reaped.
  ProcessEnd reap();

 private:
  Process(pid_t pid, bool isolated);

  pid_t pid_ = -1;
  bool isolated_ = false;
  std::unique_ptr<JoinedThread> watch_;  // Makes the handle readable where the kernel does not.
  Descriptor handle_;                    // Empty: it has been reaped.
};

/// End of a program run to completion.
struct ChildEnd : ProcessEnd {
  bool stopped = false;    ///< Killed because a stop was requested.
  bool timed_out = false;  ///< Killed because of the timeout.
  std::string errors;      ///< Last 4 KiB of its standard error.
};

struct ChildOptions {
  int nice = 0;                          ///< Niceness, not below the caller's.
  std::chrono::milliseconds timeout{0};  ///< 0: no timeout.
  std::stop_token stop = {};
  std::function<void()> started = {};  ///< Called when it runs.
};

/// Runs `words` as an isolated Process and waits for its end; then, or if it has to end, its group
/// is killed: on return all of it has ended. Blocks. Errors (failure): it could not be started.
Result<ChildEnd> run_child(const std::vector<std::string>& words, const ChildOptions& options);

/// Path of `program` as the shell would find it: a name with a slash unchanged, others in PATH.
/// nullopt: not found.
std::optional<std::string> find_program(const std::string& program);

/// Pythons to try, for find_program(), in this order: that of the variable ACTORTRAIN_PYTHON if it
/// is set, as by the wheel for the Python that has it; python3; /usr/bin/python3.
std::vector<std::string> python_programs();

/// Number of processes killed on this machine for lack of memory, from `vmstat` (a file like
/// /proc/vmstat); nullopt: not available.
[[nodiscard]] std::optional<std::uint64_t> count_oom_kills(
    const std::filesystem::path& vmstat = "/proc/vmstat");

}  // namespace train
