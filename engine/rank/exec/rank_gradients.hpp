#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/command.hpp"
#include "engine/lanes/lane_tree.hpp"
#include "engine/model/model.hpp"
#include "engine/rank/exec/passes/pass_gradients.hpp"
#include "engine/rank/exec/totals/step_totals.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "kernels/device/buffer.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

/// The gradient of each group on its way through a step: of one lane, summed over this rank's lanes
/// of a sync, summed over all lanes for the rows of the reduce part, and as the optimizer reads it.
///
/// Threading: one owner per group; calls that take a stream only enqueue. A gradient buffer's
/// reservation may begin when the pack() of its group's reduce has run. Ownership: owns its memory
/// but for what lies where the model's activations did; borrows plan, model and totals.
class RankGradients {
 public:
  /// `state`: of the beginning.
  RankGradients(const RankPlan& rank, const Model& model, const RankState& state,
                const StepTotals& totals);
  RankGradients(const RankGradients&) = delete;
  RankGradients& operator=(const RankGradients&) = delete;

  /// Flat memory that receives the gradient of a lane of the group; nullptr: the whole group is
  /// frozen. `gradient buffer`: UnitBuffers::gradient_buffer.
  [[nodiscard]] float* of_lane(std::size_t group, const LaneWork& work,
                               std::int32_t gradient_buffer) const;
  /// A training lane's gradient of the whole group is complete there: enqueues its sum with the
  /// lanes before, where this rank has a tree of its own.
  void lane_complete(kernels::Stream& stream, std::size_t group, const LaneWork& work,
                     float* gradient);
  /// A sync ends: the sums over this rank's lanes of it, left to right, which are forgotten here.
  [[nodiscard]] std::vector<std::pair<LaneRange, const float*>> take_sums(std::size_t group);
  /// Over all lanes, the rows of the reduce part; nullptr: this rank has none, or is alone.
  [[nodiscard]] LaneTree* owner_tree(std::size_t group);

  /// The finished gradient of the reduce part, packed; nullptr if it has no rows.
  [[nodiscard]] float* reduced(std::size_t group) const;
  /// The gradient of a row of the state part as the optimizer reads it.
  [[nodiscard]] float* for_optimizer(std::size_t group, const Segment& segment) const;

  /// After the group's last reduce of the command: enqueues the norms of this rank's rows, and in a
  /// step of several passes what becomes of the gradient (PassGradients). `work`: pass and step
  /// count.
  void finish(kernels::Stream& stream, std::size_t group, const LaneWork& work = {});
  void add_allocated(MemoryPlan& memory) const;

 private:
  struct GroupGradient {
    std::optional<LaneTree> own;    // Over this rank's lanes of a sync, all rows.
    std::optional<LaneTree> owner;  // Over all lanes, rows of the reduce part.
    kernels::Buffer broadcast;      // The state part, once its replicas have exchanged it.
    // If there is no own tree: a lane's gradient, which stays in a shared gradient buffer until it
    // is packed.
    LaneRange buffered_lane;
    const float* gradient_buffer = nullptr;
  };

  void make_groups(const Model& model);
  const RankPlan* rank_;
  const StepTotals* totals_;
  std::vector<GroupGradient> groups_;
  std::vector<kernels::Buffer> gradient_buffers_;
  std::optional<PassGradients> passes_;  // For steps of several passes.
};

}  // namespace train::engine
