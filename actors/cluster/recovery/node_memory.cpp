#include "actors/cluster/recovery/node_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "base/check.hpp"
#include "base/log.hpp"
#include "engine/optimizer/registry.hpp"

namespace train::actors {
namespace {

using checkpoint::MemorySnapshots;

/// Of snapshots that have just been looked through.
HeldSteps steps_of(const SharedSnapshots& snapshots) {
  return snapshots ? snapshots->sealed_steps() : HeldSteps();
}

/// Gives up what is damaged, and says so; whether `step` was among it.
bool give_up(const SharedSnapshots& snapshots, std::optional<std::int64_t> step = {}) {
  bool found = false;
  for (const MemorySnapshots::Damaged& damaged :
       snapshots ? snapshots->give_up_damaged() : std::vector<MemorySnapshots::Damaged>()) {
    log_warning(
        fmt::format("memory_snapshot_damaged rank={} step={}: its bytes do not match their digest; "
                    "another copy is taken if there is one, or else an older state",
                    damaged.rank, damaged.step));
    found = found || damaged.step == step;
  }
  return found;
}

/// Of `ranks` ranks: by node which one has their snapshots of `step`, it or the next, and which one
/// as well. REQUIRES: one has.
MemoryOrigin origin_of(std::span<const NodeSteps> nodes, std::int64_t step, std::int64_t ranks) {
  MemoryOrigin origin{.step = step, .ranks = ranks, .holders = {}};
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    const std::size_t buddy = (node + 1) % nodes.size();
    const bool own = has_step(nodes[node].own, step);
    const bool both = own && buddy != node && has_step(nodes[buddy].buddy, step);
    origin.holders.push_back(static_cast<std::int32_t>(own ? node : buddy));
    origin.spares.push_back(both ? static_cast<std::int32_t>(buddy) : -1);
  }
  return origin;
}

Result<SharedSnapshots> make_snapshots(const MemorySnapshots::Layout& layout, const char* mend) {
  auto made = MemorySnapshots::create(layout);
  if (!made) {
    return user_error(
        fmt::format("no room for two snapshots of each rank's state in memory: {}; set {}",
                    made.error().message, mend));
  }
  return std::make_shared<const MemorySnapshots>(std::move(made).value());
}

}  // namespace

