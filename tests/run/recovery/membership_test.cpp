// From which step all nodes can go on, of what each of them and its buddy have in memory.
#include "run/recovery/generations.hpp"

#include <catch2/catch.hpp>
#include <optional>
#include <random>

namespace train::run {
namespace {

using Nodes = std::vector<NodeSteps>;

constexpr std::int64_t kAllSteps = 1000;

}  // namespace

TEST_CASE("nodes met: one node goes on from what it has", "[run][nodes_met]") {
  CHECK(newest_common(Nodes{{.own = {20, 10}, .buddy = {}}}, kAllSteps) == 20);
  CHECK(newest_common(Nodes{{.own = {20, 10}, .buddy = {}}}, 19) == 10);
  CHECK_FALSE(newest_common(Nodes{{.own = {20, 10}, .buddy = {}}}, 9).has_value());
  CHECK_FALSE(newest_common(Nodes{{}}, kAllSteps).has_value());
  CHECK_FALSE(newest_common({}, kAllSteps).has_value());
}

TEST_CASE("nodes met: the buddy of a node that comes with nothing has its snapshots",
          "[run][nodes_met]") {
  const NodeSteps fresh;
  CHECK(newest_common(Nodes{{{20, 10}, {20, 10}}, fresh}, kAllSteps) == 20);
  CHECK(newest_common(Nodes{{{20, 10}, {10}}, fresh}, kAllSteps) == 10);  // the link was slow
  CHECK_FALSE(newest_common(Nodes{{{30, 20}, {10}}, fresh}, kAllSteps).has_value());
  CHECK(newest_common(Nodes{{{30, 20}, {20, 10}}, {{30, 20}, {30, 20}}, {{30, 20}, {}}},
                      kAllSteps) == 30);
  // Of three the middle one: its buddy is the last.
  CHECK(newest_common(Nodes{{{20}, {}}, fresh, {{20}, {20}}}, kAllSteps) == 20);
  CHECK_FALSE(newest_common(Nodes{{{20}, {20}}, fresh, {{20}, {}}}, kAllSteps).has_value());
  // Two neighbours at once.
  CHECK_FALSE(newest_common(Nodes{{{20}, {20}}, fresh, fresh}, kAllSteps).has_value());
  // Node 0's ranks from node 1.
  CHECK(newest_common(Nodes{fresh, {{20}, {20}}}, kAllSteps) == 20);
}

TEST_CASE("nodes met: it is the newest step that everybody has", "[run][nodes_met]") {
  std::mt19937 random(Catch::rngSeed());
  const auto some = [&random] {
    HeldSteps steps;
    for (std::int64_t step = 5; step > 0; --step) {
      if (random() % 2 == 0 && steps.size() < 2) {
        steps.push_back(step);
      }
    }
    return steps;
  };
  for (int i = 0; i < 5000; ++i) {
    Nodes nodes(1 + random() % 4);
    for (NodeSteps& node : nodes) {
      node = {.own = some(), .buddy = nodes.size() > 1 ? some() : HeldSteps()};
    }
    const auto reported = static_cast<std::int64_t>(random() % 6);
    std::optional<std::int64_t> wanted;
    for (std::int64_t step = 1; step <= reported; ++step) {
      std::size_t have = 0;
      for (std::size_t node = 0; node < nodes.size(); ++node) {
        const bool there = has_step(nodes[node].own, step) ||
                           has_step(nodes[(node + 1) % nodes.size()].buddy, step);
        have += there ? 1 : 0;
      }
      wanted = have == nodes.size() ? std::optional(step) : wanted;
    }
    REQUIRE(newest_common(nodes, reported) == wanted);
  }
}

}  // namespace train::run
