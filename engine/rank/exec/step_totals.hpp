#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/command.hpp"
#include "engine/host_state.hpp"
#include "engine/objective/pass.hpp"
#include "engine/objective/row_weighting.hpp"
#include "engine/optimizer/exact_sum.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "engine/sharding/collective_schedule.hpp"
#include "kernels/backend.hpp"
#include "kernels/device/stream.hpp"
#include "kernels/optimizer/update_guard.hpp"

namespace train::engine {

/// Results of a finished step. Means are over the targets of the global batch, in nats.
struct StepResult {
  double loss = 0.0;  ///< Cross-entropy + z-loss.
  double cross_entropy = 0.0;
  double grad_norm = 0.0;  ///< Before clipping.
  double lr = 0.0;
  bool nonfinite = false;               ///< A loss or norm was not finite; no weight was changed.
  std::vector<double> unit_grad_norms;  ///< One per unit, before clipping.
  /// Optimizer::row_sums() of the updated rows whose gradient this rank finishes; their sum over
  /// ranks covers the model (diagnose()). Empty in other steps and when non-finite.
  std::vector<ExactSum> optimizer_sums;
  /// Objective::metric_names() of the step; of a RowWeighting means over its items, NaN where there
  /// is none. Behind them block_metrics() of the model.
  std::vector<double> metrics = {};
};

/// Mean cross-entropy in nats (no z-loss), by weight, and accuracy over the targets of all
/// evaluation lanes; 0 without any. With Objective::weighting() the mean loss of items, and the
/// share of those that count as right.
struct EvaluationResult {
  double cross_entropy = 0.0;
  double accuracy = 0.0;
  double targets = 0.0;
  std::vector<double> metrics = {};  ///< As StepResult::metrics.
};

/// Origin of the first NaN or Inf, in the order of computation.
struct NonfiniteOrigin {
  bool found = false;
  std::int64_t lane = 0;
  std::size_t unit = 0;
  bool backward = false;
};

/// Enqueues the sums of squares of the part's rows, and from them one double per node of the
/// canonical trees over each parameter's rows: a row is never split, and a node depends on its rows
/// alone, not on the distribution of rows. `gradient`: packed as `part`; `row_sums`: scratch
/// for all rows of the part; `nodes`: of all segments, in their order. Returns the end of those.
double* sum_squares(const kernels::KernelTable& kernels, kernels::Stream& stream,
                    const ShardGroup& group, const Part& part, const float* gradient,
                    double* row_sums, double* nodes);

/// Finishes the trees over the nodes of all ranks: rows -> parameter -> unit -> model.
/// Host memory; a pure function of plan and layout decides what lies where.
class NormTree {
 public:
  /// `of_pass`: the tree covers norms of the last pass before its gradient is joined.
  NormTree(const ShardPlan& plan, const RankLayout& layout, bool of_pass = false);

  /// `values`: the exchanged blocks of all ranks (RankLayout::step_block). Writes the squared norm
  /// of each unit; returns that of all.
  double finish(const double* values, std::vector<double>& unit_squares) const;
  /// The squared norm of each parameter, of all units in their order; 0 of what is frozen.
  [[nodiscard]] std::vector<double> parameter_squares(const double* values) const;
  /// Index of the parameter of a group among all, and unit of the parameter at `index`.
  [[nodiscard]] std::size_t index_of(std::size_t group, std::size_t parameter) const {
    return index_of_[group][parameter];
  }
  [[nodiscard]] std::size_t unit_of(std::size_t index) const { return parameters_[index].unit; }
  /// First of the group's nodes in its rank's block.
  [[nodiscard]] std::int64_t first_node(std::size_t group) const { return first_node_[group]; }

 private:
  struct Node {
    LaneRange rows;
    std::int64_t at = 0;  // Index in `values`.
  };
  struct ParameterNodes {
    std::size_t unit = 0;
    std::int64_t rows = 0;
    std::vector<Node> nodes;  // From the first row to the last.
  };
  void collect(const ShardPlan& plan, const RankLayout& layout, bool of_pass);

