#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/objective/pass.hpp"
#include "engine/objective/row_weighting.hpp"
#include "engine/objective/training_schedule.hpp"

namespace train::engine {

/// Content of an objective's rows.
enum class RowKind : std::uint8_t {
  tokens,     ///< Plain token files.
  documents,  ///< Packed documents.
  pairs,      ///< Packed pairs, a better and a worse answer; a lane holds whole pairs.
  examples,   ///< Packed answers that are each good or bad, each with its mismatched document
              ///< behind it (LaneSequence::side 2).
};

/// Columns of a lane besides tokens and targets; a slot has memory for those of its objective.
struct LaneColumns {
  bool positions = false;  ///< Positions of tokens in documents; else each sequence is a document.
  bool weights = false;    ///< Weights of targets; else 1.
  bool sequences = false;  ///< The documents of a lane (LaneSequence).
  /// Tokens of prompts are targets of weight 0; else they are not targets.
  bool prompt_targets = false;

  bool operator==(const LaneColumns&) const = default;
};

/// Training objective: the columns of its rows, and the loss that the head computes from them.
///
/// The loss of a step is a sum over the targets of all its lanes, divided by the sum of their
/// weights over the whole step (RowCount::weight), which every rank knows before the forward pass;
/// with a weighting() a sum over pairs or examples, divided by their number.
/// Lanes, ranks and packing therefore do not change the weight of a target. A step without any
/// weight has loss 0 and gradient 0, and otherwise updates as usual: weight decay and momentum
/// apply. Threading: immutable.
class Objective {
 public:
  Objective() = default;
  virtual ~Objective() = default;
  Objective(const Objective&) = delete;
  Objective& operator=(const Objective&) = delete;

  [[nodiscard]] virtual RowKind rows() const = 0;
  [[nodiscard]] virtual LaneColumns columns() const = 0;
  /// The passes of step `step` (from 0): one, or several, each over rows of its own; as
  /// many in every step. An evaluation is of the data's own targets, without label smoothing.
  [[nodiscard]] virtual std::vector<Pass> passes(std::int64_t /*step*/) const { return {Pass{}}; }
  /// Join of the gradients of several passes, which the optimizer reads.
  [[nodiscard]] virtual GradientJoin join() const { return GradientJoin::sum; }
  /// Layers that each step trains; lives as long as this. Null: every step trains all of them.
  [[nodiscard]] virtual const TrainingSchedule* schedule() const { return nullptr; }
  /// Names in metrics.jsonl; by default those of weighting().
  [[nodiscard]] virtual std::vector<std::string> metric_names() const;
  /// Metrics of step `step`, if it has several passes. `first_unit`: the unit of layer 0.
  [[nodiscard]] virtual std::vector<double> metric_values(std::int64_t /*step*/,
                                                          std::span<const PassOutcome> /*passes*/,
                                                          const SignAgreement& /*agreement*/,
                                                          std::size_t /*first_unit*/) const {
    return {};
  }

  [[nodiscard]] bool several_passes() const { return passes(0).size() > 1; }
  /// Row weighting of steps of one pass and of evaluations; null: the data's weights.
  [[nodiscard]] const RowWeighting* weighting() const {
    return several_passes() ? nullptr : any_weighting();
  }
  /// Row weighting of the last pass of any step.
  [[nodiscard]] const RowWeighting* any_weighting() const {
    return passes(0).back().head.weighting;
  }
  /// True if a pass compares the model with its frozen copy.
  [[nodiscard]] bool reads_frozen() const {
    return any_pass([](const Pass& pass) { return pass.compared != Compared::nothing; });
  }
  [[nodiscard]] bool reads_first_weights() const {
    return any_pass([](const Pass& pass) { return pass.reads_first_weights(); });
  }
  [[nodiscard]] bool rewards_distance() const {
    return any_pass([](const Pass& pass) { return pass.source == GradientSource::distances; });
  }

 private:
  template <class Is>
  [[nodiscard]] bool any_pass(const Is& is) const {
    const std::vector<Pass> all = passes(0);
    return std::any_of(all.begin(), all.end(), is);
  }
};

/// Counts of a step's rows or of one row. A pure function of data, seed and step.
struct RowCount {
  double weight = 0.0;         ///< Weight of trained targets, or items; the loss is divided by it.
  std::int64_t trained = 0;    ///< Targets.
  std::int64_t tokens = 0;     ///< Tokens that are not padding.
  std::int64_t positions = 0;  ///< Padding included.

  RowCount& operator+=(const RowCount& other) {
    weight += other.weight;
    trained += other.trained;
    tokens += other.tokens;
    positions += other.positions;
    return *this;
  }
};

/// True if the objective reads log-probabilities of a reference.
[[nodiscard]] inline bool needs_reference(const Objective& objective) {
  return objective.weighting() != nullptr && objective.weighting()->needs_reference();
}

}  // namespace train::engine
