#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/lanes/lane_tree.hpp"
#include "engine/optimizer/optimizer_group.hpp"
#include "engine/rank/gradient_norm.hpp"
#include "engine/rank/group_state.hpp"
#include "engine/rank/host_device_buffer.hpp"
#include "engine/rank/rank_engine.hpp"
#include "engine/rank/rank_engine_layout.hpp"

namespace train::engine {

/// What the host works out of a step's sums, and the gate that a kernel makes of that.
struct StepScalars {
  double squared_norm = 0.0;
  double cross_entropy = 0.0;
  double z_squared = 0.0;
  double reserved = 0.0;
  kernels::UpdateGate gate;
};

/// The gradient of one group on its way through a step.
struct GroupGradient {
  std::optional<LaneTree> own;    ///< Over this rank's lanes of a sync, all rows.
  std::optional<LaneTree> owner;  ///< Over all lanes, rows of the reduce part.
  kernels::Buffer spread;         ///< The state part, once its replicas have exchanged it.
  kernels::Buffer kept;           ///< reshard = N: rows of the weights, for the backward pass.
  // Without a tree of its own: a lane's gradient, which lies in a shared leaf until it is packed.
  LaneRange leaf_lane;
  const float* leaf = nullptr;
};

/// What a RankEngine is made of; its member functions are spread over rank_engine_*.cpp.
struct RankEngine::Parts {
  Parts(const kernels::KernelTable& kernels, const Options& options, const ShardPlan& plan);

  RankLayout layout;
  Model model;
  BufferSchedule train_schedule, eval_schedule, diagnose_schedule;
  std::vector<GroupState> states;
  std::vector<GroupGradient> gradients;
  std::vector<kernels::Buffer> gather_buffers, leaves;
  /// Transports move memory of the host, which is not what kernels work on: all that travels goes
  /// through copies. False on the CPU, and where they move the device's (parallel.transport
  /// "nccl").
  bool staged_on_host = false;
  std::array<std::array<MirroredBuffer, kStagingSlots>, kChannelCount> staging;
  /// The host's copies of what is sent from where it lies, by slot; none unless staged_on_host.
  std::array<std::array<kernels::Buffer, kStagingSlots>, kChannelCount> outgoing;
  kernels::Buffer sum_scratch;  // fp32 copy of a received bf16 sum.
  kernels::Buffer rounding;     // bf16 halves on the way from masters to compute weights.
  kernels::Buffer row_sums;
  kernels::Buffer optimizer_scratch;
  MirroredBuffer optimizer_sums;  // Row sums of one update's slice; empty: it makes none.
  std::array<std::vector<ExactSum>, 2> group_sums;  // Of its rows reported here: by ParameterGroup.
  MirroredBuffer tokens, targets;
  // Exchanged blocks of all ranks, one after the other: norms and loss sums; evaluation loss sums;
  // counts of NaN and Inf. The host's copies are whole, the device's hold this rank's block alone.
  MirroredBuffer step_sums, eval_sums, nonfinite;
  std::vector<std::int64_t> step_sums_at, eval_sums_at, lane_at;  // By lane.
  kernels::Buffer made_weights;           // Of the group that was computed last, where they are
  std::optional<std::size_t> made_group;  // made of its masters; none: they have changed since.
  NormTree norms;
  std::vector<double> unit_squares;
  MirroredBuffer scalars;
  OptimizerGroup decay, no_decay;
  std::optional<GradientSet> gradient_set;
  std::vector<std::vector<std::size_t>> frozen;  // By group: indices in the gradient set.

  /// The host's.
  [[nodiscard]] const StepScalars& results() const { return *scalars.host<StepScalars>(); }
  /// The device's, which kernels write; of training lanes.
  [[nodiscard]] kernels::LossSums* lane_sums(std::int64_t lane) const;
  /// The same lane's of the host.
  [[nodiscard]] const kernels::LossSums* host_lane_sums(std::int64_t lane) const;
  /// The finished gradient of the reduce part, packed; nullptr if it has no rows.
  [[nodiscard]] float* reduced(std::size_t group) const;
  /// The gradient of a row of the state part as the optimizer reads it.
  [[nodiscard]] float* optimizer_gradient(const ShardPlan& plan, std::size_t group,
                                          const Segment& segment) const;
  [[nodiscard]] const MirroredBuffer& staged(const CollectiveOp& op) const;
  [[nodiscard]] const kernels::Buffer& outgoing_of(const CollectiveOp& op) const;

 private:
  void make_gradients(const kernels::KernelTable& kernels, const ShardPlan& plan);
  void make_buffers(const kernels::KernelTable& kernels, const Options& options);
  void make_staging(const kernels::KernelTable& kernels);
  void make_blocks(const kernels::KernelTable& kernels, const ShardPlan& plan);
};

}  // namespace train::engine
