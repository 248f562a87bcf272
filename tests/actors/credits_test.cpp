#include <catch2/catch.hpp>

#include "actors/head/conductor_actor.hpp"
#include "actors/messages/command_messages.hpp"
#include "actors/messages/lane_messages.hpp"
#include "actors/train/lane_driver.hpp"
#include "tests/support/runs/actor_fixture.hpp"
#include "tests/support/runs/require_same.hpp"

namespace train::test {
namespace {

/// Counts, message by message, what the credits bound.
struct Credits {
  std::set<std::int32_t> slots;          ///< Held by a lane.
  std::map<std::string, int> in_flight;  ///< Lanes on the stream, by driver.
  int commands = 0;                      ///< Given out and not finished.
  std::size_t most_slots = 0;
  int most_in_flight = 0, most_commands = 0;
  bool slot_given_twice = false;

  void see(const std::string& actor, const caf::type_erased_tuple& message) {
    using namespace train::actors;
    if (message.match_elements<LaneReady>()) {
      slot_given_twice |= !slots.insert(message.get_as<LaneReady>(0).work.slot).second;
      most_slots = std::max(most_slots, slots.size());
    } else if (message.match_elements<BatchSlotFree>()) {
      slots.erase(message.get_as<BatchSlotFree>(0).slot);
    } else if (message.match_elements<LaneEnqueued>()) {
      most_in_flight = std::max(most_in_flight, ++in_flight[actor]);
    } else if (message.match_elements<LaneFinished>()) {
      --in_flight[actor];
    } else if (message.match_elements<Command>() && actor == "rank" &&
               message.get_as<Command>(0).kind != engine::CommandKind::stop) {
      most_commands = std::max(most_commands, ++commands);
    } else if (message.match_elements<CommandFinished>()) {
      --commands;
    }
  }
  void watch(TrainingRun& run) {
    run.world().observe([this](std::string_view actor, const caf::type_erased_tuple& message) {
      see(std::string(actor), message);
    });
  }
};

TEST_CASE("credits hold in any order of messages and streams", "[actors][EX-4]") {
  const RunSetup setup{.steps = 3, .lanes = 6, .eval_lanes = 5, .manual_streams = true};
  std::size_t most_slots = 0;
  int most_in_flight = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    INFO("schedule seed " << seed);
    TrainingRun run(setup);
    Credits credits;
    credits.watch(run);
    run.start();
    Random random(seed);
    run.run(random);
    REQUIRE(run.over());
    REQUIRE_FALSE(credits.slot_given_twice);
    REQUIRE(credits.most_slots <= static_cast<std::size_t>(setup.lane_slots));
    REQUIRE(credits.most_in_flight <= actors::LaneDriver::kLanesInFlight);
    REQUIRE(credits.most_commands <= static_cast<int>(actors::kCommandWindow));
    REQUIRE(credits.slots.empty());  // every credit came back
    most_slots = std::max(most_slots, credits.most_slots);
    most_in_flight = std::max(most_in_flight, credits.most_in_flight);
  }
  CHECK(most_slots > 1);  // and they were used
  CHECK(most_in_flight == actors::LaneDriver::kLanesInFlight);
}

TEST_CASE("a stream that stands still stops the run without overflow", "[actors][EX-3][EX-4]") {
  const RunSetup setup{.lanes = 9, .eval_lanes = 6, .manual_streams = true};
  const PlainRun plain(setup);
  const int held = GENERATE(range(1, 32));  // every set of streams that stand still
  INFO("held: " << held);
  TrainingRun run(setup);
  Credits credits;
  credits.watch(run);
  const std::vector<ManualStream*>& streams = run.manual();
  for (std::size_t i = 0; i < streams.size(); ++i) {
    streams[i]->held = (static_cast<unsigned>(held) >> i & 1U) != 0;
  }
  run.start();
  run.run();
  // Every mailbox is empty: no handler waits for a stream (EX-3), and nothing piles up behind it.
  CHECK(run.world().runnable() == 0);
  CHECK_FALSE(run.over());
  CHECK(credits.slots.size() <= static_cast<std::size_t>(setup.lane_slots));
  CHECK(credits.most_in_flight <= actors::LaneDriver::kLanesInFlight);
  CHECK(credits.most_commands <= static_cast<int>(actors::kCommandWindow));
  CHECK(run.input().pending() <= static_cast<std::size_t>(setup.lane_slots));
  CHECK(run.disk().pending() <= 1);
  // A note, the save's event, its own work, a batch of the journal.
  CHECK(run.publish().pending() <= 4);
  if (held == 1) {  // the compute stream alone: lanes fill their credits, and no more
    CHECK(credits.slots.size() == static_cast<std::size_t>(setup.lane_slots));
    CHECK(credits.most_in_flight == actors::LaneDriver::kLanesInFlight);
  }
  for (ManualStream* stream : streams) {
    stream->held = false;
  }
  run.run();
  CHECK(run.finished().exit_code == 0);
  require_same(run, plain);
}

}  // namespace
}  // namespace train::test
