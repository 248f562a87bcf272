#define XXH_INLINE_ALL
#include "engine/sharding/shard_plan.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "base/check.hpp"
#include "engine/sharding/shard_options.hpp"

namespace train::engine {

namespace {

struct WholeParameter {
  std::size_t group = 0;
  std::size_t index = 0;  // In the group.
  std::int64_t count = 0;
};

/// Elements of whole parameters that each rank has been given.
class Loads {
 public:
  Loads(std::size_t groups, std::int64_t ranks)
      : state_(static_cast<std::size_t>(ranks)), reduced_(state_), of_group_(groups, state_) {}

  /// The rank to which a parameter of `group`, whose state is in `parts` parts, goes.
  [[nodiscard]] std::int64_t best(std::size_t group, std::size_t parts) const {
    const std::vector<std::int64_t> fullest = fullest_of_parts(parts);
    const auto key = [&](std::size_t rank) {
      return std::tuple(fullest[rank % parts], reduced_[rank], of_group_[group][rank], rank);
    };
    std::size_t best = 0;
    for (std::size_t rank = 1; rank < state_.size(); ++rank) {
      best = key(rank) < key(best) ? rank : best;
    }
    return static_cast<std::int64_t>(best);
  }

  void add(const WholeParameter& parameter, std::size_t parts, std::int64_t owner) {
    const auto rank = static_cast<std::size_t>(owner);
    for (std::size_t replica = rank % parts; replica < state_.size(); replica += parts) {
      state_[replica] += parameter.count;
    }
    reduced_[rank] += parameter.count;
    of_group_[parameter.group][rank] += parameter.count;
  }

 private:
  /// Largest element count in a state part among the ranks that keep the same part.
  [[nodiscard]] std::vector<std::int64_t> fullest_of_parts(std::size_t parts) const {
    std::vector<std::int64_t> fullest(parts, 0);
    for (std::size_t rank = 0; rank < state_.size(); ++rank) {
      fullest[rank % parts] = std::max(fullest[rank % parts], state_[rank]);
    }
    return fullest;
  }

  std::vector<std::int64_t> state_;                  // Elements of each rank's state part.
  std::vector<std::int64_t> reduced_;                // Elements of each rank's reduce part.
  std::vector<std::vector<std::int64_t>> of_group_;  // Elements by group and rank.
};

std::vector<WholeParameter> largest_first(const std::vector<ShardGroup>& groups,
                                          const std::vector<std::string>& whole) {
  const std::set<std::string> names(whole.begin(), whole.end());
  std::vector<WholeParameter> found;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const std::vector<Parameter>& parameters = groups[group].parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (names.count(parameters[i].name) > 0) {
        found.push_back({.group = group, .index = i, .count = parameters[i].count()});
      }
    }
  }
  TRAIN_CHECK(found.size() == names.size(), "{} of {} whole parameters are in the model",
              found.size(), names.size());
  std::stable_sort(
      found.begin(), found.end(),
      [](const WholeParameter& a, const WholeParameter& b) { return a.count > b.count; });
  return found;
}

}  // namespace

void assign_owners(std::vector<ShardGroup>& groups, const std::vector<std::string>& whole,
                   std::int64_t ranks) {
  for (ShardGroup& group : groups) {
    group.owners.assign(group.parameters.size(), kCutByRows);
  }
  Loads loads(groups.size(), ranks);
  for (const WholeParameter& parameter : largest_first(groups, whole)) {
    ShardGroup& group = groups[parameter.group];
    const auto parts = static_cast<std::size_t>(group.state_parts);
    const std::int64_t owner = loads.best(parameter.group, parts);
    loads.add(parameter, parts, owner);
    group.owners[parameter.index] = owner;
  }
}

