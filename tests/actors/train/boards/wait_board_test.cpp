#include "actors/train/boards/rank_board.hpp"

#include <catch2/catch.hpp>

namespace train::actors {
namespace {

TEST_CASE("who waits is on the board, with what and since when", "[actors]") {
  WaitBoard board;
  WaitBoard::Line batch = board.add("batch");
  WaitBoard::Line rank = board.add("rank");
  CHECK(board.waiting().empty());
  const std::int64_t before_ns = steady_now_ns();
  rank.begin("tokens", 7);
  REQUIRE(board.waiting().size() == 1);
  const WaitBoard::Wait wait = board.waiting().front();
  CHECK(wait.who == "rank");
  CHECK(std::string(wait.what) == "tokens");
  CHECK(wait.step == 7);
  CHECK(wait.since_ns >= before_ns);
  CHECK(wait.since_ns <= steady_now_ns());
  batch.begin("a slot", 8);
  CHECK(board.waiting().size() == 2);
  rank.end();
  REQUIRE(board.waiting().size() == 1);
  CHECK(board.waiting().front().who == "batch");
}

TEST_CASE("waiting on for the same thing keeps the older time", "[actors]") {
  static const char* const what = "tokens";
  WaitBoard board;
  WaitBoard::Line line = board.add("rank");
  line.begin(what, 1);
  const std::int64_t since_ns = board.waiting().front().since_ns;
  while (steady_now_ns() == since_ns) {
  }
  line.begin(what, 2);
  CHECK(board.waiting().front().since_ns == since_ns);
  line.end();
  line.begin(what, 3);
  CHECK(board.waiting().front().since_ns > since_ns);
  CHECK(board.waiting().front().step == 3);
}

TEST_CASE("lines stay where they are while others are added", "[actors]") {
  WaitBoard board;
  WaitBoard::Line first = board.add("0");
  for (int i = 1; i < 100; ++i) {
    static_cast<void>(board.add(std::to_string(i)));
  }
  first.begin("anything", 0);
  REQUIRE(board.waiting().size() == 1);
  CHECK(board.waiting().front().who == "0");
}

TEST_CASE("held credits are on the board, with how many there are", "[actors][EX-4]") {
  WaitBoard board;
  WaitBoard::Credits slots = board.add_credits("slots", 4);
  WaitBoard::Credits gradient_buffers = board.add_credits("leaves", 2);
  gradient_buffers.in_use(0);
  slots.in_use(3);
  const auto held = board.held();
  REQUIRE(held.size() == 2);
  CHECK(std::string(held[0].what) == "slots");
  CHECK(held[0].in_use == 3);
  CHECK(held[0].limit == 4);
  CHECK(held[1].in_use == 0);
}

}  // namespace
}  // namespace train::actors
