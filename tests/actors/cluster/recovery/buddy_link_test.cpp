// Buddies in a ring: what a node has lost its buddy gives back.
#include "actors/cluster/recovery/buddy_link.hpp"

#include <catch2/catch.hpp>
#include <csignal>
#include <thread>
#include <vector>

#include "run/memory/memory_layout.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/hang_limit.hpp"
#include "tests/support/runs/node_plan.hpp"

namespace train::actors {
namespace {

constexpr std::int64_t kNodes = 3;
constexpr std::chrono::seconds kLong = test::hang_limit;

/// Two ranks on each node.
run::RunPlan ring_plan(const std::filesystem::path& directory, bool buddies = true) {
  return test::plan_of_nodes(directory, kNodes, 2 * kNodes, buddies);
}

/// As in every process with a control connection.
const bool kIgnoresPipe = std::signal(SIGPIPE, SIG_IGN) != SIG_ERR;

struct Node {
  run::NodeMemory memory;
  std::unique_ptr<BuddyLink> link;
};

run::NodePosition position_of(std::int64_t node) { return {.node = node, .nodes = kNodes}; }

void check_own(const run::NodeMemory& memory, std::int64_t step) {
  const auto span = run::ranks_of(memory.current()->layout());
  for (std::int64_t rank = span.first; rank < span.end; ++rank) {
    const auto bytes = memory.current()->bytes_of(rank, step);
    REQUIRE_FALSE(bytes.empty());
    CHECK(bytes.front() == static_cast<std::byte>(step + rank));
    CHECK(bytes.back() == bytes.front());
  }
}

std::vector<Node> open_ring(const EventLoop& loop, const run::RunPlan& plan,
                            const CredentialFiles& files, std::vector<Node> nodes) {
  for (std::int64_t i = 0; i < kNodes; ++i) {
    Node& node = nodes[static_cast<std::size_t>(i)];
    REQUIRE(node.memory.make_room(plan, position_of(i)));
    node.link = BuddyLink::open(loop, files, plan);
    REQUIRE(node.link);
  }
  return nodes;
}

bool all_kept(const std::vector<Node>& nodes, std::int64_t step) {
  return std::all_of(nodes.begin(), nodes.end(),
                     [step](const Node& node) { return node.memory.buddy()->has_sealed(step); });
}

}  // namespace

TEST_CASE("buddy link: every node's snapshots are at the next one, and come back to it",
          "[actors][buddy_link][CK-10][world]") {
  REQUIRE(kIgnoresPipe);
  const EventLoop loop;
  const test::TempDirectory directory;
  const auto files = make_credentials(directory.path() / "control");
  REQUIRE(files.ok());
  const run::RunPlan plan = ring_plan(directory.path());
  auto nodes = open_ring(loop, plan, *files, std::vector<Node>(kNodes));
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    nodes[i].link->keep(nodes[(i + 1) % nodes.size()].link->address(), nodes[i].memory);
    test::write_snapshots(nodes[i].memory.current(), 10);
  }
  REQUIRE(test::comes_true([&] { return all_kept(nodes, 10); }));

  // The generation ends, and one node with it.
  const auto lost = static_cast<std::size_t>(GENERATE(0, 1, 2));
  for (Node& node : nodes) {
    node.link.reset();
  }
  nodes[lost] = {};
  nodes = open_ring(loop, plan, *files, std::move(nodes));
  std::vector<NodeSteps> held;
  for (Node& node : nodes) {
    held.push_back(node.memory.held());
  }
  CHECK(held[lost].own.empty());
  REQUIRE(run::newest_common(held, 100) == 10);
  const std::size_t buddy = (lost + 1) % nodes.size();
  std::thread taking([&] {
    CHECK(nodes[lost].link->restore({.step = 10, .give_to = "", .take = true}, nodes[lost].memory));
  });
  const Status given = nodes[buddy].link->restore(
      {.step = 10, .give_to = nodes[lost].link->address(), .take = false}, nodes[buddy].memory);
  taking.join();
  CHECK(given);
  for (const Node& node : nodes) {
    check_own(node.memory, 10);
  }
}

TEST_CASE("buddy link: what is sealed and damaged is taken anew, not for what has come",
          "[actors][buddy_link][CK-10][P4][world]") {
  REQUIRE(kIgnoresPipe);
  const EventLoop loop;
  const test::TempDirectory directory;
  const auto files = make_credentials(directory.path() / "control");
  REQUIRE(files.ok());
  auto nodes = open_ring(loop, ring_plan(directory.path()), *files, std::vector<Node>(kNodes));
  test::write_snapshots(nodes[0].memory.current(), 10);
  test::write_snapshots(nodes[1].memory.buddy(), 10);
  nodes[0].memory.current()->bytes_of(1, 10).front() ^= std::byte{1};
  std::thread taking([&] {
    const Status taken =
        nodes[0].link->restore({.step = 10, .give_to = "", .take = true}, nodes[0].memory);
    CHECK((taken ? std::string() : taken.error().message) == "");
  });
  CHECK(nodes[1].link->restore({.step = 10, .give_to = nodes[0].link->address(), .take = false},
                               nodes[1].memory));
  taking.join();
  check_own(nodes[0].memory, 10);
}

TEST_CASE("buddy link: a buddy that has nothing, or is gone, is an error in time",
          "[actors][buddy_link][failure][world]") {
  REQUIRE(kIgnoresPipe);
  const EventLoop loop;
  const test::TempDirectory directory;
  const auto files = make_credentials(directory.path() / "control");
  REQUIRE(files.ok());
  auto nodes = open_ring(loop, ring_plan(directory.path()), *files, std::vector<Node>(kNodes));
  const std::string address = nodes[1].link->address();
  CHECK_FALSE(
      nodes[2].link->restore({.step = 10, .give_to = address, .take = false}, nodes[2].memory));
  nodes[1].link.reset();
  CHECK_FALSE(
      nodes[2].link->restore({.step = 10, .give_to = address, .take = false}, nodes[2].memory));
  nodes[2].link->keep(address,
                      nodes[2].memory);  // tries again and again, and ends when it is told to
}

TEST_CASE("buddy link: without the key there is no room and no link",
          "[actors][buddy_link][world]") {
  REQUIRE(kIgnoresPipe);
  const EventLoop loop;
  const test::TempDirectory directory;
  const auto files = make_credentials(directory.path() / "control");
  REQUIRE(files.ok());
  const run::RunPlan plan = ring_plan(directory.path(), false);
  run::NodeMemory memory;
  REQUIRE(memory.make_room(plan, position_of(1)));
  CHECK(memory.current());
  CHECK_FALSE(memory.buddy());
  CHECK(run::memory_slots(plan) == 2);
  CHECK(run::memory_slots(ring_plan(directory.path())) == 4);
  CHECK_FALSE(BuddyLink::open(loop, *files, plan));
}

}  // namespace train::actors