bool has_step(const HeldSteps& steps, std::int64_t step) {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

std::optional<std::int64_t> newest_common(std::span<const NodeSteps> nodes, std::int64_t reported) {
  std::set<std::int64_t, std::greater<>> steps;  // of node 0's ranks: others are of no use
  if (!nodes.empty()) {
    const HeldSteps& buddy = nodes[1 % nodes.size()].buddy;
    steps.insert(nodes.front().own.begin(), nodes.front().own.end());
    steps.insert(buddy.begin(), buddy.end());
  }
  for (const std::int64_t step : steps) {
    bool everywhere = step <= reported;
    for (std::size_t node = 0; everywhere && node < nodes.size(); ++node) {
      everywhere =
          has_step(nodes[node].own, step) || has_step(nodes[(node + 1) % nodes.size()].buddy, step);
    }
    if (everywhere) {
      return step;
    }
  }
  return std::nullopt;
}

engine::RankSpan ranks_of(const MemorySnapshots::Layout& layout) {
  return {.first = layout.first_rank,
          .end = layout.first_rank + static_cast<std::int64_t>(layout.shard_bytes.size())};
}

MemorySnapshots::Layout memory_layout(const engine::RankOptions& options,
                                      const NodePosition& position) {
  const auto plan = engine::plan_of(options);
  TRAIN_CHECK(plan.ok(), "{}", plan.error().message);  // plan_run() has made it before
  const auto optimizer = engine::optimizer_of(options);
  const auto [first, end] = position.ranks(plan->ranks());
  MemorySnapshots::Layout layout{.ranks = plan->ranks(),
                                 .plan_digest = plan->digest(),
                                 .first_rank = first,
                                 .shard_bytes = {}};
  for (std::int64_t rank = first; rank < end; ++rank) {
    layout.shard_bytes.push_back(engine::node_bytes(*plan, *optimizer, rank, {first, end}));
  }
  return layout;
}

Status NodeMemory::make_room(const RunPlan& plan, const NodePosition& position, bool others) {
  const bool keeps = keeps_in_memory(plan);  // else the one rank left is in this process
  const auto layout =
      keeps ? memory_layout(plan.engine, position) : checkpoint::MemorySnapshots::Layout();
  if (keeps && now_ && !(others && origin_) && now_->layout() == layout) {
    return {};
  }
  if (origin_ && before_.empty()) {
    for (const SharedSnapshots& snapshots : {now_, buddy_}) {
      if (snapshots) {
        before_.push_back(snapshots);
      }
    }
  }
  now_.reset();  // gives its memory back before more is taken
  buddy_.reset();
  if (!keeps) {
    return {};
  }
  auto made = make_snapshots(
      layout, "recovery.snapshot_interval_steps = 0 to recover from checkpoints alone");
  TRAIN_RETURN_IF_ERROR(made);
  now_ = std::move(made).value();
  if (!has_buddies(plan)) {
    return {};
  }
  NodePosition before = position;
  before.node = (position.node + position.nodes - 1) % position.nodes;
  made = make_snapshots(memory_layout(plan.engine, before),
                        "recovery.buddy_snapshots = false to keep those of this node alone");
  TRAIN_RETURN_IF_ERROR(made);
  buddy_ = std::move(made).value();
  return {};
}

void NodeMemory::give_up_damaged() { give_up(now_); }

NodeSteps NodeMemory::held() {
  give_up_damaged();
  give_up(buddy_);
  bool earlier_damaged = false;
  for (const SharedSnapshots& snapshots : before_) {
    earlier_damaged = give_up(snapshots, earlier_step()) || earlier_damaged;
  }
  if (earlier_damaged) {
    before_.clear();  // what the holders then had is not all here any more
  }
  return {.own = steps_of(now_), .buddy = steps_of(buddy_), .earlier = earlier_step()};
}

std::int64_t NodeMemory::earlier_step() const {
  return origin_ && !before_.empty() ? origin_->step : -1;
}

void NodeMemory::keep_only(std::optional<std::int64_t> step) {
  for (const SharedSnapshots& snapshots : {now_, buddy_}) {
    if (snapshots) {
      snapshots->keep_only(step);
    }
  }
}

void NodeMemory::resume_from(std::optional<std::int64_t> step, bool earlier) {
  if (earlier && step && earlier_step() == *step) {
    keep_only(std::nullopt);
    return;
  }
  before_.clear();
  origin_.reset();
  if (now_ && step && !earlier) {
    origin_ = MemoryOrigin{.step = *step, .ranks = now_->layout().ranks, .holders = {}};
  }
  keep_only(now_ && !earlier ? step : std::nullopt);
}

std::optional<std::int64_t> NodeMemory::look_back(std::int64_t reported,
                                                  std::span<const NodeSteps> elsewhere) {
  std::vector<NodeSteps> nodes = {held()};
  nodes.insert(nodes.end(), elsewhere.begin(), elsewhere.end());
  const auto step = newest_common(nodes, reported);
  keep_only(step);
  if (step && now_) {
    before_.clear();
    origin_ = origin_of(nodes, *step, now_->layout().ranks);
    return step;
  }
  // The generation with other numbers ended before its ranks had written all that they resume from.
  const auto still = [&](std::int32_t node) {
    return node >= 0 && nodes[static_cast<std::size_t>(node)].earlier == origin_->step;
  };
  bool whole = origin_ && !before_.empty() && origin_->step <= reported;
  for (std::size_t node = 0; whole && node < origin_->holders.size(); ++node) {
    if (!still(origin_->holders[node])) {
      origin_->holders[node] = std::exchange(origin_->spares[node], -1);
      whole = still(origin_->holders[node]);
    }
  }
  if (!whole) {
    forget();
    return std::nullopt;
  }
  return origin_->step;
}

void NodeMemory::returned_to_owners() {
  if (origin_) {
    for (std::size_t node = 0; node < origin_->holders.size(); ++node) {
      const auto own = static_cast<std::int32_t>(node);
      const std::int32_t before = std::exchange(origin_->holders[node], own);
      origin_->spares[node] = before == own ? origin_->spares[node] : before;
    }
  }
}

void NodeMemory::renumber_holders(std::span<const std::int32_t> now) {
  if (origin_) {
    for (auto* nodes : {&origin_->holders, &origin_->spares}) {
      for (std::int32_t& node : *nodes) {
        node = node < 0 ? node : now[static_cast<std::size_t>(node)];
      }
    }
  }
}

void NodeMemory::forget() {
  origin_.reset();
  before_.clear();
  keep_only(std::nullopt);
}

void NodeMemory::finalize() {
  if (before_.empty() || !now_ || !origin_) {
    return;
  }
  const auto has = [this](const SharedSnapshots& snapshots) {
    const HeldSteps steps = snapshots->sealed_steps();
    return !steps.empty() && steps.front() >= origin_->step;
  };
  // A buddy that cannot be reached does not keep this node's memory taken for ever.
  const bool has_gone_on = has(now_) && !now_->has_sealed(origin_->step);
  if (has_gone_on || (has(now_) && (!buddy_ || has(buddy_)))) {
    before_.clear();
  }
}

std::optional<MemoryStart> NodeMemory::start() const {
  if (!origin_) {
    return std::nullopt;
  }
  MemoryStart start{.origin = *origin_, .here = before_};
  if (before_.empty() && now_) {
    start.here.push_back(now_);
  }
  return start;
}

}  // namespace train::actors
