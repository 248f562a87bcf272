#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "engine/command.hpp"
#include "engine/lanes/lane_slot.hpp"
#include "engine/model/model.hpp"
#include "engine/rank/exec/log_probs/document_scores.hpp"
#include "engine/rank/exec/log_probs/lane_weighting.hpp"
#include "engine/rank/exec/log_probs/sampled_tokens.hpp"
#include "engine/rank/exec/passes/compared_outputs.hpp"
#include "engine/rank/exec/passes/frozen_inputs.hpp"
#include "engine/rank/exec/totals/lane_sums.hpp"
#include "engine/rank/exec/totals/source_sums.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

/// Source of a lane's loss: the head, in one pass over it or two, or the outputs of layers that a
/// pass compares. In passes without a loss LossUse decides the use of either.
///
/// Threading: as LaneRunner. Ownership: owns what passes compare and row weights; borrows all else.
class LaneHead {
 public:
  /// Where the results of lanes go, by LossUse.
  struct Results {
    const LaneSums& lanes;
    DocumentScores& scores;
    SampledTokens& sampled;
    ReferenceLogProbs& reference;
  };
  LaneHead(const RankPlan& rank, Model& model, const Results& results);

  /// A slot's list of documents for the host to write; none where the objective weighs no rows.
  [[nodiscard]] std::span<LaneSequence> sequences(std::int32_t slot) const;
  /// A slot's sources for the host to write; none where the run does not mix any.
  [[nodiscard]] std::span<std::int32_t> sources(std::int32_t slot) const;
  /// Row weights are made of log-probabilities in some pass.
  [[nodiscard]] bool weighs() const { return weighting_.has_value(); }
  /// Input of the frozen copy's head, if the loss of the lane's pass is the divergence from it.
  [[nodiscard]] const std::byte* reference_input(const LaneWork& work) const;

  /// Enqueues the head's forward pass over a lane and what LossUse says. `columns`: of the lane,
  /// which live until the stream is past it.
  void forward(kernels::Stream& stream, const LaneWork& work, const UnitMemory& memory,
               const Lane& lane, const LaneSlot& columns);
  /// For passes whose loss is the distance of the unit's output from the frozen copy's: enqueue the
  /// loss sums, or keeping the copy's output; and the gradient.
  void compare_output(kernels::Stream& stream, std::size_t unit, const LaneWork& work,
                      const Lane& lane, const ComparedOutputs& compared) const;
  void add_output_gradient(kernels::Stream& stream, std::size_t unit, const LaneWork& work,
                           const Lane& lane, const ComparedOutputs& compared) const;

  void add_allocated(MemoryPlan& memory) const;

 private:
  void sum_loss(kernels::Stream& stream, const LaneWork& work, const UnitMemory& memory,
                const Lane& lane, const LaneSlot& columns) const;
  void score(kernels::Stream& stream, const LaneWork& work, const UnitMemory& memory,
             const Lane& lane, const LaneSlot& columns) const;
  void sample(kernels::Stream& stream, const LaneWork& work, const UnitMemory& memory,
              const Lane& lane) const;
  void keep_input(kernels::Stream& stream, const LaneWork& work, const UnitMemory& memory,
                  Lane lane) const;
  /// The first pass over the head, of two.
  void find_log_probs(kernels::Stream& stream, const LaneWork& work, const UnitMemory& memory,
                      const Lane& lane) const;
  void weigh(kernels::Stream& stream, const LaneWork& work, const UnitMemory& memory, Lane lane,
             const LaneSlot& columns);
  [[nodiscard]] LayerUnit& head() const { return model_->unit(model_->unit_count() - 1); }

  const RankPlan* rank_;
  Model* model_;
  const LaneSums* lanes_;
  DocumentScores* scores_;
  SampledTokens* sampled_;
  std::optional<LaneWeighting> weighting_;  // If the objective has one.
  std::optional<SourceSums> source_sums_;   // If the run mixes sources.
  FrozenInputs frozen_;
};

}  // namespace train::engine