namespace {

/// "embedding", "block 0 .. block 3", "embedding + head".
std::string name_of(const std::vector<std::size_t>& members,
                    const std::vector<UnitParameters>& units) {
  std::string name;
  for (std::size_t i = 0; i < members.size();) {
    std::size_t end = i + 1;
    while (end < members.size() && members[end] == members[end - 1] + 1) {
      ++end;
    }
    name += fmt::format("{}{}", i == 0 ? "" : " + ", units[members[i]].name);
    if (end > i + 1) {
      name += fmt::format(" .. {}", units[members[end - 1]].name);
    }
    i = end;
  }
  return name;
}

ShardGroup make_group(const std::vector<std::size_t>& members,
                      const std::vector<UnitParameters>& units) {
  ShardGroup group;
  group.name = name_of(members, units);
  group.units = members;
  for (const std::size_t unit : members) {
    group.unit_base.push_back(group.element_count);
    group.unit_gradient.push_back(group.gradient_count);
    for (Parameter parameter : units[unit].parameters) {
      parameter.offset += group.element_count;
      parameter.gradient = group.gradient_count;
      group.gradient_count += parameter.frozen ? 0 : padded(parameter.places(parameter.count()));
      group.parameters.push_back(std::move(parameter));
    }
    group.element_count += padded(units[unit].element_count);
  }
  return group;
}

void set_parts(ShardGroup& group, Strategy strategy, const configs::ParallelSection& parallel) {
  group.strategy = parallel.ranks == 1 ? Strategy::none : strategy;
  switch (group.strategy) {
    case Strategy::none:
      break;
    case Strategy::optimizer:
    case Strategy::gradient:
      group.state_parts = parallel.ranks;
      break;
    case Strategy::full:
      group.state_parts = group.weight_parts = parallel.ranks;
      break;
    case Strategy::hybrid:
      group.state_parts = group.weight_parts = parallel.group;
      break;
  }
}

bool splits_gradients(const ShardGroup& group) {
  return group.strategy == Strategy::gradient || group.strategy == Strategy::full ||
         group.strategy == Strategy::hybrid;
}

Status check_reshard(std::int64_t reshard_ranks, const std::vector<ShardGroup>& groups) {
  for (const ShardGroup& group : groups) {
    const bool asked = reshard_ranks > 1 && group.weight_parts > 1;
    if (asked && group.weight_parts % reshard_ranks != 0) {
      return user_error(
          fmt::format("parallel.reshard is {} but the weights of \"{}\" are split over {} ranks: "
                      "give a number that divides them, \"after_forward\" or \"never\"",
                      reshard_ranks, group.name, group.weight_parts));
    }
  }
  return {};
}

/// Everything that decides which collectives there are and what they move, as text.
std::string fingerprint(const ShardPlan& plan) {
  const LaneSchedule& lanes = plan.train_lanes();
  std::string text = fmt::format(
      "ranks {} lanes {} syncs {} first {} eval {} reshard {} buffers {} ahead {} {} compute {} "
      "reduce {} determinism {}",
      plan.ranks(), lanes.lanes(), lanes.syncs(), lanes.last_round_of(0, 0),
      plan.eval_lanes().lanes(), plan.reshard_ranks(), plan.gather_buffers(),
      plan.parallel().prefetch_forward, plan.parallel().prefetch_backward, plan.precision().compute,
      plan.precision().reduce, plan.precision().determinism);
  text += fmt::format(" scored {} sampled {} radix {}", plan.lanes_of(kScoring).lanes(),
                      plan.lanes_of(kSampling).lanes(), fmt::join(plan.radix(), " "));
  for (const ShardGroup& group : plan.groups()) {
    text += fmt::format("\n{} {} {} {}", group.name, strategy_name(group.strategy),
                        group.weight_parts, group.state_parts);
    for (const std::size_t unit : group.units) {
      text += fmt::format(" {}", unit);
    }
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      const Parameter& parameter = group.parameters[i];
      text += fmt::format("\n {} {} {} {} {}", parameter.name, parameter.rows(), parameter.cols(),
                          parameter.offset, group.owners[i]);
      text += parameter.frozen ? " frozen" : "";
      text += parameter.exact ? " exact" : "";
    }
  }
  return text;
}

std::vector<std::int64_t> neighbours(std::int64_t rank, std::int64_t count) {
  std::vector<std::int64_t> ranks;
  for (std::int64_t i = 0; i < count; ++i) {
    ranks.push_back(rank / count * count + i);
  }
  return ranks;
}

}  // namespace

std::pair<std::int64_t, std::int64_t> rows_of_cut(std::int64_t rows, std::int64_t owner,
                                                  const RowCut& cut) {
  if (owner != kCutByRows) {
    const bool here =
        owner % cut.parts == cut.part && owner / cut.parts % cut.fine_parts == cut.fine;
    return {0, here ? rows : 0};
  }
  const std::int64_t begin = rows * cut.part / cut.parts;
  const std::int64_t coarse = rows * (cut.part + 1) / cut.parts - begin;
  return {begin + coarse * cut.fine / cut.fine_parts,
          begin + coarse * (cut.fine + 1) / cut.fine_parts};
}

