#include "engine/sharding/shard_options.hpp"
#include "engine/model/spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

namespace train::engine {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::optional<std::int64_t> number_of(const std::string& text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return number;
}

std::string unit_names(const ShardPlan::Options& options) {
  constexpr std::size_t kShown = 3;
  std::string names;
  for (std::size_t i = 0; i < options.units.size(); ++i) {
    if (i >= kShown && i + 1 < options.units.size()) {
      continue;
    }
    const char* separator = i == 0 ? "" : i > kShown ? " .. " : ", ";
    names += fmt::format("{}\"{}\"", separator, options.units[i].name);
  }
  return names;
}

/// True for each unit that the pattern matches. Error when there is none.
Result<std::vector<bool>> matching(const ShardPlan::Options& options, const std::string& pattern,
                                   const char* key) {
  std::vector<bool> found;
  found.reserve(options.units.size());
  for (const UnitParameters& unit : options.units) {
    found.push_back(matches_shell(pattern, unit.name));
  }
  if (std::find(found.begin(), found.end(), true) == found.end()) {
    return user_error(fmt::format("{}: \"{}\" matches no unit; the units are {}", key, pattern,
                                  unit_names(options)));
  }
  return found;
}

using Groups = std::vector<std::vector<std::size_t>>;

/// The first and the last unit share a matrix and so a group of their own; the others are left.
Groups tied_pair(const ShardPlan::Options& options, std::vector<std::size_t>& units) {
  if (!options.tied || options.units.size() < 2) {
    return {};
  }
  const std::size_t last = options.units.size() - 1;
  std::erase_if(units, [&](std::size_t unit) { return unit == 0 || unit == last; });
  return {{0, last}};
}

Groups wrap_by_size(const ShardPlan::Options& options, const std::vector<Strategy>& strategies,
                    const std::vector<std::size_t>& units) {
  Groups groups;
  std::int64_t elements = 0;
  for (const std::size_t unit : units) {
    const bool full = elements >= options.parallel.wrap_min_parameters;
    if (groups.empty() || full || strategies[groups.back().back()] != strategies[unit]) {
      groups.emplace_back();
      elements = 0;
    }
    groups.back().push_back(unit);
    for (const Parameter& parameter : options.units[unit].parameters) {
      elements += parameter.count();
    }
  }
  return groups;
}

Result<Groups> wrap_by_pattern(const ShardPlan::Options& options) {
  std::vector<bool> alone(options.units.size(), false);
  for (const std::string& pattern : options.parallel.wrapping) {
    if (pattern == "per_block" || pattern == "by_size") {
      return user_error(
          fmt::format("parallel.wrapping: \"{}\" stands beside other entries; give it alone, or "
                      "patterns of unit names alone",
                      pattern));
    }
    const auto found = TRAIN_TRY(matching(options, pattern, "parallel.wrapping"));
    for (std::size_t unit = 0; unit < alone.size(); ++unit) {
      alone[unit] = alone[unit] || found[unit];
    }
  }
  const bool pair = options.tied && (alone.front() || alone.back());
  Groups groups;
  std::vector<std::size_t> others;
  if (pair) {
    groups.push_back({0, alone.size() - 1});
  }
  for (std::size_t unit = 0; unit < alone.size(); ++unit) {
    if (pair && (unit == 0 || unit + 1 == alone.size())) {
      continue;
    }
    if (alone[unit]) {
      groups.push_back({unit});
    } else {
      others.push_back(unit);
    }
  }
  if (!others.empty()) {
    groups.push_back(std::move(others));
  }
  return groups;
}

Status check_same_strategy(const ShardPlan::Options& options, const Groups& groups,
                           const std::vector<Strategy>& strategies) {
  for (const std::vector<std::size_t>& group : groups) {
    for (const std::size_t unit : group) {
      const std::size_t first = group.front();
      if (strategies[unit] != strategies[first]) {
        return user_error(fmt::format(
            "parallel.strategy_by_unit: \"{}\" is {} and \"{}\" is {}, but {}; give them one "
            "strategy",
            options.units[first].name, strategy_name(strategies[first]), options.units[unit].name,
            strategy_name(strategies[unit]),
            options.tied ? "tied embeddings or parallel.wrapping put them into one group"
                         : "parallel.wrapping puts them into one group"));
      }
    }
  }
  return {};
}

}  // namespace

Result<Strategy> strategy_of(const std::string& text, const std::string& key) {
  for (const Strategy strategy : {Strategy::none, Strategy::optimizer, Strategy::gradient,
                                  Strategy::full, Strategy::hybrid}) {
    if (text == strategy_name(strategy)) {
      return strategy;
    }
  }
  return user_error(fmt::format(
      "{} is \"{}\": give \"none\", \"optimizer\", \"gradient\", \"full\" or \"hybrid\"", key,
      text));
}

Result<std::vector<Strategy>> strategies_of(const ShardPlan::Options& options) {
  const auto usual = TRAIN_TRY(strategy_of(options.parallel.strategy, "parallel.strategy"));
  std::vector<std::optional<Strategy>> chosen(options.units.size());
  for (const std::string& entry : options.parallel.strategy_by_unit) {
    const std::size_t equals = entry.rfind('=');
    if (equals == std::string::npos) {
      return user_error(fmt::format(
          "parallel.strategy_by_unit: \"{}\" has no '='; write \"pattern = strategy\"", entry));
    }
    const std::string pattern(trimmed(std::string_view(entry).substr(0, equals)));
    const std::string name(trimmed(std::string_view(entry).substr(equals + 1)));
    const auto strategy = TRAIN_TRY(
        strategy_of(name, fmt::format("parallel.strategy_by_unit: strategy of \"{}\"", pattern)));
    const auto found = TRAIN_TRY(matching(options, pattern, "parallel.strategy_by_unit"));
    for (std::size_t unit = 0; unit < chosen.size(); ++unit) {
      if (found[unit] && !chosen[unit]) {
        chosen[unit] = strategy;
      }
    }
  }
  std::vector<Strategy> strategies;
  strategies.reserve(chosen.size());
  for (const std::optional<Strategy>& strategy : chosen) {
    strategies.push_back(strategy.value_or(usual));
  }
  return strategies;
}

