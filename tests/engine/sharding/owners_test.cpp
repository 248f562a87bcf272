#include "engine/sharding/shard_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/engine/sharding/shard_options.hpp"

namespace train::engine::owners_test {
namespace {

using testing::all_strategies;
using testing::name_of;
using testing::odd_units;
using testing::plan_with;
using testing::shard_options;
using testing::unit_of;
using testing::whole_matrices;

}  // namespace

TEST_CASE("shard plan: owners of whole parameters have about as much to keep and to do",
          "[engine][sharding][optimizer]") {
  for (const std::int64_t blocks : {3, 12}) {
    for (ShardPlan::Options options : all_strategies(8)) {
      options.units = odd_units(blocks);
      options.whole_parameters = whole_matrices(blocks);
      options.parallel.strategy_by_unit = {"block 2 = none"};
      if (blocks == 3) {
        options.parallel.strategy_by_unit.clear();
      }
      INFO(name_of(options) << ", " << blocks << " blocks");
      const ShardPlan plan = plan_with(options);
      constexpr std::int64_t kLargest = 23 * 3;
      std::vector<std::int64_t> states(static_cast<std::size_t>(plan.ranks()), 0);
      std::vector<std::int64_t> reduced(states);
      for (const ShardGroup& group : plan.groups()) {
        for (std::size_t i = 0; i < group.parameters.size(); ++i) {
          for (std::int64_t rank = 0; rank < plan.ranks() && group.owners[i] >= 0; ++rank) {
            const std::int64_t count = group.parameters[i].count();
            const bool keeps = rank % group.state_parts == group.owners[i] % group.state_parts;
            states[static_cast<std::size_t>(rank)] += keeps ? count : 0;
            reduced[static_cast<std::size_t>(rank)] += rank == group.owners[i] ? count : 0;
          }
        }
      }
      const auto broadcast = [](const std::vector<std::int64_t>& loads) {
        const auto [least, most] = std::minmax_element(loads.begin(), loads.end());
        return *most - *least;
      };
      CHECK(broadcast(states) <= kLargest);
      if (options.parallel.strategy_by_unit.empty()) {
        CHECK(broadcast(reduced) <= kLargest);
      }
    }
  }
}

TEST_CASE("shard plan: the equal matrices of a block have many owners",
          "[engine][sharding][optimizer]") {
  ShardPlan::Options options = shard_options(4, "full");
  options.units.clear();
  for (int block = 0; block < 8; ++block) {
    std::vector<Parameter> matrices;
    for (int i = 0; i < 4; ++i) {
      matrices.push_back({.name = fmt::format("m{}", block * 4 + i), .shape = {8, 8}});
      options.whole_parameters.push_back(matrices.back().name);
    }
    options.units.push_back(unit_of(fmt::format("block {}", block), matrices));
  }
  const ShardPlan plan = plan_with(options);
  for (const ShardGroup& group : plan.groups()) {
    std::vector<std::int64_t> owners = group.owners;
    std::sort(owners.begin(), owners.end());
    CHECK(owners == std::vector<std::int64_t>{0, 1, 2, 3});
  }
}

}  // namespace train::engine::owners_test
