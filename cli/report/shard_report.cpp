#include "cli/report/shard_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/text/units.hpp"
#include "configs/fields/field_table.hpp"
#include "engine/rank/exec/rank_memory.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/sharding/buffer_schedule.hpp"
#include "run/memory/run_needs.hpp"

namespace train::cli {
using namespace run;
namespace {

using engine::CollectiveKind;
using engine::CollectiveOp;
using engine::GroupLayout;

std::size_t sent_in_gather(const engine::RankLayout& layout, const GroupLayout& group,
                           bool smaller) {
  const GroupLayout::Sources& sources = smaller ? group.kept : group.shards;
  for (std::size_t i = 0; i < sources.ranks.size(); ++i) {
    if (sources.ranks[i] == layout.rank()) {
      return (sources.ranks.size() - 1) * layout.compute_size() *
             static_cast<std::size_t>(sources.elements[i]);
    }
  }
  return 0;
}

std::size_t sent_in_reduce(const engine::RankLayout& layout, const CollectiveOp& op) {
  const auto group = static_cast<std::size_t>(op.group);
  std::int64_t elements = 0;
  for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) {
    elements += rank == layout.rank() ? 0 : layout.reduce_elements(group, rank);
  }
  return layout.sum_count(layout.rank(), op.part) * layout.reduce_size() *
         static_cast<std::size_t>(elements);
}

}  // namespace

std::size_t StepTraffic::total_bytes() const {
  return std::accumulate(sent_bytes.begin(), sent_bytes.end(), std::size_t{0});
}

StepTraffic step_traffic(const engine::ShardPlan& plan, const engine::RankLayout& layout) {
  const engine::BufferSchedule schedule(plan, engine::kTrainStep);
  const auto others = static_cast<std::size_t>(plan.ranks() - 1);
  StepTraffic traffic;
  for (const CollectiveOp& op : engine::expand(plan, engine::kTrainStep)) {
    const auto index = static_cast<std::size_t>(op.group < 0 ? 0 : op.group);
    const GroupLayout& group = layout.group(index);
    const auto reduced = static_cast<std::size_t>(group.reduce.element_count);
    std::size_t& sent = traffic.sent_bytes[static_cast<std::size_t>(op.kind)];
    switch (op.kind) {
      case CollectiveKind::gather:
        sent += sent_in_gather(
            layout, group,
            schedule.gathers()[static_cast<std::size_t>(op.part)].from_smaller_group);
        break;
      case CollectiveKind::all_gather:
        sent += others * reduced * layout.compute_size();
        break;
      case CollectiveKind::reduce:
        sent += sent_in_reduce(layout, op);
        break;
      case CollectiveKind::broadcast:
        sent += (plan.replica_peers(index, layout.rank()).size() - 1) * reduced * sizeof(float);
        break;
      case CollectiveKind::loss_and_norm:
        sent += others * sizeof(double) *
                static_cast<std::size_t>(layout.step_block(layout.rank() + 1) -
                                         layout.step_block(layout.rank()));
        break;
      case CollectiveKind::eval_sums:
      case CollectiveKind::nonfinite:
      case CollectiveKind::reference:
      case CollectiveKind::block_sums:
        break;
    }
  }
  return traffic;
}

