#pragma once

#include <cstdint>
#include <vector>

#include "engine/command.hpp"
#include "engine/rank/exec/totals/step_totals.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "engine/rank/state/rank_state.hpp"
#include "kernels/device/buffer.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

/// The gradients of a step of several passes, of the rows that this rank finishes: joins each with
/// earlier ones, and keeps the result for the next (Pass). A reduced gradient has the same bits on
/// any rank that owns its rows, and so has the result here.
///
/// Threading: one owner per group; calls only enqueue. Ownership: owns the kept gradients and
/// scratch; borrows plan and totals.
class PassGradients {
 public:
  /// REQUIRES: Objective::several_passes(); `state` has the weights that begin the run.
  PassGradients(const RankPlan& rank, const RankState& state, const StepTotals& totals);

  /// The group's gradient over all lanes of the command is complete at `gradient`, packed as
  /// GroupLayout::reduce: enqueues its norms, and that it is joined with what is kept: in
  /// place in the last pass, else where it is kept, and `gradient` is free.
  void finish(kernels::Stream& stream, std::size_t group, const LaneWork& work, float* gradient);

  [[nodiscard]] std::size_t kept_bytes() const;
  [[nodiscard]] std::size_t start_bytes() const;  ///< Bytes of the run's initial weights.
  [[nodiscard]] std::size_t scratch_bytes() const { return agreeing_.size_bytes(); }

 private:
  /// Rows of one parameter.
  struct Rows {
    float* kept = nullptr;  ///< Joined gradient of the passes before.
    float* next = nullptr;
    float* out = nullptr;  ///< `kept` or `next`: receives the joined gradient.
    std::int64_t count = 0;
    std::int64_t* agreeing = nullptr;
  };
  void join(kernels::Stream& stream, const Rows& rows) const;
  /// Adds the gradient of Pass::pull to what the step trains.
  void pull(kernels::Stream& stream, std::size_t group, const LaneWork& work,
            float* gradient) const;
  /// out = a segment's weights minus the initial ones.
  void find_distance(kernels::Stream& stream, std::size_t group, const Segment& segment,
                     float* out) const;
  /// GradientSource::distances: measure_distances() enqueues the norms of the distances in the pass
  /// before; reward_distances() makes them the pass's gradient, where the step trains.
  void measure_distances(kernels::Stream& stream, std::size_t group, float* scratch) const;
  void reward_distances(kernels::Stream& stream, std::size_t group, std::int64_t step,
                        float* gradient) const;
  void copy(kernels::Stream& stream, float* to, const float* from, std::int64_t count) const;

  const RankPlan* rank_;
  const RankState* state_;
  const StepTotals* totals_;
  std::vector<kernels::Buffer> kept_;  // By group.
  // Initial weights of the run, for Objective::reads_first_weights().
  std::vector<kernels::Buffer> start_;
  kernels::Buffer agreeing_;  // Scratch for one segment: the next gradient where signs agree.
};

}  // namespace train::engine
