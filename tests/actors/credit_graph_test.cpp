#include "actors/train/credit_graph.hpp"

#include <catch2/catch.hpp>
#include <vector>

namespace train::actors {
namespace {

TEST_CASE("credit graph: the credits of a run allow no circle", "[actors][credit_graph][EX-4]") {
  CHECK(check_credits(credits_of_run(4)).ok());
}

TEST_CASE("credit graph: a circle is named", "[actors][credit_graph][EX-4]") {
  std::vector<Credit> credits = credits_of_run(4);
  for (Credit& credit : credits) {
    if (credit.name == "lanes in flight") {
      credit.waits_for = {"lane slots"};  // as if a lane on the stream had to read more tokens
    }
  }
  const Status status = check_credits(credits);
  REQUIRE(!status.ok());
  CHECK(status.error().message ==
        "credits wait for each other in a circle: lane slots -> lanes in flight -> lane slots");
}

TEST_CASE("credit graph: holders that wait for their own kind are a circle",
          "[actors][credit_graph][EX-4]") {
  const std::vector<Credit> credits = {{.name = "buffers", .count = 2, .waits_for = {"buffers"}}};
  CHECK(!check_credits(credits).ok());
}

TEST_CASE("credit graph: two ways to one kind are no circle", "[actors][credit_graph]") {
  const std::vector<Credit> credits = {{.name = "a", .count = 1, .waits_for = {"b", "c"}},
                                       {.name = "b", .count = 1, .waits_for = {"d"}},
                                       {.name = "c", .count = 1, .waits_for = {"d"}},
                                       {.name = "d", .count = 1, .waits_for = {}}};
  CHECK(check_credits(credits).ok());
}

TEST_CASE("credit graph: no credit at all, or an unknown one, is refused",
          "[actors][credit_graph]") {
  CHECK(!check_credits(credits_of_run(0)).ok());
  const std::vector<Credit> unknown = {{.name = "a", .count = 1, .waits_for = {"b"}}};
  CHECK(check_credits(unknown).error().message == "a wait for b, which nobody gives out");
}

}  // namespace
}  // namespace train::actors
