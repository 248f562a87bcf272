#include "engine/collective/channel_order.hpp"

#include <catch2/catch.hpp>
#include <set>

namespace train::engine {
namespace {

constexpr std::int32_t kUnits = 3;

std::vector<CollectiveOp> step_ops() { return expand({CommandKind::train_step, kUnits}); }

CollectiveIdentity identity_of(std::int64_t command, const CollectiveOp& op) {
  return {1, command, op.channel, op.index, op.hash};
}

}  // namespace

TEST_CASE("collective schedule: a training step reduces from the head down, then agrees",
          "[engine][collective][EX-2]") {
  const auto ops = step_ops();
  REQUIRE(ops.size() == kUnits + 1);
  for (std::int32_t i = 0; i < kUnits; ++i) {
    const CollectiveOp& op = ops[static_cast<std::size_t>(i)];
    CHECK(op.channel == Channel::reduce);
    CHECK(op.unit == kUnits - 1 - i);
    CHECK(op.index == static_cast<std::uint32_t>(i));
  }
  CHECK(ops.back().channel == Channel::control);
  CHECK(ops.back().index == 0);
}

TEST_CASE("collective schedule: is pure, and no two collectives look alike",
          "[engine][collective][EX-2]") {
  std::set<std::uint64_t> hashes;
  std::size_t count = 0;
  for (const auto kind : {CommandKind::train_step, CommandKind::evaluate, CommandKind::snapshot,
                          CommandKind::diagnose, CommandKind::stop}) {
    const auto ops = expand({kind, kUnits});
    const auto again = expand({kind, kUnits});
    REQUIRE(ops.size() == again.size());
    for (std::size_t i = 0; i < ops.size(); ++i) {
      CHECK(ops[i].hash == again[i].hash);
      hashes.insert(ops[i].hash);
    }
    count += ops.size();
  }
  CHECK(hashes.size() == count);
  CHECK(count == kUnits + 4);
}

TEST_CASE("channel order: early requests are parked until their turn",
          "[engine][collective][EX-2]") {
  ChannelOrder order(1);
  const auto ops = step_ops();
  REQUIRE(order.begin_command(7, ops).value().empty());
  CHECK(order.request(identity_of(7, ops[2])).value().empty());
  CHECK(order.request(identity_of(7, ops[1])).value().empty());
  CHECK(order.parked().size() == 2);
  CHECK(order.expected(Channel::reduce)->index == 0);

  const auto due = order.request(identity_of(7, ops[0])).value();
  REQUIRE(due.size() == 3);
  for (std::uint32_t i = 0; i < 3; ++i) {
    CHECK(due[i].index == i);
  }
  CHECK(order.parked().empty());
  CHECK_FALSE(order.expected(Channel::reduce).has_value());
}

TEST_CASE("channel order: channels do not wait for each other", "[engine][collective][EX-2]") {
  ChannelOrder order(1);
  const auto ops = step_ops();
  REQUIRE(order.begin_command(0, ops).ok());
  CHECK(order.request(identity_of(0, ops.back())).value().size() == 1);
  CHECK(order.request(identity_of(0, ops[0])).value().size() == 1);
}

TEST_CASE("channel order: commands keep their order", "[engine][collective][EX-2]") {
  ChannelOrder order(1);
  const auto evaluate = expand({CommandKind::evaluate, kUnits});
  const auto snapshot = expand({CommandKind::snapshot, kUnits});
  // A request may even come before its command.
  CHECK(order.request(identity_of(1, snapshot[0])).value().empty());
  REQUIRE(order.begin_command(0, evaluate).value().empty());
  REQUIRE(order.begin_command(1, snapshot).value().empty());
  CHECK(order.parked().size() == 1);
  const auto due = order.request(identity_of(0, evaluate[0])).value();
  REQUIRE(due.size() == 2);
  CHECK(due[0].command == 0);
  CHECK(due[1].command == 1);
}

TEST_CASE("channel order: a command that begins releases what waited for it",
          "[engine][collective][EX-2]") {
  ChannelOrder order(1);
  const auto evaluate = expand({CommandKind::evaluate, kUnits});
  CHECK(order.request(identity_of(4, evaluate[0])).value().empty());
  const auto due = order.begin_command(4, evaluate).value();
  REQUIRE(due.size() == 1);
  CHECK(due[0].command == 4);
}

TEST_CASE("channel order: a mismatch names both sides", "[engine][collective][EX-2]") {
  ChannelOrder order(1);
  const auto ops = step_ops();
  REQUIRE(order.begin_command(7, ops).ok());
  auto wrong = identity_of(7, ops[0]);
  wrong.hash ^= 1;
  const auto refused = order.request(wrong);
  REQUIRE_FALSE(refused.ok());
  CHECK_THAT(refused.error().message,
             Catch::Contains("expected generation 1 command 7 reduce 0") &&
                 Catch::Contains("\"unit gradient\" unit 2") &&
                 Catch::Contains("requested generation 1 command 7 reduce 0"));

  const auto snapshot = expand({CommandKind::snapshot, kUnits});
  CHECK_FALSE(order.request(identity_of(7, snapshot[0])).ok());
  wrong = identity_of(7, ops[0]);
  wrong.index = 9;
  CHECK_FALSE(order.request(wrong).ok());
}

TEST_CASE("channel order: asking twice is an error", "[engine][collective][EX-2]") {
  ChannelOrder order(1);
  const auto ops = step_ops();
  REQUIRE(order.begin_command(7, ops).ok());
  REQUIRE(order.request(identity_of(7, ops[1])).ok());
  CHECK_FALSE(order.request(identity_of(7, ops[1])).ok());
  REQUIRE(order.request(identity_of(7, ops[0])).value().size() == 2);
  CHECK_FALSE(order.request(identity_of(7, ops[0])).ok());
}

TEST_CASE("channel order: an early request that its command refutes is an error",
          "[engine][collective][EX-2]") {
  ChannelOrder order(1);
  const auto snapshot = expand({CommandKind::snapshot, kUnits});
  REQUIRE(order.request(identity_of(3, snapshot[0])).ok());
  CHECK_FALSE(order.begin_command(3, expand({CommandKind::evaluate, kUnits})).ok());
}

TEST_CASE("channel order: other generations", "[engine][collective][EX-2]") {
  ChannelOrder order(5);
  const auto ops = step_ops();
  REQUIRE(order.begin_command(0, ops).ok());
  auto identity = identity_of(0, ops[0]);
  identity.generation = 4;
  CHECK(order.request(identity).value().empty());
  CHECK(order.parked().empty());
  identity.generation = 6;
  CHECK_FALSE(order.request(identity).ok());
}

}  // namespace train::engine
