#include "base/process/core_shares.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstddef>
#include <mutex>
#include <string>
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

TEST_CASE(
    "core shares: things are taken until one fails, and its error is the first in their order",
    "[base][process]") {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000}}) {
    CAPTURE(count);
    std::vector<int> calls(count);
    CHECK(try_on_cores(count, [&](std::size_t i) {
      ++calls[i];
      return Status();
    }));
    CHECK(std::ranges::all_of(calls, [](int number) { return number == 1; }));
  }
  std::atomic<std::size_t> called{0};
  const Status failed = try_on_cores(1000, [&](std::size_t i) -> Status {
    ++called;
    return i % 10 == 7 ? failure(std::to_string(i)) : Status();
  });
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message == "7");
  CHECK(called >= 8);
}

}  // namespace train::core_shares_test
