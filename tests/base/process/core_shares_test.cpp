#include "base/process/core_shares.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace train::core_shares_test {

TEST_CASE("core shares: every thing is in one share, and all are done at the end",
          "[base][process]") {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{7},
                                  std::size_t{1000}, std::size_t{1001}}) {
    CAPTURE(count);
    std::mutex mutex;
    std::vector<std::pair<std::size_t, std::size_t>> shares;
    on_cores(count, [&](std::size_t begin, std::size_t end) {
      const std::lock_guard lock(mutex);
      shares.emplace_back(begin, end);
    });
    std::ranges::sort(shares);
    std::size_t next = 0;
    for (const auto& [begin, end] : shares) {
      CHECK(begin == next);
      next = end;
    }
    CHECK(next == count);
  }
}

}  // namespace train::core_shares_test
