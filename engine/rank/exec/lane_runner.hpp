#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "engine/command.hpp"
#include "engine/host_state.hpp"
#include "engine/model/model.hpp"
#include "engine/rank/exec/lane_head.hpp"
#include "engine/rank/exec/rank_gradients.hpp"
#include "engine/rank/exec/totals/step_totals.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "engine/rank/state/gathered_weights.hpp"
#include "engine/rank/state/rank_state.hpp"
#include "engine/rank/state/reference_weights.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

/// Forward and backward passes of this rank's lanes, unit by unit, and the slots of their tokens.
///
/// Threading: forward() and backward() only enqueue; they come from one owner per unit, always for
/// the same compute stream. Ownership: owns the slots; borrows all else.
class LaneRunner {
 public:
  /// Parts that the passes read and write, all of the same rank.
  struct Parts {
    Model& model;
    RankState& state;
    const GatheredWeights& gathered;
    RankGradients& gradients;
    const StepTotals& totals;
    DocumentScores& scores;
    SampledTokens& sampled;
    ReferenceLogProbs& reference;
    const ReferenceWeights& reference_weights;
  };
  LaneRunner(const RankPlan& rank, const Parts& parts);

  /// A slot for the host to write.
  [[nodiscard]] LaneSlot slot(std::int32_t slot) const;
  /// Tokens and targets of the slot.
  [[nodiscard]] std::int32_t* slot_tokens(std::int32_t slot) const;
  [[nodiscard]] std::int32_t* slot_targets(std::int32_t slot) const;

  /// Enqueue one unit's pass over one lane. Forward units 0 .. n-1, backward n-1 .. 0, this rank's
  /// lanes in the order of its rounds.
  void forward(kernels::Stream& stream, std::size_t unit, const LaneWork& work, UnitBuffers place);
  void backward(kernels::Stream& stream, std::size_t unit, const LaneWork& work, UnitBuffers place);

  void add_allocated(MemoryPlan& memory) const;

 private:
  [[nodiscard]] Lane make_lane(const LaneWork& work, bool makes_loss) const;
  void copy_lane(kernels::Stream& stream, std::int32_t slot) const;
  [[nodiscard]] ConstElements group_weights(std::size_t group, const LaneWork& work,
                                            UnitBuffers place) const;
  [[nodiscard]] UnitMemory memory_of(std::size_t unit, const LaneWork& work, UnitBuffers place,
                                     bool with_gradient) const;
  /// Before the lane's first unit: its columns go where kernels read them, if any does.
  void begin_lane(kernels::Stream& stream, const LaneWork& work, bool reads_rows) const;
  /// The unit's backward pass, or the gradient of 0 that it has without one.
  void find_gradient(kernels::Stream& stream, std::size_t unit, const LaneWork& work,
                     UnitBuffers place);
  /// The lane's pass has no rows (GradientSource::distances): all of its gradients are 0.
  [[nodiscard]] bool idle(const LaneWork& work) const;
  void clear_nonfinite_counts(kernels::Stream& stream, std::size_t unit, bool backward,
                              const LaneWork& work, UnitBuffers place) const;
  void count_nonfinite_gradient(kernels::Stream& stream, std::size_t unit, const LaneWork& work,
                                UnitBuffers place) const;

  const RankPlan* rank_;
  Parts parts_;
  HostDeviceBuffer tokens_, targets_;
  std::optional<HostDeviceBuffer> positions_, weights_;  // If the lanes have them.
  LaneHead head_;
};

}  // namespace train::engine
