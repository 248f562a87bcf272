#pragma once

#include <cstdint>

#include "engine/objective/row_weighting.hpp"
#include "engine/objective/step_program.hpp"

namespace train::engine {

/// What an objective's rows hold.
enum class RowKind : std::uint8_t {
  tokens,     ///< Plain token files.
  documents,  ///< Packed documents.
  pairs,      ///< Packed pairs, a better and a worse answer; a lane holds whole pairs.
  examples,   ///< Packed answers that are each good or bad, each with its mismatched document
              ///< behind it (LaneSequence::side 2).
};

/// Columns of a lane besides tokens and targets; a slot has memory for those of its objective.
struct LaneColumns {
  bool positions = false;  ///< Of tokens in their documents; else each sequence is one document.
  bool weights = false;    ///< Of targets; else 1.
  bool sequences = false;  ///< The documents of a lane (LaneSequence).
  /// Tokens of prompts are targets too, of weight 0; else they are none.
  bool prompt_targets = false;

  bool operator==(const LaneColumns&) const = default;
};

/// What is minimised: which columns its rows have, and what the head makes of them.
///
/// The loss of a step is a sum over the targets of all its lanes, divided by the sum of their
/// weights over the whole step (RowCount::weight), which every rank knows before the forward pass;
/// with a weighting() a sum over pairs or examples, divided by their number.
/// So neither lanes, ranks nor packing change what a target counts. A step without any weight has
/// loss 0 and gradient 0, and is otherwise like every other: weight decay and momentum go on.
/// Threading: immutable.
class Objective {
 public:
  Objective() = default;
  virtual ~Objective() = default;
  Objective(const Objective&) = delete;
  Objective& operator=(const Objective&) = delete;

  [[nodiscard]] virtual RowKind rows() const = 0;
  [[nodiscard]] virtual LaneColumns columns() const = 0;
  /// HeadLossParams, in training; an evaluation is of the data's own targets, without it.
  [[nodiscard]] virtual float label_smoothing() const { return 0.0F; }
  /// Where row weights follow from the rows' log-probabilities, how; lives as long as this. Null:
  /// they are the data's, known before the forward pass, and the head is passed over once.
  [[nodiscard]] virtual const RowWeighting* weighting() const { return nullptr; }
  /// Where a step has two passes over different rows, what they are; lives as long as this. Null:
  /// it has one, whose gradient is the optimizer's. Its label_smoothing() then counts, not this's.
  [[nodiscard]] virtual const StepProgram* program() const { return nullptr; }
};

/// The objective's weighting(), or that of its second pass; null: it has none.
[[nodiscard]] inline const RowWeighting* any_weighting(const Objective& objective) {
  return objective.program() != nullptr ? objective.program()->weighting() : objective.weighting();
}
/// Whether a pass of the objective's steps compares the model with its frozen copy.
[[nodiscard]] inline bool reads_frozen(const Objective& objective) {
  const StepProgram* program = objective.program();
  return program != nullptr && (program->reads_frozen(StepProgram::Pass::first) ||
                                program->reads_frozen(StepProgram::Pass::second));
}

/// What some rows hold; of a step or a row. A pure function of data, seed and step.
struct RowCount {
  double weight = 0.0;         ///< Of trained targets, or items: what the loss is divided by.
  std::int64_t trained = 0;    ///< Targets.
  std::int64_t tokens = 0;     ///< That are not padding.
  std::int64_t positions = 0;  ///< Padding included.

  RowCount& operator+=(const RowCount& other) {
    weight += other.weight;
    trained += other.trained;
    tokens += other.tokens;
    positions += other.positions;
    return *this;
  }
};

}  // namespace train::engine
