// What a node keeps in memory when other nodes take part than before (P4).
#include "run/memory/node_memory.hpp"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "tests/support/runs/node_plan.hpp"

namespace train::run {
namespace {

using Members = std::vector<std::int64_t>;

constexpr std::int64_t kAll = 1000;

RunPlan plan_of(std::int64_t nodes, std::int64_t ranks) {
  static const test::TempDirectory directory;
  return test::plan_of_nodes(directory.path(), nodes, ranks);
}

/// A head whose ranks, and those of the node before it, are whole at `step`.
NodeMemory head_of(const RunPlan& plan, std::int64_t step) {
  NodeMemory memory;
  REQUIRE(memory.make_room(plan, {.nodes = plan.config.parallel.nodes}).ok());
  test::write_snapshots(memory.current(), step);
  if (memory.buddy()) {
    test::write_snapshots(memory.buddy(), step);
  }
  return memory;
}

NodeSteps at(std::int64_t step) { return {.own = {step}, .buddy = {step}}; }
const NodeSteps nothing;

}  // namespace

TEST_CASE("node memory: a second loss before anything is written goes on from what was there",
          "[run][node_memory][P4]") {
  NodeMemory memory = head_of(plan_of(2, 4), 10);
  REQUIRE(memory.find_snapshot(kAll, std::vector{nothing}) == 10);
  CHECK(memory.start()->origin.holders == std::vector<std::int32_t>{0, 0});
  memory.renumber_holders(Members{0, 1}, Members{0});
  const RunPlan one = plan_of(1, 2);
  REQUIRE(memory.make_room(one, {.nodes = 1}, true).ok());
  CHECK(memory.before().size() == 2);
  CHECK(memory.held().earlier == 10);

  CHECK(memory.find_snapshot(kAll) == 10);
  CHECK(memory.start()->here == memory.before());
  memory.finalize();
  CHECK(memory.before().size() == 2);
  test::write_snapshots(memory.current(), 10);
  memory.finalize();
  CHECK(memory.before().empty());
  CHECK(memory.held().earlier == -1);
  CHECK(memory.find_snapshot(kAll) == 10);
}

TEST_CASE("node memory: of a node that is back its buddy has a copy before the old one goes",
          "[run][node_memory][P4]") {
  NodeMemory memory = head_of(plan_of(1, 2), 20);
  REQUIRE(memory.find_snapshot(kAll) == 20);
  memory.renumber_holders(Members{0}, Members{0});
  const RunPlan two = plan_of(2, 4);
  REQUIRE(memory.make_room(two, {.nodes = 2}, true).ok());
  REQUIRE(memory.before().size() == 1);
  test::write_snapshots(memory.current(), 20);
  memory.finalize();
  CHECK(memory.before().size() == 1);  // the other node could still take its ranks' along

  SECTION("it has come") {
    test::write_snapshots(memory.buddy(), 20);
    memory.finalize();
    CHECK(memory.before().empty());
    CHECK(memory.find_snapshot(kAll, std::vector{nothing}) == 20);
  }
  SECTION("it does not come: the memory is wanted") {
    test::write_snapshots(memory.current(), 30);
    memory.finalize();
    CHECK(memory.before().size() == 1);
    test::write_snapshots(memory.current(), 40);
    memory.finalize();
    CHECK(memory.before().empty());
  }
  SECTION("it is lost before") {
    CHECK(memory.find_snapshot(kAll, std::vector{nothing}) == 20);
    CHECK(memory.start()->here == memory.before());
  }
}

TEST_CASE("node memory: the same numbers on another node are not the same ranks",
          "[run][node_memory][P4]") {
  const RunPlan plan = plan_of(2, 4);
  NodeMemory memory = head_of(plan, 10);
  REQUIRE(memory.find_snapshot(kAll, std::vector{nothing}) == 10);
  memory.renumber_holders(Members{0, 1}, Members{0});
  REQUIRE(memory.make_room(plan, {.nodes = 2}, true).ok());
  CHECK(memory.before().size() == 2);  // its own and the lost one's, for whoever took that position
  CHECK(memory.current()->sealed_steps().empty());
}

TEST_CASE("node memory: what others had is gone on from while they still have it",
          "[run][node_memory][P4]") {
  NodeMemory memory = head_of(plan_of(3, 6), 10);
  REQUIRE(memory.find_snapshot(kAll, std::vector{nothing, at(10)}) == 10);
  CHECK(memory.start()->origin.holders == std::vector<std::int32_t>{0, 2, 2});
  memory.renumber_holders(Members{0, 1, 2}, Members{0, 2});
  REQUIRE(memory.make_room(plan_of(2, 4), {.nodes = 2}, true).ok());
  NodeSteps other;
  SECTION("it has it") {
    other.earlier = 10;
    CHECK(memory.find_snapshot(kAll, std::vector{other}) == 10);
    CHECK(memory.start()->origin.holders == std::vector<std::int32_t>{0, 1, 1});
  }
  SECTION("it has something else") {
    other.earlier = 8;
    CHECK_FALSE(memory.find_snapshot(kAll, std::vector{other}).has_value());
    CHECK(memory.before().empty());
  }
  SECTION("it has nothing") {
    CHECK_FALSE(memory.find_snapshot(kAll, std::vector{other}).has_value());
    CHECK_FALSE(memory.start().has_value());
  }
}

TEST_CASE("node memory: of a second loss it goes on from the other node that has the same",
          "[run][node_memory][P4]") {
  NodeMemory memory = head_of(plan_of(4, 4), 10);
  const bool kept = GENERATE(true, false);
  const NodeSteps third{.own = {10}, .buddy = kept ? HeldSteps{10} : HeldSteps{}};
  // Node 3 is lost; node 0 has its snapshots. Node 2 has those of node 1, too, if it was in time.
  REQUIRE(memory.find_snapshot(kAll, std::vector{at(10), third, nothing}) == 10);
  CHECK(memory.start()->origin.holders == std::vector<std::int32_t>{0, 1, 2, 0});
  memory.renumber_holders(Members{0, 1, 2, 3}, Members{0, 1, 2});
  REQUIRE(memory.make_room(plan_of(3, 3), {.nodes = 3}, true).ok());
  // Node 1 is lost while memory is laid out anew.
  const NodeSteps left{.own = {}, .buddy = {}, .earlier = 10};
  const auto step = memory.find_snapshot(kAll, std::vector{nothing, left});
  REQUIRE(step.has_value() == kept);
  if (kept) {
    CHECK(memory.start()->origin.holders == std::vector<std::int32_t>{0, 2, 2, 0});
    memory.renumber_holders(Members{0, 1, 2}, Members{0, 2});
    CHECK(memory.start()->origin.holders == std::vector<std::int32_t>{0, 1, 1, 0});
    // And a third one: nobody else has what that node had.
    REQUIRE(memory.make_room(plan_of(2, 2), {.nodes = 2}, true).ok());
    CHECK_FALSE(memory.find_snapshot(kAll, std::vector{nothing}).has_value());
  }
}

TEST_CASE("node memory: a damaged snapshot is not there, and a good copy elsewhere is gone on from",
          "[run][node_memory][CK-10][P4]") {
  NodeMemory memory = head_of(plan_of(2, 4), 10);
  memory.current()->bytes_of(1, 10).front() ^= std::byte{1};

  SECTION("the buddy has it") {
    REQUIRE(memory.find_snapshot(kAll, std::vector{at(10)}) == 10);
    CHECK(memory.start()->origin.holders == std::vector<std::int32_t>{1, 1});
    CHECK_FALSE(memory.current()->has_sealed(10));
    CHECK(memory.current()->bytes_of(1, 10).empty());
    CHECK_FALSE(memory.current()->bytes_of(0, 10).empty());
    CHECK(memory.buddy()->has_sealed(10));
  }
  SECTION("nobody has it") {
    CHECK_FALSE(memory.find_snapshot(kAll, std::vector{NodeSteps{.own = {10}, .buddy = {}}}));
    CHECK_FALSE(memory.start().has_value());
  }
}

TEST_CASE("node memory: earlier snapshots that are damaged are not what the node then had",
          "[run][node_memory][CK-10][P4]") {
  NodeMemory memory = head_of(plan_of(2, 4), 10);
  REQUIRE(memory.find_snapshot(kAll, std::vector{nothing}) == 10);
  memory.renumber_holders(Members{0, 1}, Members{0});
  REQUIRE(memory.make_room(plan_of(1, 2), {.nodes = 1}, true).ok());
  REQUIRE(memory.held().earlier == 10);
  memory.before().back()->bytes_of(2, 10).front() ^= std::byte{1};
  CHECK(memory.held().earlier == -1);
  CHECK_FALSE(memory.find_snapshot(kAll).has_value());
}

TEST_CASE("node memory: another node keeps what the head says, and no more",
          "[run][node_memory][P4]") {
  const RunPlan two = plan_of(2, 4);
  NodeMemory memory;
  REQUIRE(memory.make_room(two, {.node = 1, .nodes = 2}).ok());
  test::write_snapshots(memory.current(), 10);
  memory.resume_from(10);
  REQUIRE(memory.make_room(plan_of(3, 6), {.node = 1, .nodes = 3}, true).ok());
  REQUIRE(memory.held().earlier == 10);
  SECTION("the earlier ones") {
    memory.resume_from(10, true);
    CHECK(memory.held().earlier == 10);
  }
  SECTION("the earlier ones, and it has others") {
    memory.resume_from(8, true);
    CHECK(memory.held().earlier == -1);
  }
  SECTION("those of now") {
    memory.resume_from(10);
    CHECK(memory.held().earlier == -1);
  }
  SECTION("none") {
    memory.resume_from(std::nullopt);
    CHECK(memory.held().earlier == -1);
    CHECK_FALSE(memory.start().has_value());
  }
}

}  // namespace train::run
