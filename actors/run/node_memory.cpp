#include "actors/run/node_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "actors/run/respawns.hpp"
#include "checkpoint/row_map.hpp"
#include "engine/base/check.hpp"
#include "engine/optimizer/registry.hpp"
#include "engine/shard_rows.hpp"

namespace train::actors {
namespace {

using checkpoint::MemorySnapshots;

/// The newest of the snapshots that the report of the run has come to.
std::optional<std::int64_t> newest(const SharedSnapshots& snapshots, std::int64_t reported) {
  if (!snapshots) {
    return std::nullopt;
  }
  const auto steps = snapshots->whole_steps();
  const auto found = std::find_if(steps.begin(), steps.end(),
                                  [reported](std::int64_t step) { return step <= reported; });
  return found == steps.end() ? std::nullopt : std::optional(*found);
}

}  // namespace

bool keeps_in_memory(const configs::RunConfig& config) {
  return config.recovery.snapshot_interval_steps > 0 && config.parallel.nodes == 1 &&
         can_respawn(config);
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
    layout.shard_bytes.push_back(engine::shard_bytes(*plan, *optimizer, rank));
  }
  return layout;
}

Status NodeMemory::make_room(const RunPlan& plan, const NodePlace& place) {
  const bool keeps = keeps_in_memory(plan.config);  // else the one rank left is in this process
  const auto layout =
      keeps ? memory_layout(plan.engine, place) : checkpoint::MemorySnapshots::Layout();
  if (keeps && now_ && now_->layout().plan_digest == layout.plan_digest) {
    return {};
  }
  if (step_ && !before_) {
    before_ = std::move(now_);
  }
  now_.reset();  // gives its memory back before more is taken
  if (!keeps) {
    return {};
  }
  auto made = MemorySnapshots::create(layout);
  if (!made) {
    return user_error(
        fmt::format("no room for two snapshots of each rank's state in memory: {}; set "
                    "recovery.snapshot_interval_steps = 0 to recover from checkpoints alone",
                    made.error().message));
  }
  now_ = std::make_shared<const MemorySnapshots>(std::move(made).value());
  return {};
}

std::optional<std::int64_t> NodeMemory::look_back(std::int64_t reported) {
  step_ = newest(now_, reported);
  if (now_) {
    now_->keep_only(step_);
  }
  if (step_) {
    before_.reset();
  } else if ((step_ = newest(before_, reported)).has_value()) {
    before_->keep_only(step_);
  } else {
    before_.reset();
  }
  return step_;
}

void NodeMemory::forget() {
  step_.reset();
  before_.reset();
  if (now_) {
    now_->keep_only(std::nullopt);
  }
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
  for (std::int64_t rank = 0; rank < layout.ranks; ++rank) {
    const auto bytes = start.snapshots->has(rank) ? start.snapshots->bytes_of(rank, start.step)
                                                  : std::span<std::byte>();
    std::size_t at = 0;
    for (engine::StateView& view : engine::shard_rows(*plan, engine.optimizer(), rank)) {
      if (view.size_bytes > bytes.size() - at) {
        return failure(fmt::format("{} has no rows of rank {}", source, rank));
      }
      view.data = bytes.data() + at;
      at += view.size_bytes;
      held.push_back(std::move(view));
    }
  }
  auto views = engine.state_views();
  TRAIN_RETURN_IF_ERROR(checkpoint::restore_held(source, held, views));
  engine.settle_restored();
  return {};
}

}  // namespace train::actors