namespace {

using engine::ShardGroup;
using engine::ShardPlan;
using EngineOptions = engine::RankOptions;
using Row = std::vector<std::string>;

constexpr std::int64_t kRanksShown = 8;  // Ranks printed individually.

/// Columns as wide as their widest cell; the first `left` are left-aligned.
std::string table(const std::vector<Row>& rows, std::size_t left) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += i == 0 ? "" : "  ";
      line += i < left ? fmt::format("{:<{}}", row[i], widths[i])
                       : fmt::format("{:>{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

/// Cost of one way of sharding: what the run needs then, and the traffic of the busiest rank.
struct Cost {
  std::string name;
  RunNeeds needs;
  StepTraffic traffic = {};
};

/// `other`: the cost of another way of sharding the run, or nullptr.
Cost cost_of(std::string name, const RunPlan& run, const EngineOptions& options,
             const ShardPlan& plan, const Cost* other) {
  Cost cost{.name = std::move(name), .needs = {}};
  const auto take_traffic = [&cost](const ShardPlan& shards, const engine::RankLayout& layout) {
    const StepTraffic traffic = step_traffic(shards, layout);
    if (traffic.total_bytes() > cost.traffic.total_bytes()) {
      cost.traffic = traffic;
    }
  };
  cost.needs =
      needs_of(run, options, plan, take_traffic, other == nullptr ? nullptr : &other->needs);
  return cost;
}

std::int64_t largest_proper_divisor(std::int64_t number) {
  for (std::int64_t divisor = 2; divisor * divisor <= number; ++divisor) {
    if (number % divisor == 0) {
      return number / divisor;
    }
  }
  return 1;
}

struct Planned {
  EngineOptions options;
  ShardPlan plan;
};

/// Options with one strategy for the whole run, and their plan of `units`; conflicting options are
/// reset.
Planned with_strategy(EngineOptions options, const std::vector<engine::UnitParameters>& units,
                      const std::string& strategy) {
  configs::ParallelSection& parallel = options.parallel;
  parallel.strategy = strategy;
  parallel.strategy_by_unit.clear();
  parallel.gather_credits = std::max<std::int64_t>(1, parallel.gather_credits);
  if (parallel.group < 1 || parallel.ranks % parallel.group != 0) {
    parallel.group = largest_proper_divisor(parallel.ranks);
  }
  auto plan = engine::plan_of(options, units);
  if (!plan) {
    parallel.reshard = "after_forward";
    plan = engine::plan_of(options, units);
  }
  if (!plan) {
    parallel.sync = "every_lane";  // Fits every batch.radix.
    plan = engine::plan_of(options, units);
  }
  return {std::move(options), std::move(plan).value()};
}

std::vector<Cost> costs_of(const RunPlan& run, const EngineOptions& options,
                           const ShardPlan& plan) {
  std::vector<Cost> costs = {cost_of("this run", run, options, plan, nullptr)};
  if (options.parallel.ranks == 1) {
    return costs;
  }
  for (const std::string& strategy :
       configs::split_choices(*configs::find_field("parallel.strategy"))) {
    const Planned changed = with_strategy(options, plan.units(), strategy);
    const configs::ParallelSection& parallel = changed.options.parallel;
    costs.push_back(
        cost_of(parallel.strategy == "hybrid" ? fmt::format("hybrid {}", parallel.group) : strategy,
                run, changed.options, changed.plan, &costs.front()));
  }
  return costs;
}

/// Line of a cost table: its name, and the bytes for a cost.
using CostLine = std::pair<std::string, std::function<std::uint64_t(const Cost&)>>;

/// Without lines that are 0 in every column, but for a total.
std::string cost_table(const char* title, const std::vector<Cost>& costs,
                       const std::vector<CostLine>& lines) {
  std::vector<Row> rows = {{title}};
  for (const Cost& cost : costs) {
    rows[0].push_back(cost.name);
  }
  for (const auto& [name, bytes] : lines) {
    Row row = {name};
    bool any = name.ends_with("total");
    for (const Cost& cost : costs) {
      any = any || bytes(cost) > 0;
      row.push_back(format_bytes(bytes(cost)));
    }
    if (any) {
      rows.push_back(std::move(row));
    }
  }
  return table(rows, 1);
}

std::string needs_table(const std::vector<Cost>& costs) {
  const RunNeeds& run = costs.front().needs;
  std::vector<CostLine> lines;
  const auto line = [&lines](std::string name, auto bytes) {
    lines.emplace_back(std::move(name), [bytes](const Cost& cost) -> std::uint64_t {
      return std::invoke(bytes, cost.needs);
    });
  };
  for (const auto& [name, bytes] : engine::kMemoryKinds) {
    line(fmt::format("{}: {}", run.has_device ? "device" : "host", name),
         [bytes = bytes](const RunNeeds& needs) { return needs.engine.*bytes; });
  }
  if (run.has_device) {
    line(run.device_ranks > 1 ? fmt::format("device: {} ranks, total", run.device_ranks)
                              : "device: total",
         &RunNeeds::device_bytes);
  }
  line("host: offloaded", &RunNeeds::offloaded_bytes);
  line("host: copies of transfers", &RunNeeds::transfer_copies_bytes);
  line("host: copies for checkpoints", &RunNeeds::checkpoint_copies_bytes);
  line("host: copy for snapshots", &RunNeeds::snapshot_copy_bytes);
  line("host: copy for digests", &RunNeeds::digest_copy_bytes);
  line("host: program", [](const RunNeeds& /*needs*/) { return kProgramBytes; });
  line("host: a rank, total",
       [](const RunNeeds& needs) { return needs.rank_bytes() + kProgramBytes; });
  line("node: snapshots in memory", &RunNeeds::node_snapshots_bytes);
  line(fmt::format("node: {} rank{}, total", run.node_ranks, run.node_ranks == 1 ? "" : "s"),
       &RunNeeds::node_bytes);
  line("disk: a checkpoint", &RunNeeds::checkpoint_bytes);
  line(fmt::format("disk: {} of them, total", run.checkpoints),
       [](const RunNeeds& needs) { return needs.checkpoints * needs.checkpoint_bytes; });
  return cost_table("at most, on the fullest rank", costs, lines);
}

std::string traffic_table(const std::vector<Cost>& costs) {
  std::vector<CostLine> lines;
  for (const CollectiveKind kind :
       {CollectiveKind::gather, CollectiveKind::all_gather, CollectiveKind::reduce,
        CollectiveKind::broadcast, CollectiveKind::loss_and_norm}) {
    lines.emplace_back(engine::collective_name(kind),
                       [kind](const Cost& cost) { return cost.traffic.of(kind); });
  }
  lines.emplace_back("total", [](const Cost& cost) { return cost.traffic.total_bytes(); });
  return cost_table("sent by a rank in a step", costs, lines);
}

/// Rows kept by each rank: "all", "96 each", "12 13 12 13", "12 to 13". With an owner "all on 3":
/// the rank of that part, in each group of `parts` ranks.
std::string rows_text(const engine::Parameter& parameter, const std::vector<std::int64_t>& rows,
                      std::int64_t owner, std::int64_t parts) {
  const auto [least, most] = std::minmax_element(rows.begin(), rows.end());
  if (*least == parameter.rows()) {
    return "all";
  }
  if (*least == *most) {
    return fmt::format("{} each", *least);
  }
  if (owner != engine::kCutByRows) {
    return fmt::format("all on {}", owner % parts);
  }
  if (static_cast<std::int64_t>(rows.size()) > kRanksShown) {
    return fmt::format("{} to {}", *least, *most);
  }
  return fmt::format("{}", fmt::join(rows, " "));
}

/// Rows of each of the group's parameters in every rank's part.
std::vector<std::vector<std::int64_t>> rows_by_rank(const ShardPlan& plan, std::size_t group,
                                                    engine::Part (ShardPlan::*part_of)(std::size_t,
                                                                                       std::int64_t)
                                                        const) {
  std::vector<std::vector<std::int64_t>> rows(
      plan.groups()[group].parameters.size(),
      std::vector<std::int64_t>(static_cast<std::size_t>(plan.ranks()), 0));
  for (std::int64_t rank = 0; rank < plan.ranks(); ++rank) {
    for (const engine::Segment& segment : (plan.*part_of)(group, rank).segments) {
      rows[segment.parameter][static_cast<std::size_t>(rank)] = segment.rows;
    }
  }
  return rows;
}

std::string shard_table(const ShardPlan& plan) {
  std::vector<Row> rows = {
      {"parameter", "shape", "strategy", "rows of weights", "rows of optimizer"}};
  for (std::size_t index = 0; index < plan.groups().size(); ++index) {
    const ShardGroup& group = plan.groups()[index];
    const auto weights = rows_by_rank(plan, index, &ShardPlan::weight_part);
    const auto states = rows_by_rank(plan, index, &ShardPlan::state_part);
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      const engine::Parameter& parameter = group.parameters[i];
      rows.push_back({parameter.name, fmt::format("{}", fmt::join(parameter.shape, " x ")),
                      engine::strategy_name(group.strategy),
                      rows_text(parameter, weights[i], group.owners[i], group.weight_parts),
                      rows_text(parameter, states[i], group.owners[i], group.state_parts)});
    }
  }
  return table(rows, 5);
}

std::string group_line(const ShardPlan& plan) {
  constexpr std::size_t kShown = 8;
  const std::vector<ShardGroup>& groups = plan.groups();
  std::string text = fmt::format("{} group{} of units: {}", groups.size(),
                                 groups.size() == 1 ? "" : "s", groups.front().name);
  for (std::size_t i = 1; i < groups.size(); ++i) {
    if (groups.size() <= kShown || i + 1 == groups.size() || i < kShown / 2) {
      text += ", " + groups[i].name;
    } else if (i == kShown / 2) {
      text += ", ..";
    }
  }
  return text + '\n';
}

std::string collective_table(const ShardPlan& plan, const Cost& cost) {
  const auto ops = engine::expand(plan, engine::kTrainStep);
  if (ops.empty()) {
    return "collectives of a step: none, one rank has nobody to send to\n";
  }
  std::vector<Row> rows = {{"channel", "collectives of a step", "count", "sent by a rank"}};
  // In channel order, kinds in order of appearance.
  std::vector<std::pair<engine::Channel, CollectiveKind>> seen;
  for (const engine::CollectiveOp& op : ops) {
    const std::pair key{op.channel, op.kind};
    if (std::find(seen.begin(), seen.end(), key) == seen.end()) {
      seen.push_back(key);
    }
  }
  for (const auto& [channel, kind] : seen) {
    const auto count = std::count_if(ops.begin(), ops.end(),
                                     [kind = kind](const auto& op) { return op.kind == kind; });
    rows.push_back({engine::channel_name(channel), engine::collective_name(kind),
                    fmt::format("{}", count), format_bytes(cost.traffic.of(kind))});
  }
  return table(rows, 2);
}

}  // namespace

