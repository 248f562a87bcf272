#pragma once

#include <fmt/format.h>
#include <sys/types.h>

#include <fstream>
#include <optional>
#include <string>

#include "tests/support/harness/hang_limit.hpp"

namespace train::test {

/// The number of the sleep in the kernel that a thread of this process is in; none while it runs.
/// Of a thread that has been given something to do, a sleep later than the one it was in before
/// says that it waits for others: nothing but the kernel knows that of a call that blocks.
inline std::optional<long> sleep_of(pid_t thread) {
  std::ifstream status(fmt::format("/proc/self/task/{}/status", thread));
  const std::string state = "State:";
  const std::string sleeps = "voluntary_ctxt_switches:";
  bool sleeping = false;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(state)) {
      sleeping = line.find('S', state.size()) != std::string::npos;
    } else if (sleeping && line.starts_with(sleeps)) {
      return std::stol(line.substr(sleeps.size()));
    }
  }
  return std::nullopt;
}

/// Waits until the thread is in a sleep later than the one of number `after`.
inline bool falls_asleep(pid_t thread, long after = -1) {
  return comes_true([&] { return sleep_of(thread).value_or(-1) > after; });
}

}  // namespace train::test
