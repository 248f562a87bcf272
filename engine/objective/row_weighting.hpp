#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace train::engine {

/// One document of a lane, as an objective of pairs sees it. Plain data of the host.
struct LaneSequence {
  std::int64_t item = -1;     ///< Number of its pair (or example) among those of the split.
  std::int64_t document = 0;  ///< Index among all documents of training, then validation.
  std::int32_t first = 0;     ///< First row in the lane.
  std::int32_t rows = 0;      ///< 0: the lane's sequences end here.
  std::int32_t side = 0;      ///< RowDocument::side.
  std::int32_t unused = 0;

  bool operator==(const LaneSequence&) const = default;
};

/// A lane after the first pass over the head: what its row weights are made of. Host memory.
struct LaneLogProbs {
  std::span<const LaneSequence> sequences;  ///< In the order of their rows, none empty.
  /// Log-probability of each sequence's trained targets in the reference model; empty unless asked
  /// for.
  std::span<const double> references;
  std::span<const std::int32_t> targets;  ///< One per row; -1: none.
  /// The data's weights of targets; a target of weight 0 is of the context (a prompt's token).
  std::span<const float> weights;
  std::span<const float> log_probs;        ///< log p[target]; 0 without a target.
  std::span<const float> log_square_sums;  ///< log sum p^2; empty unless asked for.

  /// True if the objective trains the row.
  [[nodiscard]] bool trained(std::size_t row) const {
    return targets[row] >= 0 && weights[row] > 0.0F;
  }
  /// log pi of a sequence: of its trained rows in their order, in double. What a reference keeps of
  /// it, so that a policy that is the reference has the same bits.
  [[nodiscard]] double log_prob_of(const LaneSequence& sequence) const {
    double sum = 0.0;
    const auto first = static_cast<std::size_t>(sequence.first);
    for (std::size_t row = first; row < first + static_cast<std::size_t>(sequence.rows); ++row) {
      sum += trained(row) ? static_cast<double>(log_probs[row]) : 0.0;
    }
    return sum;
  }
};

/// One metric of a lane, as a sum and a count, whose quotient is the mean.
struct MetricSum {
  double sum = 0.0;
  double count = 0.0;
};

/// Terms that an objective computes from a lane. All are zero before.
struct LaneTerms {
  double loss = 0.0;     ///< Sum over its items.
  double items = 0.0;    ///< Pairs or examples; their sum over all lanes divides the step's loss.
  double correct = 0.0;  ///< Items that count as right, for the accuracy of an evaluation.
  std::span<MetricSum> metrics;  ///< As RowWeighting::metrics() names them.
  std::span<float> row_weights;  ///< -d loss / d log p of each row, the factor of its
                                 ///< cross-entropy in the second pass; 0 without a target.
};

/// How an objective makes row weights of log-probabilities: the part of it that needs two passes
/// over the head. The first computes the rows' log-probabilities, weigh() follows on the host in
/// the stream's order, the second one computes the gradients of the weighted rows.
///
/// Threading: immutable. A pure function of its arguments, independent of ranks and lanes.
class RowWeighting {
 public:
  RowWeighting() = default;
  virtual ~RowWeighting() = default;
  RowWeighting(const RowWeighting&) = delete;
  RowWeighting& operator=(const RowWeighting&) = delete;

  /// Names in metrics.jsonl ("rewards/margins"); views of literals.
  [[nodiscard]] virtual std::span<const std::string_view> metrics() const = 0;
  /// True if weigh() reads LaneLogProbs::references.
  [[nodiscard]] virtual bool needs_reference() const = 0;
  [[nodiscard]] virtual bool needs_square_sums() const { return false; }
  /// Reads all of a lane's rows; writes terms.
  virtual void weigh(const LaneLogProbs& lane, LaneTerms& terms) const = 0;
  /// Writes the derived ones among the means over all lanes, which are in the order of metrics().
  virtual void derive(std::span<double> /*means*/) const {}
};

}  // namespace train::engine