const char* strategy_name(Strategy strategy) {
  static constexpr std::array kNames = {"none", "optimizer", "gradient", "full", "hybrid"};
  return kNames.at(static_cast<std::size_t>(strategy));
}

ShardPlan::ShardPlan(const Options& options)
    : options_(options),
      train_lanes_(options.train_lanes, options.parallel.ranks, 0),
      eval_lanes_(options.eval_lanes, options.parallel.ranks, 0),
      lane_tree_(options.train_lanes, options.radix),
      scored_lanes_(options.scored_lanes, options.parallel.ranks, 0),
      sampled_lanes_(options.sampled_texts, options.parallel.ranks, 0) {}

Result<ShardPlan> ShardPlan::make(const Options& options) {
  TRAIN_CHECK(!options.units.empty());
  const auto strategies = TRAIN_TRY(strategies_of(options));
  TRAIN_RETURN_IF_ERROR(check_ranks(options, strategies));
  const auto wrapped = TRAIN_TRY(wrap_units(options, strategies));
  ShardPlan plan(options);
  plan.group_of_.resize(options.units.size());
  for (const std::vector<std::size_t>& members : wrapped) {
    for (const std::size_t unit : members) {
      plan.group_of_[unit] = plan.groups_.size();
    }
    plan.groups_.push_back(make_group(members, options.units));
    set_parts(plan.groups_.back(), strategies[members.front()], options.parallel);
  }
  while (plan.lowest_trained_ < options.units.size() &&
         options.units[plan.lowest_trained_].gradient_count() == 0) {
    ++plan.lowest_trained_;
  }
  assign_owners(plan.groups_, options.whole_parameters, options.parallel.ranks);
  const auto reshard = TRAIN_TRY(reshard_of(options.parallel.reshard));
  plan.reshard_ranks_ = reshard;
  TRAIN_RETURN_IF_ERROR(check_reshard(reshard, plan.groups_));
  const bool splits = std::any_of(plan.groups_.begin(), plan.groups_.end(), splits_gradients);
  const auto rounds = TRAIN_TRY(rounds_per_sync_of(options.parallel.sync, splits ? 1 : 0));
  // A single rank sends nothing: all its lanes are one sync.
  const std::int64_t rounds_per_sync = plan.ranks() == 1 ? 0 : rounds;
  plan.train_lanes_ = LaneSchedule(options.train_lanes, plan.ranks(), rounds_per_sync);
  TRAIN_RETURN_IF_ERROR(check_runs(options, plan.train_lanes_));
  if (const std::int64_t needed = plan.gather_buffers_needed(); plan.gather_buffers() < needed) {
    return user_error(fmt::format("parallel.gather_credits is {}: this plan needs at least {}",
                                  options.parallel.gather_credits, needed));
  }
  const std::string text = fingerprint(plan);
  plan.digest_ = XXH3_64bits(text.data(), text.size());
  return plan;
}

std::int64_t ShardPlan::gathered_groups() const {
  return std::count_if(groups_.begin(), groups_.end(),
                       [](const ShardGroup& group) { return group.weight_parts > 1; });
}

std::int64_t ShardPlan::gather_buffers() const {
  const std::int64_t groups = gathered_groups();
  return reshard_ranks() == 1 ? groups
                              : std::clamp<std::int64_t>(parallel().gather_credits, 0, groups);
}

std::int64_t ShardPlan::gather_buffers_needed() const {
  const std::int64_t groups = gathered_groups();
  // Two reservations never cover the same visit, unless they last to the end of the command.
  return reshard_ranks() == 1 ? groups : std::min<std::int64_t>(groups, 1);
}

std::int64_t ShardPlan::base_of(std::size_t unit) const {
  const ShardGroup& group = groups_[group_of_[unit]];
  const auto found = std::find(group.units.begin(), group.units.end(), unit);
  TRAIN_CHECK(found != group.units.end(), "unit {}", unit);
  return group.unit_base[static_cast<std::size_t>(std::distance(group.units.begin(), found))];
}

std::int64_t ShardPlan::gradient_base_of(std::size_t unit) const {
  const ShardGroup& group = groups_[group_of_[unit]];
  const auto found = std::find(group.units.begin(), group.units.end(), unit);
  TRAIN_CHECK(found != group.units.end(), "unit {}", unit);
  return group.unit_gradient[static_cast<std::size_t>(std::distance(group.units.begin(), found))];
}

