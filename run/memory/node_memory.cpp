#include "run/memory/node_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text/log.hpp"
#include "run/memory/memory_layout.hpp"

namespace train::run {
namespace {

using checkpoint::MemorySnapshots;

/// Steps of snapshots that were just verified.
HeldSteps steps_of(const SharedSnapshots& snapshots) {
  return snapshots ? snapshots->sealed_steps() : HeldSteps();
}

/// Discards damaged snapshots, and logs them; true if `step` was among them.
bool give_up(const std::vector<SharedSnapshots>& rooms, std::optional<std::int64_t> step = {}) {
  bool found = false;
  for (const SharedSnapshots& snapshots : rooms) {
    for (const MemorySnapshots::Damaged& damaged : snapshots->discard_damaged()) {
      log_warning(fmt::format(
          "memory_snapshot_damaged rank={} step={}: its bytes do not match their digest; another "
          "copy is taken if there is one, or else an older state",
          damaged.rank, damaged.step));
      found = found || damaged.step == step;
    }
  }
  return found;
}

/// For the nodes of `ranks` ranks: which node has their snapshots of `step`, it or the next, and
/// which other one. REQUIRES: one has.
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

}  // namespace

bool has_step(const HeldSteps& steps, std::int64_t step) {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

std::optional<std::int64_t> newest_common(std::span<const NodeSteps> nodes, std::int64_t reported) {
  std::optional<std::int64_t> newest;
  if (nodes.empty()) {
    return newest;
  }
  HeldSteps steps = nodes.front().own;  // Steps of node 0's ranks: others are not needed.
  const HeldSteps& elsewhere = nodes[1 % nodes.size()].buddy;
  steps.insert(steps.end(), elsewhere.begin(), elsewhere.end());
  for (const std::int64_t step : steps) {
    bool everywhere = step <= reported && step > newest.value_or(-1);
    for (std::size_t node = 0; everywhere && node < nodes.size(); ++node) {
      everywhere =
          has_step(nodes[node].own, step) || has_step(nodes[(node + 1) % nodes.size()].buddy, step);
    }
    newest = everywhere ? std::optional(step) : newest;
  }
  return newest;
}

Status NodeMemory::make_room(const RunPlan& plan, const NodePosition& position, bool others) {
  std::vector<MemorySnapshots::Layout> layouts;
  if (keeps_in_memory(plan)) {  // Otherwise the only rank left is in this process.
    layouts.push_back(memory_layout(plan.engine, position));
  }
  if (has_buddies(plan)) {
    NodePosition before = position;
    before.node = (position.node + position.nodes - 1) % position.nodes;
    layouts.push_back(memory_layout(plan.engine, before));
  }
  if (!layouts.empty() && current() && !(others && origin_) &&
      current()->layout() == layouts.front()) {
    return {};
  }
  if (origin_ && before_.empty()) {
    before_ = rooms_;
  }
  rooms_.clear();  // Releases its memory before more is allocated.
  for (const MemorySnapshots::Layout& layout : layouts) {
    auto made = MemorySnapshots::create(layout);
    if (!made) {
      return user_error(fmt::format(
          "no room for two snapshots of each rank's state in memory: {}; set {}",
          made.error().message,
          rooms_.empty() ? "recovery.snapshot_interval_steps = 0 to recover from checkpoints alone"
                         : "recovery.buddy_snapshots = false to keep those of this node alone"));
    }
    rooms_.push_back(std::make_shared<const MemorySnapshots>(std::move(made).value()));
  }
  return {};
}

void NodeMemory::discard_damaged() {
  if (current()) {
    give_up({current()});
  }
}

NodeSteps NodeMemory::held() {
  give_up(rooms_);
  if (give_up(before_, earlier_step())) {
    before_.clear();  // The earlier holders' snapshots are no longer complete.
  }
  return {.own = steps_of(current()), .buddy = steps_of(buddy()), .earlier = earlier_step()};
}

std::int64_t NodeMemory::earlier_step() const {
  return origin_ && !before_.empty() ? origin_->step : -1;
}

void NodeMemory::keep_only(std::optional<std::int64_t> step) {
  for (const SharedSnapshots& snapshots : rooms_) {
    snapshots->keep_only(step);
  }
}

void NodeMemory::resume_from(std::optional<std::int64_t> step, bool earlier) {
  if (earlier && step && earlier_step() == *step) {
    keep_only(std::nullopt);
    return;
  }
  before_.clear();
  origin_.reset();
  if (current() && step && !earlier) {
    origin_ = MemoryOrigin{.step = *step, .ranks = current()->layout().ranks, .holders = {}};
  }
  keep_only(earlier ? std::nullopt : step);
}

std::optional<std::int64_t> NodeMemory::find_snapshot(std::int64_t reported,
                                                      std::span<const NodeSteps> elsewhere) {
  std::vector<NodeSteps> nodes = {held()};
  nodes.insert(nodes.end(), elsewhere.begin(), elsewhere.end());
  const auto step = newest_common(nodes, reported);
  keep_only(step);
  if (step && current()) {
    before_.clear();
    origin_ = origin_of(nodes, *step, current()->layout().ranks);
    return step;
  }
  // The generation with other positions ended before its ranks had written the state they resume
  // from.
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
    resume_from(std::nullopt);
    return std::nullopt;
  }
  return origin_->step;
}

void NodeMemory::snapshots_returned() {
  if (origin_) {
    for (std::size_t node = 0; node < origin_->holders.size(); ++node) {
      const auto own = static_cast<std::int32_t>(node);
      const std::int32_t before = std::exchange(origin_->holders[node], own);
      origin_->spares[node] = before == own ? origin_->spares[node] : before;
    }
  }
}

void NodeMemory::renumber_holders(std::span<const std::int64_t> were,
                                  std::span<const std::int64_t> are) {
  if (!origin_) {
    return;
  }
  for (auto* nodes : {&origin_->holders, &origin_->spares}) {
    for (std::int32_t& node : *nodes) {
      const auto found =
          node < 0 ? are.end()
                   : std::find(are.begin(), are.end(), were[static_cast<std::size_t>(node)]);
      node = found == are.end() ? -1 : static_cast<std::int32_t>(found - are.begin());
    }
  }
}

void NodeMemory::finalize() {
  if (before_.empty() || rooms_.empty() || !origin_) {
    return;
  }
  const auto has = [this](const SharedSnapshots& snapshots) {
    const HeldSteps steps = snapshots->sealed_steps();
    return !steps.empty() && steps.front() >= origin_->step;
  };
  // An unreachable buddy must not hold this node's memory for ever.
  const bool has_gone_on = has(rooms_.front()) && !rooms_.front()->has_sealed(origin_->step);
  if (has_gone_on || std::all_of(rooms_.begin(), rooms_.end(), has)) {
    before_.clear();
  }
}

std::optional<MemoryStart> NodeMemory::start() const {
  if (!origin_) {
    return std::nullopt;
  }
  MemoryStart start{.origin = *origin_, .here = before_};
  if (before_.empty() && current()) {
    start.here.push_back(current());
  }
  return start;
}

}  // namespace train::run
