#include "actors/train/boards/rank_board.hpp"

#include <catch2/catch.hpp>

namespace train::actors {
namespace {

TEST_CASE("wait table: lists who waits, for what and since when", "[actors]") {
  WaitTable table;
  WaitTable::Line batch = table.add("batch");
  WaitTable::Line rank = table.add("rank");
  CHECK(table.waiting().empty());
  const std::int64_t before_ns = steady_now_ns();
  rank.begin("tokens", 7);
  REQUIRE(table.waiting().size() == 1);
  const WaitTable::Wait wait = table.waiting().front();
  CHECK(wait.who == "rank");
  CHECK(std::string(wait.what) == "tokens");
  CHECK(wait.step == 7);
  CHECK(wait.since_ns >= before_ns);
  CHECK(wait.since_ns <= steady_now_ns());
  batch.begin("a slot", 8);
  CHECK(table.waiting().size() == 2);
  rank.end();
  REQUIRE(table.waiting().size() == 1);
  CHECK(table.waiting().front().who == "batch");
}

TEST_CASE("waiting on for the same thing keeps the older time", "[actors]") {
  static const char* const what = "tokens";
  WaitTable table;
  WaitTable::Line line = table.add("rank");
  line.begin(what, 1);
  const std::int64_t since_ns = table.waiting().front().since_ns;
  while (steady_now_ns() == since_ns) {
  }
  line.begin(what, 2);
  CHECK(table.waiting().front().since_ns == since_ns);
  line.end();
  line.begin(what, 3);
  CHECK(table.waiting().front().since_ns > since_ns);
  CHECK(table.waiting().front().step == 3);
}

TEST_CASE("lines stay where they are while others are added", "[actors]") {
  WaitTable table;
  WaitTable::Line first = table.add("0");
  for (int i = 1; i < 100; ++i) {
    static_cast<void>(table.add(std::to_string(i)));
  }
  first.begin("anything", 0);
  REQUIRE(table.waiting().size() == 1);
  CHECK(table.waiting().front().who == "0");
}

TEST_CASE("wait table: lists credits in use, and their limits", "[actors][EX-4]") {
  WaitTable table;
  WaitTable::Credits slots = table.add_credits("slots", 4);
  WaitTable::Credits gradient_buffers = table.add_credits("leaves", 2);
  gradient_buffers.in_use(0);
  slots.in_use(3);
  const auto held = table.held();
  REQUIRE(held.size() == 2);
  CHECK(std::string(held[0].what) == "slots");
  CHECK(held[0].in_use == 3);
  CHECK(held[0].limit == 4);
  CHECK(held[1].in_use == 0);
}

}  // namespace
}  // namespace train::actors