Part ShardPlan::trained(std::size_t group, const Part& part) const {
  Part trained;
  trained.segments.reserve(part.segments.size());
  for (Segment segment : part.segments) {
    const Parameter& parameter = groups_[group].parameters[segment.parameter];
    if (!parameter.frozen) {
      segment.packed_offset = trained.element_count;
      trained.element_count += padded(parameter.places(segment.count));
      trained.segments.push_back(segment);
    }
  }
  return trained;
}

Part ShardPlan::cut(std::size_t group, std::int64_t parts, std::int64_t part,
                    std::int64_t fine_parts, std::int64_t fine) const {
  TRAIN_CHECK(part >= 0 && part < parts && fine >= 0 && fine < fine_parts, "part {}/{} of {}/{}",
              part, fine, parts, fine_parts);
  const bool whole = parts == 1 && fine_parts == 1;
  Part result;
  const std::vector<Parameter>& parameters = groups_[group].parameters;
  result.segments.reserve(parameters.size());
  std::pair<std::int64_t, std::int64_t> last{-1, kCutByRows}, range;  // Experts are alike.
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    if (const std::pair now{parameter.rows(), groups_[group].owners[i]}; now != last) {
      last = now;
      range = rows_of_cut(now.first, now.second, {parts, part, fine_parts, fine});
    }
    const auto [first, end] = range;
    if (first == end) {
      continue;
    }
    const std::int64_t flat = parameter.offset + first * parameter.cols();
    const std::int64_t count = (end - first) * parameter.cols();
    result.segments.push_back({.parameter = i,
                               .first_row = first,
                               .rows = end - first,
                               .flat_offset = flat,
                               .gradient_offset = parameter.gradient + first * parameter.cols(),
                               .packed_offset = whole ? flat : result.element_count,
                               .count = count});
    result.element_count += padded(parameter.places(count));
  }
  if (whole) {
    result.element_count = groups_[group].element_count;
  }
  return result;
}

Part ShardPlan::weight_part(std::size_t group, std::int64_t rank) const {
  const std::int64_t parts = groups_[group].weight_parts;
  return cut(group, parts, rank % parts);
}

Part ShardPlan::state_part(std::size_t group, std::int64_t rank) const {
  const std::int64_t parts = groups_[group].state_parts;
  return cut(group, parts, rank % parts);
}

RowCut ShardPlan::reduce_cut(std::size_t group, std::int64_t rank) const {
  const std::int64_t parts = groups_[group].state_parts;
  return {
      .parts = parts, .part = rank % parts, .fine_parts = ranks() / parts, .fine = rank / parts};
}

Part ShardPlan::reduce_part(std::size_t group, std::int64_t rank) const {
  const RowCut at = reduce_cut(group, rank);
  return cut(group, at.parts, at.part, at.fine_parts, at.fine);
}

std::vector<std::int64_t> ShardPlan::weight_peers(std::size_t group, std::int64_t rank) const {
  return neighbours(rank, groups_[group].weight_parts);
}

std::vector<std::int64_t> ShardPlan::replica_peers(std::size_t group, std::int64_t rank) const {
  const std::int64_t parts = groups_[group].state_parts;
  std::vector<std::int64_t> peers;
  for (std::int64_t peer = rank % parts; peer < ranks(); peer += parts) {
    peers.push_back(peer);
  }
  return peers;
}

std::vector<std::int64_t> ShardPlan::reshard_peers(std::size_t group, std::int64_t rank) const {
  return splits_kept_weights(group) ? neighbours(rank, reshard_ranks_) : weight_peers(group, rank);
}

bool ShardPlan::splits_kept_weights(std::size_t group) const {
  return reshard_ranks_ > 1 && reshard_ranks_ < groups_[group].weight_parts;
}

bool ShardPlan::all_gathered(std::size_t group) const {
  const ShardGroup& one = groups_[group];
  return one.trained() && one.weight_parts < one.state_parts;
}

bool ShardPlan::broadcast(std::size_t group) const {
  return groups_[group].trained() && groups_[group].state_parts < ranks();
}

bool ShardPlan::own_gradient(std::size_t group) const {
  const Strategy strategy = groups_[group].strategy;
  const bool own =
      strategy == Strategy::none || strategy == Strategy::optimizer || uses_lane_sums();
  return groups_[group].trained() && own;
}

bool ShardPlan::uses_shared_gradient(std::size_t group) const {
  return groups_[group].trained() && (uses_lane_sums() || !own_gradient(group));
}

bool ShardPlan::uses_lane_sums() const { return train_lanes_.lanes_of(0, 0).count > 1; }

}  // namespace train::engine
