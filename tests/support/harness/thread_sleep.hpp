#pragma once

#include <fmt/format.h>
#include <sys/types.h>

#include <chrono>
#include <fstream>
#include <future>
#include <optional>
#include <string>

#include "tests/support/harness/hang_limit.hpp"

namespace train::test {

/// Sleeps of a thread, as reported by the kernel.
struct ThreadSleeps {
  bool sleeping = false;  ///< The last sleep is still on.
  long count = -1;        ///< Number so far; -1: there is no such thread.
};

/// Reads the sleeps of a thread of this process.
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

/// Number of the kernel sleep that a thread of this process is in; nullopt while it runs. After the
/// thread was given work, a later sleep than before shows that it waits for others: only the kernel
/// knows this of a blocking call.
inline std::optional<long> sleep_of(pid_t thread) {
  const ThreadSleeps found = sleeps_of(thread);
  return found.sleeping ? std::optional(found.count) : std::nullopt;
}

/// Waits until the thread is in a sleep with a number above `after`.
inline bool falls_asleep(pid_t thread, long after = -1) {
  return comes_true([&] { return sleep_of(thread).value_or(-1) > after; });
}

/// Waits likewise for a thread that will set `result`. False: it has set it without such a sleep.
template <class Result>
bool falls_asleep(pid_t thread, const std::future<Result>& result, long after = -1) {
  const auto asleep = [&] { return sleep_of(thread).value_or(-1) > after; };
  const auto over = [&] {
    return result.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  return comes_true([&] { return asleep() || over(); }) && !over();
}

}  // namespace train::test
