#pragma once

#include <fmt/format.h>
#include <sys/types.h>

#include <fstream>
#include <optional>
#include <string>

#include "tests/support/harness/hang_limit.hpp"

namespace train::test {

/// What the kernel says of a thread's sleeps.
struct ThreadSleeps {
  bool sleeping = false;  ///< It is in the last one.
  long count = -1;        ///< So far; -1: there is no such thread.
};

/// Of a thread of this process.
inline ThreadSleeps sleeps_of(pid_t thread) {
  std::ifstream status(fmt::format("/proc/self/task/{}/status", thread));
  const std::string state = "State:";
  const std::string sleeps = "voluntary_ctxt_switches:";
  ThreadSleeps found;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(state)) {
      found.sleeping = line.find('S', state.size()) != std::string::npos;
    } else if (line.starts_with(sleeps)) {
      found.count = std::stol(line.substr(sleeps.size()));
    }
  }
  return found;
}

/// The number of the sleep in the kernel that a thread of this process is in; none while it runs.
/// Of a thread that has been given something to do, a sleep later than the one it was in before
/// says that it waits for others: nothing but the kernel knows that of a call that blocks.
inline std::optional<long> sleep_of(pid_t thread) {
  const ThreadSleeps found = sleeps_of(thread);
  return found.sleeping ? std::optional(found.count) : std::nullopt;
}

/// Waits until the thread is in a sleep later than the one of number `after`.
inline bool falls_asleep(pid_t thread, long after = -1) {
  return comes_true([&] { return sleep_of(thread).value_or(-1) > after; });
}

}  // namespace train::test
