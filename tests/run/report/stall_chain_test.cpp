#include "run/report/stall_chain.hpp"

#include <catch2/catch.hpp>

#include "actors/train/boards/rank_board.hpp"
#include "tests/support/harness/nanoseconds.hpp"

namespace train::run {
namespace {

constexpr std::int64_t kNow = 1000 * kSecond;

enum WaitChannel : std::int32_t { kGather, kReduce, kControl };

ObservedChannel at(std::int32_t channel, std::uint64_t command, std::uint32_t index,
                   ChannelPhase phase, std::int64_t age_s, std::vector<std::int32_t> from = {}) {
  static const char* const kNames[] = {"gather", "reduce", "control"};
  return {.channel = channel,
          .command = command,
          .index = index,
          .phase = static_cast<std::int32_t>(phase),
          .what = std::string(kNames[channel]) + " #" + std::to_string(index) + " of TrainStep " +
                  std::to_string(command),
          .age_ns = age_s * kSecond,
          .from = std::move(from)};
}

ObservedStream busy(const char* name, std::int64_t age_s, bool waits = false) {
  return {.name = name,
          .doing = std::string("block 6 (backward) of step 40, lane 1"),
          .kind = "block 6 (backward)",
          .age_ns = age_s * kSecond,
          .waits = waits};
}

/// Ranks that were all heard of just now, in TrainStep 40, with nothing under way.
std::vector<HeardRank> ranks(std::size_t count) {
  std::vector<HeardRank> all;
  for (std::size_t rank = 0; rank < count; ++rank) {
    RankObserved last{.rank = static_cast<std::int32_t>(rank)};
    last.begun = 40;
    for (const std::int32_t channel : {kGather, kReduce, kControl}) {
      last.channels.push_back({.channel = channel, .command = 41});
    }
    all.push_back({std::move(last), kNow});
  }
  return all;
}

void put(HeardRank& rank, const ObservedChannel& channel) {
  rank.last->channels.at(static_cast<std::size_t>(channel.channel)) = channel;
}

std::optional<Stall> find(const std::vector<HeardRank>& all, std::int64_t stall_s = 5,
                          bool commands_wait = true) {
  return find_stall(all, kNow, stall_s * kSecond, commands_wait);
}

TEST_CASE("stall_chain: a run that moves is not stalled", "[run][stall_chain]") {
  auto all = ranks(3);
  CHECK_FALSE(find(all));
  all[0].last->streams = {busy("compute", 4)};
  put(all[1], at(kGather, 40, 3, ChannelPhase::moving, 4, {0}));
  put(all[0], at(kGather, 40, 3, ChannelPhase::unasked, 60));
  CHECK_FALSE(find(all));  // the one that all wait for got somewhere 4 s ago
}

TEST_CASE("stall_chain: a wedged kernel is named with those who wait for it",
          "[run][stall_chain][P2]") {
  auto all = ranks(3);
  put(all[2], at(kGather, 40, 17, ChannelPhase::moving, 6, {0, 1}));
  put(all[1], at(kGather, 40, 17, ChannelPhase::moving, 3, {0, 2}));
  put(all[0], at(kGather, 40, 17, ChannelPhase::unasked, 7));
  all[0].last->streams = {busy("compute", 6), busy("disk", 60)};
  const auto stall = find(all);
  REQUIRE(stall);
  CHECK(stall->text ==
        "rank 2 waits for gather #17 of TrainStep 40 for 6.0 s, rank 0 has not asked for it: in "
        "block 6 (backward) of step 40, lane 1 for 6.0 s");
  CHECK(stall->rank == 0);
  CHECK(stall->work == "rank 0 block 6 (backward)");
  CHECK(stall->age_ns == 6 * kSecond);
  CHECK_FALSE(stall->circle);
}

TEST_CASE("stall_chain: a compute stream that waits is followed to the stream it waits for",
          "[run][stall_chain][P2]") {
  auto all = ranks(1);
  auto copy = busy("copy", 9);
  copy.doing = copy.kind = "copy for checkpoint";
  all[0].last->streams = {busy("compute", 8, true), copy};
  const auto stall = find(all);
  REQUIRE(stall);
  CHECK(stall->text == "the conductor waits for rank 0: in copy for checkpoint for 9.0 s");
  CHECK_FALSE(find(all, 5, false));  // nobody waits for it
}

TEST_CASE("stall_chain: a rank that is not heard of is the end of the chain",
          "[run][stall_chain][P2]") {
  auto all = ranks(3);
  put(all[0], at(kReduce, 40, 2, ChannelPhase::moving, 5, {1, 2}));
  put(all[2], at(kReduce, 40, 1, ChannelPhase::unasked, 50));
  all[1].heard_ns = kNow - 6 * kSecond;
  const auto stall = find(all);
  REQUIRE(stall);
  CHECK(stall->text ==
        "rank 0 waits for reduce #2 of TrainStep 40 for 5.0 s, rank 1 has not been heard of for "
        "6.0 s");
  CHECK(stall->rank == 1);
  all[1].last.reset();  // and never was
  CHECK(find(all)->rank == 1);
}

TEST_CASE("stall_chain: waits are followed from rank to rank and from channel to channel",
          "[run][stall_chain][P2]") {
  auto all = ranks(4);
  put(all[3], at(kControl, 40, 0, ChannelPhase::moving, 9, {0, 1, 2}));
  put(all[2], at(kControl, 40, 0, ChannelPhase::moving, 9, {0, 1, 3}));
  put(all[1], at(kControl, 40, 0, ChannelPhase::unasked, 9));
  put(all[1], at(kReduce, 40, 5, ChannelPhase::moving, 8, {0, 2}));
  put(all[0], at(kControl, 40, 0, ChannelPhase::unasked, 9));
  put(all[0], at(kReduce, 40, 4, ChannelPhase::packing, 7));
  all[0].last->streams = {busy("reduce", 7)};
  const auto stall = find(all);
  REQUIRE(stall);
  CHECK(stall->rank == 0);
  CHECK(stall->age_ns == 7 * kSecond);
  CHECK_THAT(stall->text,
             Catch::StartsWith("rank 2 waits for control #0") && Catch::EndsWith("for 7.0 s"));
  put(all[0], at(kControl, 40, 1, ChannelPhase::unasked, 9));  // only rank 1 is missing there
  CHECK(find(all)->text ==
        "rank 2 waits for control #0 of TrainStep 40 for 9.0 s, rank 1 has not asked for it: rank "
        "1 waits for reduce #5 of TrainStep 40 for 8.0 s, rank 0 prepares reduce #4 of TrainStep "
        "40: in block 6 (backward) of step 40, lane 1 for 7.0 s");
}

TEST_CASE("stall_chain: a rank that has not begun the command is behind", "[run][stall_chain]") {
  auto all = ranks(2);
  put(all[1], at(kGather, 41, 0, ChannelPhase::moving, 8, {0}));
  all[0].last->streams = {busy("compute", 8)};
  const auto stall = find(all);
  REQUIRE(stall);
  CHECK(stall->rank == 0);
  CHECK_THAT(stall->text, Catch::Contains("rank 0 has not asked for it: in block 6"));
  // One that is past it has done its part: then its bytes are on their way.
  all[0].last->channels[kGather].command = 42;
  CHECK_THAT(find(all)->text, Catch::Contains("all have asked for it: its bytes have not come"));
}

TEST_CASE("stall_chain: a link on which nothing comes", "[run][stall_chain][P2]") {
  auto all = ranks(2);
  put(all[0], at(kReduce, 40, 3, ChannelPhase::moving, 7, {1}));
  put(all[1], at(kReduce, 40, 3, ChannelPhase::moving, 6, {0}));
  const auto stall = find(all);
  REQUIRE(stall);
  CHECK(stall->text ==
        "rank 0 waits for reduce #3 of TrainStep 40 for 7.0 s, and all have asked for it: its "
        "bytes have not come");
  CHECK(stall->rank == -1);
}

TEST_CASE("stall_chain: a circle ends, and is called a defect", "[run][stall_chain][P2]") {
  auto all = ranks(2);
  put(all[0], at(kGather, 40, 3, ChannelPhase::moving, 7, {1}));
  put(all[1], at(kGather, 40, 3, ChannelPhase::unasked, 7));
  put(all[1], at(kReduce, 40, 1, ChannelPhase::moving, 6, {0}));
  put(all[0], at(kReduce, 40, 1, ChannelPhase::unasked, 6));
  const auto stall = find(all);
  REQUIRE(stall);
  CHECK(stall->circle);
  CHECK_THAT(stall->text, Catch::EndsWith("a circle, which is a defect of this program"));
  CHECK(stall->age_ns == 6 * kSecond);
}

TEST_CASE("stall_chain: where nothing is under way at all, the parked actors are named",
          "[run][stall_chain][P2]") {
  auto all = ranks(2);
  put(all[1], at(kGather, 40, 3, ChannelPhase::moving, 7, {0}));
  put(all[0], at(kGather, 40, 3, ChannelPhase::unasked, 7));
  all[0].last->waits = {{"buffers", "a gradient buffer", 30 * kSecond}};
  CHECK_FALSE(find(all));  // it is on its way from one to the next
  all[0].last->unchanged_ns = 6 * kSecond;
  CHECK_THAT(find(all)->text,
             Catch::EndsWith("has not asked for it: its buffers waits for a gradient buffer for "
                             "30.0 s"));
  auto input = busy("input", 9);
  input.doing = "read tokens of step 40, lane 2";
  all[0].last->streams = {input};
  CHECK_THAT(find(all)->text, Catch::EndsWith("in read tokens of step 40, lane 2 for 9.0 s"));
}

TEST_CASE("stall_chain: what was reported ages with the time since", "[run][stall_chain]") {
  auto all = ranks(2);
  put(all[1], at(kGather, 40, 3, ChannelPhase::moving, 4, {0}));
  put(all[0], at(kGather, 40, 3, ChannelPhase::unasked, 4));
  all[0].last->streams = {busy("compute", 4)};
  CHECK_FALSE(find(all));
  for (HeardRank& rank : all) {
    rank.heard_ns -= kSecond;
  }
  CHECK(find(all)->age_ns == 5 * kSecond);
}

TEST_CASE("stall_chain: senders that do not exist are passed over", "[run][stall_chain]") {
  auto all = ranks(1);
  put(all[0], at(kGather, 40, 3, ChannelPhase::moving, 9, {-1, 7}));
  all[0].last->channels.push_back({.channel = 9});
  CHECK(find(all)->rank == -1);
}

}  // namespace
}  // namespace train::run
