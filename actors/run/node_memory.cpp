#include "actors/run/node_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "actors/run/respawns.hpp"
#include "checkpoint/row_map.hpp"
#include "engine/base/check.hpp"
#include "engine/host_state.hpp"
#include "engine/optimizer/registry.hpp"

namespace train::actors {
namespace {

using checkpoint::MemorySnapshots;

HeldSteps steps_of(const SharedSnapshots& snapshots) {
  return snapshots ? snapshots->whole_steps() : HeldSteps();
}

bool has_buddies(const RunPlan& plan) {
  return plan.config.parallel.nodes > 1 && plan.config.recovery.buddy_snapshots;
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

bool keeps_in_memory(const RunPlan& plan) {
  const configs::RunConfig& config = plan.config;
  if (config.recovery.snapshot_interval_steps == 0 || !can_respawn(config)) {
    return false;
  }
  const auto shards = engine::plan_of(plan.engine);
  TRAIN_CHECK(shards.ok(), "{}", shards.error().message);  // plan_run() has made it before
  for (NodePlace place{.nodes = config.parallel.nodes}; place.node < place.nodes; ++place.node) {
    const auto [first, end] = place.ranks(shards->ranks());
    if (!engine::node_is_complete(*shards, {first, end})) {
      return false;
    }
  }
  return true;
}

std::int64_t memory_slots(const RunPlan& plan) {
  const std::int64_t places = has_buddies(plan) ? 2 : 1;
  return keeps_in_memory(plan) ? places * MemorySnapshots::kSlots : 0;
}

engine::RankSpan ranks_of(const MemorySnapshots::Layout& layout) {
  return {.first = layout.first_rank,
          .end = layout.first_rank + static_cast<std::int64_t>(layout.shard_bytes.size())};
}

MemorySnapshots::Layout memory_layout(const engine::RankEngine::Options& options,
                                      const NodePlace& place) {
  const auto plan = engine::plan_of(options);
  TRAIN_CHECK(plan.ok(), "{}", plan.error().message);  // plan_run() has made it before
  const auto optimizer = engine::make_optimizer(options.optimizer, options.total_steps);
  const auto [first, end] = place.ranks(plan->ranks());
  MemorySnapshots::Layout layout{.ranks = plan->ranks(),
                                 .plan_digest = plan->digest(),
                                 .first_rank = first,
                                 .shard_bytes = {}};
  for (std::int64_t rank = first; rank < end; ++rank) {
    layout.shard_bytes.push_back(engine::node_bytes(*plan, *optimizer, rank, {first, end}));
  }
  return layout;
}

Status NodeMemory::make_room(const RunPlan& plan, const NodePlace& place) {
  const bool keeps = keeps_in_memory(plan);  // else the one rank left is in this process
  const auto layout =
      keeps ? memory_layout(plan.engine, place) : checkpoint::MemorySnapshots::Layout();
  if (keeps && now_ && now_->layout().plan_digest == layout.plan_digest) {
    return {};
  }
  if (step_ && !before_) {
    before_ = std::move(now_);
  }
  now_.reset();  // gives its memory back before more is taken
  buddy_.reset();
  if (!keeps) {
    return {};
  }
  auto made = make_snapshots(
      layout, "recovery.snapshot_interval_steps = 0 to recover from checkpoints alone");
  if (!made) {
    return made.error();
  }
  now_ = std::move(made).value();
  if (!has_buddies(plan)) {
    return {};
  }
  NodePlace before = place;
  before.node = (place.node + place.nodes - 1) % place.nodes;
  made = make_snapshots(memory_layout(plan.engine, before),
                        "recovery.buddy_snapshots = false to keep those of this node alone");
  if (!made) {
    return made.error();
  }
  buddy_ = std::move(made).value();
  return {};
}

NodeSteps NodeMemory::held() const { return {.own = steps_of(now_), .buddy = steps_of(buddy_)}; }

void NodeMemory::keep_only(std::optional<std::int64_t> step) {
  for (const SharedSnapshots& snapshots : {now_, buddy_}) {
    if (snapshots) {
      snapshots->keep_only(step);
    }
  }
}

void NodeMemory::go_on_from(std::optional<std::int64_t> step) {
  step_ = now_ ? step : std::nullopt;
  keep_only(step_);
}

std::optional<std::int64_t> NodeMemory::look_back(std::int64_t reported,
                                                  std::span<const NodeSteps> elsewhere) {
  std::vector<NodeSteps> nodes = {held()};
  nodes.insert(nodes.end(), elsewhere.begin(), elsewhere.end());
  step_ = newest_common(nodes, reported);
  keep_only(step_);
  if (step_) {
    before_.reset();
  } else if (const NodeSteps before{.own = steps_of(before_), .buddy = {}};
             (step_ = newest_common({&before, 1}, reported)).has_value()) {
    before_->keep_only(step_);
  } else {
    before_.reset();
  }
  return step_;
}

void NodeMemory::forget() {
  step_.reset();
  before_.reset();
  keep_only(std::nullopt);
}

std::optional<MemoryStart> NodeMemory::start() const {
  return step_ ? std::optional(MemoryStart{before_ ? before_ : now_, *step_}) : std::nullopt;
}

Status restore_from_memory(const MemoryStart& start, engine::RankEngine& engine) {
  const MemorySnapshots::Layout& layout = start.snapshots->layout();
  engine::RankEngine::Options options = engine.options();
  options.parallel.ranks = layout.ranks;
  const auto plan = engine::plan_of(options);
  const std::string source = fmt::format("the snapshot in memory of step {}", start.step);
  if (!plan || plan->digest() != layout.plan_digest) {
    return failure(source + " is of another plan");
  }
  std::vector<engine::StateView> held;
  const engine::RankSpan node = ranks_of(layout);
  for (std::int64_t rank = node.first; rank < node.end; ++rank) {
    const auto bytes = start.snapshots->bytes_of(rank, start.step);
    std::size_t at = 0;
    for (engine::StateView& view : engine::node_rows(*plan, engine.optimizer(), rank, node)) {
      if (view.size_bytes > bytes.size() - at) {
        return failure(fmt::format("{} has no rows of rank {}", source, rank));
      }
      view.data = bytes.data() + at;
      at += view.size_bytes;
      held.push_back(std::move(view));
    }
  }
  engine::HostState state(engine.device(), engine.state_views());
  TRAIN_RETURN_IF_ERROR(checkpoint::restore_held(source, held, state.views()));
  state.store();
  engine.settle_restored();
  return {};
}

}  // namespace train::actors