Result<Groups> wrap_units(const ShardPlan::Options& options,
                          const std::vector<Strategy>& strategies) {
  const std::vector<std::string>& wrapping = options.parallel.wrapping;
  if (wrapping.empty()) {
    return user_error(
        "parallel.wrapping is empty: give \"per_block\", \"by_size\" or patterns of unit names");
  }
  std::vector<std::size_t> units(options.units.size());
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    units[unit] = unit;
  }
  Groups groups;
  const bool per_block = wrapping.size() == 1 && wrapping.front() == "per_block";
  if (per_block || (wrapping.size() == 1 && wrapping.front() == "by_size")) {
    groups = tied_pair(options, units);
    // Blocks alone are groups that any size fills.
    ShardPlan::Options sized = options;
    if (per_block) {
      sized.parallel.wrap_min_parameters = 0;
    }
    const Groups more = wrap_by_size(sized, strategies, units);
    groups.insert(groups.end(), more.begin(), more.end());
  } else {
    groups = TRAIN_TRY(wrap_by_pattern(options));
  }
  std::sort(groups.begin(), groups.end());
  TRAIN_RETURN_IF_ERROR(check_same_strategy(options, groups, strategies));
  return groups;
}

Result<std::int64_t> reshard_of(const std::string& text) {
  if (text == "never" || text == "after_forward") {
    return std::int64_t{text == "never" ? 1 : 0};
  }
  const std::optional<std::int64_t> ranks = number_of(text);
  if (!ranks || *ranks < 2) {
    return user_error(fmt::format(
        "parallel.reshard is \"{}\": give \"after_forward\", \"never\", or a number of ranks from "
        "2 on",
        text));
  }
  return *ranks;
}

Result<std::int64_t> rounds_per_sync_of(const std::string& text, std::int64_t automatic) {
  if (text == "auto") {
    return automatic;
  }
  if (text == "every_lane" || text == "last_lane") {
    return std::int64_t{text == "every_lane" ? 1 : 0};
  }
  const std::optional<std::int64_t> rounds = number_of(text);
  if (!rounds || *rounds < 1) {
    return user_error(fmt::format(
        "parallel.sync is \"{}\": give \"auto\", \"every_lane\", \"last_lane\", or a number of "
        "lanes from 1 on",
        text));
  }
  return *rounds;
}

Status check_runs(const ShardPlan::Options& options, const LaneSchedule& lanes) {
  const std::int64_t node = options.radix.front();
  for (std::int64_t sync = 0; sync < lanes.syncs() && options.precision.determinism == "world";
       ++sync) {
    for (std::int64_t rank = 0; rank < options.parallel.ranks; ++rank) {
      const LaneRange run = lanes.lanes_of(rank, sync);
      const std::int64_t begun = run.first % node;
      const std::int64_t single = begun == 0 ? 0 : std::min(node - begun, run.count);
      if (single > 1) {
        return user_error(fmt::format(
            "batch.radix begins with {}, but rank {} of {} begins a run of {} lanes at lane {}: it "
            "would keep and send {} of them one by one; let {} divide the lanes of a rank "
            "(batch.lanes / parallel.ranks), set parallel.sync to \"every_lane\", or begin "
            "batch.radix with a smaller number",
            node, rank, options.parallel.ranks, run.count, run.first, single, node));
      }
    }
  }
  return {};
}

Status check_ranks(const ShardPlan::Options& options, const std::vector<Strategy>& strategies) {
  const configs::ParallelSection& parallel = options.parallel;
  if (parallel.ranks < 1) {
    return user_error(fmt::format("parallel.ranks is {}: give 1 or more", parallel.ranks));
  }
  if (parallel.ranks > options.train_lanes) {
    return user_error(
        fmt::format("parallel.ranks is {} but batch.lanes is {}: a rank needs a lane; lower "
                    "parallel.ranks or raise batch.lanes",
                    parallel.ranks, options.train_lanes));
  }
  const bool hybrid =
      std::find(strategies.begin(), strategies.end(), Strategy::hybrid) != strategies.end();
  if (hybrid && (parallel.group < 1 || parallel.ranks % parallel.group != 0)) {
    return user_error(
        fmt::format("parallel.group is {} but parallel.ranks is {}: strategy \"hybrid\" needs a "
                    "group of ranks that divides them; set parallel.group",
                    parallel.group, parallel.ranks));
  }
  for (const auto& [key, type] : {std::pair{"precision.compute", &options.precision.compute},
                                  std::pair{"precision.reduce", &options.precision.reduce}}) {
    if (*type != "fp32" && *type != "bf16") {
      return user_error(fmt::format("{} is \"{}\": give \"fp32\" or \"bf16\"", key, *type));
    }
  }
  const std::string& determinism = options.precision.determinism;
  if (determinism != "world" && determinism != "run") {
    return user_error(
        fmt::format("precision.determinism is \"{}\": give \"world\" or \"run\"", determinism));
  }
  return {};
}

}  // namespace train::engine
