#include "actors/train/boards/rank_board.hpp"

#include <catch2/catch.hpp>

namespace train::actors {
namespace {

TEST_CASE("rank_board: keeps the newest of each", "[actors][rank_board]") {
  RankBoard board;
  CHECK_FALSE(board.look().command);
  CHECK(board.look().finished == -1);
  board.begin_command({.sequence = 4, .name = engine::kEvaluation.name, .step = 9}, 2);
  board.finish_command(3);
  board.finish_command(2);  // the rank's streams report in order, but nothing depends on it
  ChannelProgress place;
  place.phase = run::ChannelPhase::moving;
  place.from = {1, 2};
  board.place(engine::Channel::reduce, place);
  const RankBoard::Snapshot seen = board.look();
  REQUIRE(seen.command);
  CHECK(seen.command->sequence == 4);
  CHECK(seen.queued == 2);
  CHECK(seen.finished == 3);
  CHECK_FALSE(seen.channels[0]);
  REQUIRE(seen.channels[1]);
  CHECK(seen.channels[1]->from == std::vector<std::int32_t>{1, 2});
  board.place(engine::Channel::reduce, std::nullopt);
  board.queue_commands(0);
  CHECK_FALSE(board.look().channels[1]);
  CHECK(board.look().queued == 0);
}

}  // namespace
}  // namespace train::actors
