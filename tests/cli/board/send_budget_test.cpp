#include "cli/board/send_budget.hpp"

#include <catch2/catch.hpp>

namespace train::cli::send_budget_test {

TEST_CASE("send budget: what is claimed comes back once, however it moves", "[board]") {
  SendBudget budget(100);
  {
    auto first = budget.claim(60);
    REQUIRE(first);
    CHECK_FALSE(budget.claim(41));
    std::optional<SendBudget::Claim> second = budget.claim(40);
    REQUIRE(second);
    CHECK(budget.used_bytes() == 100);
    second = std::move(first);
    CHECK(budget.used_bytes() == 100);
    first.reset();
    CHECK(budget.used_bytes() == 60);
  }
  CHECK(budget.used_bytes() == 0);
  CHECK(budget.claim(100));
}

}  // namespace train::cli::send_budget_test
