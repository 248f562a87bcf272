#include "actors/cluster/recovery/generations.hpp"

#include <catch2/catch.hpp>

namespace train::actors {

TEST_CASE("generations: only a job that has saved something since it began is worth another",
          "[actors][generations][P4]") {
  CHECK(worth_another_job(2, 31, 30));
  CHECK_FALSE(worth_another_job(2, 30, 30));  // resumed, and lost before its first save
  CHECK_FALSE(worth_another_job(2, 0, 0));
  CHECK_FALSE(worth_another_job(2, std::nullopt, 0));
  CHECK_FALSE(worth_another_job(1, 31, 30));  // one node goes on with fewer ranks
}

}  // namespace train::actors
