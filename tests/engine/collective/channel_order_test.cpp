#include "engine/sharding/collective_schedule.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <vector>

#include "engine/sharding/shard_plan.hpp"
#include "tests/engine/sharding/shard_options.hpp"

namespace train::engine::channel_order_test {
namespace {

/// Two ranks, three units: three reduces and their spreads, then the control channel.
const ShardPlan& plan() {
  static const ShardPlan made = [] {
    ShardPlan::Options options = testing::shard_options(2, "none");
    options.units = testing::odd_units(1);
    return ShardPlan::make(options).value();
  }();
  return made;
}

std::vector<CollectiveOp> step_ops() { return expand(plan(), kTrainStep); }
std::vector<CollectiveOp> evaluate_ops() { return expand(plan(), kEvaluation); }
std::vector<CollectiveOp> find_nonfinite_ops() { return expand(plan(), kNonfiniteSearch); }

CollectiveIdentity identity_of(std::int64_t command, const CollectiveOp& op) {
  return {1, command, op.channel, op.index, op.hash};
}

}  // namespace

TEST_CASE("channel order: early requests are parked until their turn",
          "[engine][collective][EX-2]") {
  ChannelOrder order(1);
  const auto ops = step_ops();
  REQUIRE(order.begin_command(7, ops).value().empty());
  CHECK(order.request(identity_of(7, ops[2])).value().empty());
  CHECK(order.request(identity_of(7, ops[1])).value().empty());
  CHECK(order.expected(Channel::reduce)->index == 0);

  const auto due = order.request(identity_of(7, ops[0])).value();
  REQUIRE(due.size() == 3);
  for (std::uint32_t i = 0; i < 3; ++i) {
    CHECK(due[i].index == i);
  }
  CHECK(order.expected(Channel::reduce)->index == 3);
  CHECK_FALSE(order.expected(Channel::gather).has_value());
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
  const auto evaluate = evaluate_ops();
  const auto diagnose = find_nonfinite_ops();
  // A request may even come before its command.
  CHECK(order.request(identity_of(1, diagnose[0])).value().empty());
  REQUIRE(order.begin_command(0, evaluate).value().empty());
  REQUIRE(order.begin_command(1, diagnose).value().empty());
  const auto due = order.request(identity_of(0, evaluate[0])).value();
  REQUIRE(due.size() == 2);
  CHECK(due[0].command == 0);
  CHECK(due[1].command == 1);
}

TEST_CASE("channel order: a command that begins releases what waited for it",
          "[engine][collective][EX-2]") {
  ChannelOrder order(1);
  const auto evaluate = evaluate_ops();
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
                 Catch::Contains(fmt::format("\"reduce of group {}\"", ops[0].group)) &&
                 Catch::Contains("requested generation 1 command 7 reduce 0"));

  const auto diagnose = find_nonfinite_ops();
  CHECK_FALSE(order.request(identity_of(7, diagnose[0])).ok());
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
  const auto diagnose = find_nonfinite_ops();
  REQUIRE(order.request(identity_of(3, diagnose[0])).ok());
  CHECK_FALSE(order.begin_command(3, evaluate_ops()).ok());
}

TEST_CASE("channel order: other generations", "[engine][collective][EX-2]") {
  ChannelOrder order(5);
  const auto ops = step_ops();
  REQUIRE(order.begin_command(0, ops).ok());
  auto identity = identity_of(0, ops[0]);
  identity.generation = 4;
  CHECK(order.request(identity).value().empty());
  identity.generation = 6;
  CHECK_FALSE(order.request(identity).ok());
}

}  // namespace train::engine::channel_order_test
