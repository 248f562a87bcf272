#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace train::storage {

/// How a program ended that was run to its end.
struct ChildEnd {
  int exit_code = -1;      ///< As it said; -1: a signal ended it.
  int signal = 0;          ///< That ended it, or 0.
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

/// Runs `words` (an absolute path, then arguments) and waits for its end. It has a process group of
/// its own, no standard input, its standard output is dropped, and it has none of our descriptors.
/// It is killed when the calling thread ends, and its group when it has ended or has to: on return,
/// all of it has ended. Blocks. Errors: it could not be started (failure).
Result<ChildEnd> run_child(const std::vector<std::string>& words, const ChildOptions& options);

/// Where the shell would find `program`: a name with a slash as it is, another in PATH. Empty:
/// nowhere.
std::optional<std::string> find_program(const std::string& program);

}  // namespace train::storage