  std::size_t units_;
  std::vector<std::int64_t> first_node_;
  std::vector<ParameterNodes> parameters_;          // Parameters of all units, in order.
  std::vector<std::vector<std::size_t>> index_of_;  // By group, in its order of parameters.
};

/// Totals of a step, an evaluation or a search: loss sums by lane, norms by node, counts of NaN
/// and Inf. Each rank writes its own block; once the blocks of all ranks are here, the same trees
/// over them give the same bits on every rank.
///
/// Threading: calls that take a stream only enqueue; "in stream order": call it from work on that
/// stream or after synchronising it. Ownership: owns its memory, borrows the plan.
class StepTotals {
 public:
  explicit StepTotals(const RankPlan& rank);

  /// Loss sums of a lane of this rank, in device memory.
  [[nodiscard]] kernels::LossSums* lane_sums(const LaneWork& work) const;
  /// Enqueues that the host sees the lane's sums, which are complete.
  void lane_summed(kernels::Stream& stream, const LaneWork& work) const;
  /// Device memory of the blocks' sums of a lane. nullptr: the blocks have none, or the lane
  /// belongs neither to a step nor to an evaluation.
  [[nodiscard]] double* block_sums(const LaneWork& work) const;
  /// Enqueue that these are zeros, and that the host sees them, which are complete.
  void clear_block_sums(kernels::Stream& stream, const LaneWork& work) const;
  void blocks_summed(kernels::Stream& stream, const LaneWork& work) const;
  /// Memory of the host where a lane's sums and metrics are put by work on the compute stream: what
  /// lane_summed() brings there, of an objective whose weighting() makes them itself.
  struct LaneOutcome {
    kernels::LossSums* sums = nullptr;
    std::span<MetricSum> metrics;
  };
  [[nodiscard]] LaneOutcome lane_outcome(const LaneWork& work) const;
  /// Device memory for sums of a lane that are never read.
  [[nodiscard]] kernels::LossSums* unread_sums() const {
    return unread_sums_.as<kernels::LossSums>();
  }
  /// Device memory where a search counts the non-finite values of a unit's pass.
  [[nodiscard]] std::int64_t* nonfinite_count(const LaneWork& work, std::size_t unit,
                                              bool backward) const;
  /// Enqueues that the host sees that count, which is complete.
  void nonfinite_counted(kernels::Stream& stream, const std::int64_t* count) const;
  /// Enqueues the norms of this rank's rows of a group. `gradient`: packed as GroupLayout::reduce.
  void add_norms(kernels::Stream& stream, std::size_t group, const float* gradient) const;
  /// Enqueues the norms of the last of several passes, before its gradient joins the earlier ones;
  /// in the pass before the last, norms of the rewarded distances (GradientSource::distances).
  void add_pass_norms(kernels::Stream& stream, std::size_t group, const float* gradient) const;
  /// Device memory where this rank counts the elements of a segment in which gradients agree.
  [[nodiscard]] std::int64_t* agreement(std::size_t group, std::size_t segment) const;
  /// Enqueues that the host sees that count, which is complete.
  void agreement_counted(kernels::Stream& stream, const std::int64_t* count) const;

  /// The block of `rank` in loss_and_norm, eval_sums or nonfinite: memory of the host.
  [[nodiscard]] std::span<std::byte> block(CollectiveKind kind, std::int64_t rank) const;

