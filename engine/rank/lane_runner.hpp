#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "engine/command.hpp"
#include "engine/model/model.hpp"
#include "engine/rank/log_probs/document_scores.hpp"
#include "engine/rank/log_probs/lane_weighting.hpp"
#include "engine/rank/passes/compared_outputs.hpp"
#include "engine/rank/passes/frozen_inputs.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "engine/rank/rank_gradients.hpp"
#include "engine/rank/state/gathered_weights.hpp"
#include "engine/rank/state/host_state.hpp"
#include "engine/rank/state/rank_state.hpp"
#include "engine/rank/state/reference_weights.hpp"
#include "engine/rank/step_totals.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

/// A lane's place where the host fills it: micro_batch * seq_len elements of each column, none of
/// those that the objective does not have.
struct LaneSlot {
  std::span<std::int32_t> tokens;
  std::span<std::int32_t> targets;
  std::span<std::int32_t> positions;
  std::span<float> weights;
  /// Of the lane's documents, as many as could be; behind the last one of 0 rows, if there is room.
  std::span<LaneSequence> sequences = {};
};

/// Forward and backward passes of this rank's lanes, unit by unit, and the slots of their tokens.
///
/// Threading: forward() and backward() only enqueue; they come from one owner per unit, always for
/// the same compute stream. Ownership: owns the slots; borrows all else.
class LaneRunner {
 public:
  /// What the passes read and write, all of the same rank.
  struct Parts {
    Model& model;
    RankState& state;
    const GatheredWeights& gathered;
    RankGradients& gradients;
    const StepTotals& totals;
    DocumentScores& scores;
    ReferenceLogProbs& reference;
    const ReferenceWeights& reference_weights;
  };
  LaneRunner(const RankPlan& rank, const Parts& parts);

  /// A slot for the host to write.
  [[nodiscard]] LaneSlot slot(std::int32_t slot) const;
  /// Its tokens and targets.
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
  void score(kernels::Stream& stream, const UnitMemory& head, const LaneWork& work,
             const Lane& lane) const;
  /// The head's forward pass: one, or two with the row weights made between them. Of the frozen
  /// copy what its head reads is kept.
  void forward_head(kernels::Stream& stream, const LaneWork& work, const UnitMemory& memory,
                    Lane lane);
  /// Where the pass loses what the unit's output is off the frozen copy's: sums that up, or keeps
  /// the latter.
  void compare_output(kernels::Stream& stream, std::size_t unit, const LaneWork& work,
                      const Lane& lane, const ComparedOutputs& compared);
  /// The unit's backward pass, or the gradient of 0 that it has without one.
  void find_gradient(kernels::Stream& stream, std::size_t unit, const LaneWork& work,
                     UnitBuffers place);
  void keep_frozen_input(kernels::Stream& stream, const LaneWork& work, const UnitMemory& memory,
                         Lane lane);
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
  std::optional<LaneWeighting> weighting_;               // If the objective has one.
  FrozenInputs frozen_;
};

}  // namespace train::engine
