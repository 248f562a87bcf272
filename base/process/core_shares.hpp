#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "base/process/joined_thread.hpp"
#include "base/result.hpp"

namespace train {

/// Calls body(begin, end) for equal shares of `count` things, each on a thread, as many as the
/// process has cores, the first on that of the caller. Blocks until all are done. `body` runs on
/// several threads at once.
template <class Body>
void on_cores(std::size_t count, const Body& body) {
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  const std::size_t share = std::max<std::size_t>(1, (count + cores - 1) / cores);
  std::vector<JoinedThread> threads;
  for (std::size_t begin = share; begin < count; begin += share) {
    threads.emplace_back(
        [&body, begin, end = std::min(begin + share, count)] { body(begin, end); });
  }
  body(std::size_t{0}, std::min(share, count));
}

/// Calls body(i), which returns a Status, for each i below `count`, in order, on as many threads as
/// the process has cores: each takes the next when it has done one, until one fails. Blocks until
/// all are done. The error of the least i, the same whatever the threads' pace, if `body` fails for
/// the same ones. `body` runs on several threads at once.
template <class Body>
Status try_on_cores(std::size_t count, const Body& body) {
  std::vector<Status> ended(count);
  std::atomic<std::size_t> next{0};
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  on_cores(std::min(count, cores), [&](std::size_t /*begin*/, std::size_t /*end*/) {
    for (std::size_t i = next++; i < count; i = next++) {
      ended[i] = body(i);
      if (!ended[i].ok()) {
        next = count;
      }
    }
  });
  const auto failed = std::ranges::find_if_not(ended, &Status::ok);
  return failed == ended.end() ? Status() : *failed;
}

}  // namespace train
