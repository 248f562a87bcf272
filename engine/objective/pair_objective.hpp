#pragma once

#include <memory>
#include <string_view>

#include "configs/sections/objective_section.hpp"
#include "engine/objective/objective.hpp"
#include "engine/objective/preference_loss.hpp"

namespace train::engine {

/// An objective of pairs: the mean of a loss of preference_loss.hpp over the pairs of a step.
///
/// A pair's log-probabilities are sums over the trained rows of its two sequences, in the order of
/// the rows, in double. So the loss of a pair does not depend on its lane or on neighbouring pairs.
class PairObjective final : public Objective, private RowWeighting {
 public:
  PairObjective(const PreferenceLoss& loss, const PreferenceOptions& options);

  [[nodiscard]] RowKind rows() const override { return RowKind::pairs; }
  [[nodiscard]] LaneColumns columns() const override;
  [[nodiscard]] std::vector<Pass> passes(std::int64_t /*step*/) const override {
    return {{.head = {.weighting = this}}};
  }

 private:
  [[nodiscard]] std::span<const std::string_view> metrics() const override;
  [[nodiscard]] bool needs_reference() const override { return loss_.needs_reference; }
  [[nodiscard]] bool needs_square_sums() const override { return loss_.needs_certainty; }
  void weigh(const LaneLogProbs& lane, LaneTerms& terms) const override;

  PreferenceLoss loss_;
  PreferenceOptions options_;
};

/// Log-probabilities of sequence `index` of a lane: of its trained rows, or with `context` of all
/// its targets.
[[nodiscard]] SequenceLogProbs sequence_log_probs(const LaneLogProbs& lane, std::size_t index,
                                                  bool context = false);
/// Adds `weight` to the weights of the same rows.
void add_row_weight(const LaneLogProbs& lane, const LaneSequence& sequence, bool context,
                    double weight, std::span<float> row_weights);

/// The options of [objective] that a loss reads.
[[nodiscard]] PreferenceOptions preference_options(const configs::ObjectiveSection& section);

}  // namespace train::engine
