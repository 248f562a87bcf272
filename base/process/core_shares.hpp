#pragma once

#include <algorithm>
#include <cstddef>
#include <thread>
#include <vector>

#include "base/process/joined_thread.hpp"

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

}  // namespace train
