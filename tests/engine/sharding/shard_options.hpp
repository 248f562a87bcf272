#pragma once

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/parameter.hpp"
#include "engine/sharding/shard_plan.hpp"

namespace train::engine::testing {

inline UnitParameters unit_of(const std::string& name, const std::vector<Parameter>& parameters) {
  ParameterList list;
  for (const Parameter& parameter : parameters) {
    list.add(parameter);
  }
  return {.name = name,
          .parameters = list.parameters(),
          .element_count = list.element_count(),
          .traits = {}};
}

/// Units whose rows no small number divides; some parameters have fewer rows than there are ranks.
inline std::vector<UnitParameters> odd_units(std::int64_t blocks) {
  std::vector<UnitParameters> units;
  units.push_back(unit_of("embedding", {{.name = "wte", .shape = {37, 4}}}));
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::string prefix = "block." + std::to_string(i);
    units.push_back(
        unit_of("block " + std::to_string(i), {{.name = prefix + ".norm", .shape = {7}},
                                               {.name = prefix + ".small", .shape = {3, 5}},
                                               {.name = prefix + ".matrix", .shape = {23, 3}}}));
  }
  units.push_back(
      unit_of("head", {{.name = "ln_f", .shape = {7}}, {.name = "lm_head", .shape = {41, 2}}}));
  units.back().traits.gradient_in_forward = true;
  return units;
}

inline ShardPlan::Options shard_options(std::int64_t ranks, const std::string& strategy,
                                        std::int64_t group = 0, std::int64_t lanes = 9) {
  ShardPlan::Options options;
  options.units = odd_units(3);
  options.parallel.ranks = ranks;
  options.parallel.strategy = strategy;
  options.parallel.group = group;
  options.parallel.wrapping = {"per_block"};
  options.train_lanes = lanes;
  options.eval_lanes = 4;
  options.scored_lanes = 5;
  return options;
}

/// Every strategy at 1 to `most_ranks` ranks; hybrid with every group that divides them.
inline std::vector<ShardPlan::Options> all_strategies(std::int64_t most_ranks,
                                                      std::int64_t lanes = 9) {
  std::vector<ShardPlan::Options> cases;
  for (std::int64_t ranks = 1; ranks <= most_ranks; ++ranks) {
    for (const char* strategy : {"none", "optimizer", "gradient", "full"}) {
      cases.push_back(shard_options(ranks, strategy, 0, lanes));
    }
    for (std::int64_t group = 1; group <= ranks; ++group) {
      if (ranks % group == 0) {
        cases.push_back(shard_options(ranks, "hybrid", group, lanes));
      }
    }
  }
  return cases;
}

/// The matrices of odd_units that an optimizer might want whole; norms, embedding and head are cut.
inline std::vector<std::string> whole_matrices(std::int64_t blocks) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < blocks; ++i) {
    names.push_back("block." + std::to_string(i) + ".small");
    names.push_back("block." + std::to_string(i) + ".matrix");
  }
  return names;
}

inline std::string name_of(const ShardPlan::Options& options) {
  return options.parallel.strategy + " group " + std::to_string(options.parallel.group) + " on " +
         std::to_string(options.parallel.ranks) + " ranks, reshard " + options.parallel.reshard +
         ", sync " + options.parallel.sync;
}

/// The plan of options that can be planned.
inline ShardPlan plan_with(const ShardPlan::Options& options) {
  auto plan = ShardPlan::make(options);
  INFO(name_of(options));
  REQUIRE(plan.ok());
  return std::move(plan).value();
}

/// Where a reservation is in its list. REQUIRES: it is one.
inline std::size_t index_of(std::int32_t reservation) {
  return static_cast<std::size_t>(reservation);
}

}  // namespace train::engine::testing