  /// After loss_and_norm of step `step` (from 0): enqueues loss, global norm, clip scale and the
  /// check for NaN and Inf.
  void combine(kernels::Stream& stream, std::int64_t step);
  /// Enqueues that the outcome of a pass that is not the last of several is kept for combine().
  void combine_pass(kernels::Stream& stream, const PassPlan& pass, std::int64_t step);
  /// The pass behind this one rewards distances (GradientSource::distances).
  [[nodiscard]] bool measures_distances(const PassPlan& pass) const {
    return distance_factors_ && pass.number + 2 == passes_.size();
  }
  /// The factor that makes the parameter's distance its gradient, in a step that rewards distance.
  /// Factor of a distance's gradient for kernels, in stream order after combine_pass().
  [[nodiscard]] const float* distance_factor(std::size_t group, std::size_t parameter) const;
  /// Decision of combine(), where kernels read it.
  [[nodiscard]] const kernels::UpdateGuard* guard() const;

  /// In stream order; of step `step` (from 0), but for StepResult::optimizer_sums.
  [[nodiscard]] StepResult step_result(std::int64_t step) const;
  [[nodiscard]] EvaluationResult evaluation_result() const;  ///< In stream order.
  [[nodiscard]] NonfiniteOrigin nonfinite_origin() const;    ///< In stream order.
  [[nodiscard]] bool nonfinite() const;                      ///< In stream order.

  void add_allocated(MemoryPlan& memory) const;

 private:
  /// Values that the host derives from a step's sums, and the update guard a kernel makes of them.
  struct Scalars {
    double squared_norm = 0.0;
    double cross_entropy = 0.0;
    double z_squared = 0.0;
    double reserved = 0.0;
    kernels::UpdateGuard guard;
  };

  void place_lanes();
  void add_norms_at(kernels::Stream& stream, std::size_t group, const float* gradient,
                    double* nodes) const;
  /// Cross-entropy, norms and metrics of a step of several passes, on the host.
  void combine_passes(std::int64_t step);
  /// From the distances of all parameters: what the last pass loses, and its factors.
  void weigh_distances(std::int64_t step);
  /// The mean of the pass's row losses, or what else it loses; without its coefficient.
  [[nodiscard]] double pass_loss(const PassPlan& pass, std::int64_t step) const;
  [[nodiscard]] double lane_total(double kernels::LossSums::*field) const;
  /// Over the segments of all ranks whose layers step `step` trains.
  [[nodiscard]] SignAgreement sign_agreement(std::int64_t step) const;
  /// Memory of the host; of a lane of an evaluation or of a step. ModelSpec::block_sums() end its
  /// metrics.
  [[nodiscard]] LaneOutcome outcome(bool evaluation, std::int64_t lane) const;
  /// The means over all lanes of a step or an evaluation: the objective's, and those of blocks.
  [[nodiscard]] std::vector<double> metrics(bool evaluation) const;
  void add_block_metrics(std::span<const MetricSum> sums, std::vector<double>& means) const;
  /// LaneOutcome::metrics, added up.
  [[nodiscard]] std::vector<MetricSum> over_lanes(bool evaluation) const;
  /// Index of the count in nonfinite_.
  [[nodiscard]] std::size_t nonfinite_at(std::int64_t lane, std::size_t unit, bool backward) const;
  [[nodiscard]] const Scalars& results() const { return *scalars_.host<Scalars>(); }

  const RankPlan* rank_;
  // Exchanged blocks of all ranks, one after the other: norms and loss sums; evaluation loss sums;
  // counts of NaN and Inf. The host's copies are whole, the device's hold this rank's block alone.
  HostDeviceBuffer step_sums_, eval_sums_, nonfinite_;
  std::vector<std::int64_t> step_sums_at_, eval_sums_at_, lane_at_;  // By lane.
  kernels::Buffer row_sums_;                                         // Scratch of add_norms().
  NormTree norms_;
  std::optional<NormTree> pass_norms_;                // Norms of the last pass.
  std::vector<PassOutcome> passes_;                   // In their order.
  std::optional<HostDeviceBuffer> distance_factors_;  // By NormTree::index_of().
  double distance_ = 0.0;                             // Sum over what the step trains.
  std::vector<double> unit_squares_;
  std::vector<double> metrics_;  // Metrics of the step.
  HostDeviceBuffer scalars_;
  kernels::Buffer unread_sums_;
};

}  // namespace train::engine
