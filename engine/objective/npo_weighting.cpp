#include "engine/objective/npo_weighting.hpp"

#include "engine/objective/unlearning.hpp"

namespace train::engine {

void NpoWeighting::weigh(const LaneLogProbs& lane, LaneTerms& terms) const {
  for (std::size_t i = 0; i < lane.sequences.size(); ++i) {
    const LaneSequence& document = lane.sequences[i];
    const auto first = static_cast<std::size_t>(document.first);
    const std::size_t end = first + static_cast<std::size_t>(document.rows);
    double targets = 0.0;
    for (std::size_t row = first; row < end; ++row) {
      targets += lane.trained(row) ? 1.0 : 0.0;
    }
    if (targets == 0.0) {
      continue;
    }
    const double ratio = (lane.log_prob_of(document) - lane.references[i]) / targets;
    const ScalarLoss loss = npo_loss(ratio, beta_);
    terms.loss += loss.loss;
    terms.items += 1.0;
    for (std::size_t row = first; row < end; ++row) {
      if (lane.trained(row)) {
        terms.row_weights[row] = static_cast<float>(-loss.by_value / targets);
      }
    }
  }
}

}  // namespace train::engine
