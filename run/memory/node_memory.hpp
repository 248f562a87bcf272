#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/memory/memory_snapshots.hpp"
#include "run/memory/memory_restore.hpp"
#include "run/memory/snapshot_places.hpp"
#include "run/plan/node_position.hpp"
#include "run/plan/run_plan.hpp"

namespace train::run {

/// Steps as in NodeSteps.
using HeldSteps = std::vector<std::int64_t>;

/// Newest step up to `reported` that the ranks of each node have, on that node or the next;
/// nullopt: none. `nodes`: all of them, in order. Pure.
[[nodiscard]] std::optional<std::int64_t> newest_common(std::span<const NodeSteps> nodes,
                                                        std::int64_t reported);

/// True if `steps` contains `step`.
[[nodiscard]] bool has_step(const HeldSteps& steps, std::int64_t step);

/// Snapshots of this node's ranks across generations. Held by the launcher of each node; while
/// ranks run only they write. The head decides from which one all resume.
class NodeMemory {
 public:
  /// Allocates room for the ranks of `plan`, if the run keeps snapshots and there is none yet, and
  /// for those of the previous node if this is its buddy. The snapshots to resume from stay
  /// readable. `others`: other nodes take part than before, so the present snapshots do not belong
  /// there, even if rank numbers agree. Errors (user): too little memory; names the key.
  [[nodiscard]] Status make_room(const RunPlan& plan, const NodePosition& position,
                                 bool others = false);

  /// Steps of which all ranks are complete here. Verifies all bytes, once: a damaged snapshot is
  /// logged and discarded, so that later decisions on sealed snapshots are safe. REQUIRES: no rank
  /// runs.
  [[nodiscard]] NodeSteps held();
  /// Verifies only this node's own ranks, before other snapshots replace theirs.
  void discard_damaged();
  /// On the head, after a generation: step to resume from, the newest_common() step of this node
  /// and those `elsewhere`, or otherwise NodeSteps::earlier if its holders still have it; other
  /// snapshots are discarded. REQUIRES: no rank runs.
  [[nodiscard]] std::optional<std::int64_t> find_snapshot(
      std::int64_t reported, std::span<const NodeSteps> elsewhere = {});
  /// Discards snapshots of other steps, to make room for missing ones. REQUIRES: no rank runs.
  void keep_only(std::optional<std::int64_t> step);
  /// On the head, after find_snapshot(): records that every node has its own ranks' snapshots
  /// again.
  void snapshots_returned();
  /// On the head, after find_snapshot(): updates positions when the nodes that take part change
  /// from `were` to `are`.
  void renumber_holders(std::span<const std::int64_t> were, std::span<const std::int64_t> are);
  /// On another node: keeps only the snapshots of `step`, to resume from; nullopt: discards all.
  /// `earlier`: the step is that of held().earlier, if this node has it. REQUIRES: no rank runs.
  void resume_from(std::optional<std::int64_t> step, bool earlier = false);
  /// Discards before() once the ranks have written the state they resumed from to current(), as
  /// they do before training, and this node holds it for the previous node. Cheap.
  void finalize();

  /// Result of find_snapshot(), unless discarded.
  [[nodiscard]] std::optional<MemoryStart> start() const;
  /// Memory that the ranks write to; null: the run keeps no snapshots.
  [[nodiscard]] SharedSnapshots current() const {
    return rooms_.empty() ? nullptr : rooms_.front();
  }
  /// Memory for snapshots of the previous node; null: this node is no buddy.
  [[nodiscard]] SharedSnapshots buddy() const {
    return rooms_.size() < 2 ? nullptr : rooms_.back();
  }
  /// Memory of the ranks to resume from, if positions have changed: of this node, and of the
  /// previous one.
  [[nodiscard]] const std::vector<SharedSnapshots>& before() const { return before_; }

 private:
  [[nodiscard]] std::int64_t earlier_step() const;

  std::vector<SharedSnapshots> rooms_;  // Holds current(), then buddy().
  std::vector<SharedSnapshots> before_;
  std::optional<MemoryOrigin> origin_;
};

}  // namespace train::run