std::string plan_report(const RunPlan& run, bool tensors) {
  const EngineOptions options = engine::largest_phase(run.engine);
  const ShardPlan plan = engine::plan_of(options).value();
  const engine::LaneSchedule& lanes = plan.train_lanes();
  const std::vector<Cost> costs = costs_of(run, options, plan);
  std::string text = fmt::format(
      "{} rank{}, {} lane{} a step: {} round{}, gradients are sent {} time{} a step\n",
      plan.ranks(), plan.ranks() == 1 ? "" : "s", lanes.lanes(), lanes.lanes() == 1 ? "" : "s",
      lanes.rounds(), lanes.rounds() == 1 ? "" : "s", plan.ranks() == 1 ? 0 : lanes.syncs(),
      plan.ranks() > 1 && lanes.syncs() == 1 ? "" : "s");
  text += group_line(plan);
  text += '\n' + needs_table(costs);
  if (plan.ranks() > 1) {
    text += '\n' + traffic_table(costs);
  }
  text += tensors ? '\n' + shard_table(plan) : "";
  text += '\n' + collective_table(plan, costs.front());
  return text;
}

std::string needs_report(const RunPlan& run) {
  return needs_table(
      {{.name = "this run", .needs = needs_of(run, engine::largest_phase(run.engine))}});
}

}  // namespace train::cli
