#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "actors/cluster/nodes/node_position.hpp"
#include "actors/head/run_plan.hpp"
#include "actors/messages/cluster_messages.hpp"
#include "actors/train/memory/memory_restore.hpp"
#include "base/result.hpp"
#include "checkpoint/memory/memory_snapshots.hpp"

namespace train::actors {

/// Steps as NodeSteps has them.
using HeldSteps = std::vector<std::int64_t>;

/// The newest step up to `reported` that the ranks of each node have, on that node or on the next
/// one; none: there is none. `nodes`: all of them, in order. Pure.
[[nodiscard]] std::optional<std::int64_t> newest_common(std::span<const NodeSteps> nodes,
                                                        std::int64_t reported);

/// Whether `steps` has `step`.
[[nodiscard]] bool has_step(const HeldSteps& steps, std::int64_t step);

/// The snapshots in memory of this node's ranks, from generation to generation. Held by the
/// launcher of each node; while ranks run only they write. The head says which one all resume from.
class NodeMemory {
 public:
  /// Makes room for the ranks of `plan`, if the run keeps snapshots and there is none yet, and for
  /// those of the node before if this is its buddy. What the ranks resume from stays readable.
  /// `others`: other nodes take part than had it, so what is in the room now is not what belongs
  /// there, even if ranks have the same numbers. Errors (user): too little memory; names the key.
  [[nodiscard]] Status make_room(const RunPlan& plan, const NodePosition& position,
                                 bool others = false);

  /// The steps of which all ranks are whole here. Compares all bytes with their digests, once: a
  /// snapshot that is damaged is logged and given up, so that nothing decided later on what is
  /// sealed can mean it. REQUIRES: no rank runs.
  [[nodiscard]] NodeSteps held();
  /// The same of this node's own ranks alone, before others' snapshots are put in their stead.
  void give_up_damaged();
  /// On the head, after the end of a generation: where the next can go on, the newest_common() step
  /// of this node and those `elsewhere`, or else NodeSteps::earlier if whoever then had something
  /// still has it; other snapshots are given up. REQUIRES: no rank runs.
  [[nodiscard]] std::optional<std::int64_t> look_back(std::int64_t reported,
                                                      std::span<const NodeSteps> elsewhere = {});
  /// Other snapshots than of `step` are given up, so that there is room for those that are missing.
  /// REQUIRES: no rank runs.
  void keep_only(std::optional<std::int64_t> step);
  /// On the head, after look_back(): every node has its own ranks' snapshots again.
  void returned_to_owners();
  /// On the head, after look_back(): the nodes that take part `were` those and `are` these now, and
  /// have their numbers by that.
  void renumber_holders(std::span<const std::int64_t> were, std::span<const std::int64_t> are);
  /// On another node: the ranks resume from `step`, other snapshots are given up; none: all are.
  /// `earlier`: from that of held().earlier, if this node has it. REQUIRES: no rank runs.
  void resume_from(std::optional<std::int64_t> step, bool earlier = false);
  /// Once the ranks have written what they resume from to current(), as they do before they train,
  /// and this node keeps it for the node before, before() is given up. Cheap.
  void finalize();

  /// What look_back() found, if it is not forgotten.
  [[nodiscard]] std::optional<MemoryStart> start() const;
  /// Where the ranks write; none: the run keeps no snapshots in memory.
  [[nodiscard]] SharedSnapshots current() const {
    return rooms_.empty() ? nullptr : rooms_.front();
  }
  /// The room for snapshots of the node before; none: this node is nobody's buddy.
  [[nodiscard]] SharedSnapshots buddy() const {
    return rooms_.size() < 2 ? nullptr : rooms_.back();
  }
  /// Of the ranks to resume from, if their numbers were others: of this node, and of the one
  /// before.
  [[nodiscard]] const std::vector<SharedSnapshots>& before() const { return before_; }

 private:
  [[nodiscard]] std::int64_t earlier_step() const;

  std::vector<SharedSnapshots> rooms_;  // current(), and then buddy()
  std::vector<SharedSnapshots> before_;
  std::optional<MemoryOrigin> origin_;
};

}  // namespace train::actors
