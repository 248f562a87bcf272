#include "engine/objective/pair_objective.hpp"

#include <algorithm>
#include <array>

#include "base/check.hpp"
#include "engine/objective/registry.hpp"

namespace train::engine {
namespace {

using namespace std::string_view_literals;

constexpr auto kMetrics = std::to_array<std::string_view>(
    {"rewards/chosen"sv, "rewards/rejected"sv, "rewards/accuracies"sv, "rewards/margins"sv,
     "logps/chosen"sv, "logps/rejected"sv});

/// True if the row counts in its pair's loss: a trained row; with `context`, any row with a target.
bool counts(const LaneLogProbs& lane, std::size_t row, bool context) {
  return context ? lane.targets[row] >= 0 : lane.trained(row);
}

template <class Visit>
void visit_rows(const LaneLogProbs& lane, const LaneSequence& sequence, bool context,
                const Visit& visit) {
  const auto first = static_cast<std::size_t>(sequence.first);
  const std::size_t end = first + static_cast<std::size_t>(sequence.rows);
  for (std::size_t row = first; row < end; ++row) {
    if (counts(lane, row, context)) {
      visit(row);
    }
  }
}

}  // namespace

SequenceLogProbs sequence_log_probs(const LaneLogProbs& lane, std::size_t index, bool context) {
  const LaneSequence& sequence = lane.sequences[index];
  SequenceLogProbs sums{.policy = 0.0,
                        .reference = lane.references.empty() ? 0.0 : lane.references[index],
                        .tokens = 0.0};
  visit_rows(lane, sequence, context, [&](std::size_t row) {
    const auto log_prob = static_cast<double>(lane.log_probs[row]);
    sums.policy += log_prob;
    sums.tokens += 1.0;
    if (!lane.log_square_sums.empty()) {
      sums.certainty += log_prob - static_cast<double>(lane.log_square_sums[row]);
    }
  });
  TRAIN_CHECK(sums.tokens > 0.0, "item {} has a sequence without a trained target", sequence.item);
  sums.certainty /= sums.tokens;
  return sums;
}

void add_row_weight(const LaneLogProbs& lane, const LaneSequence& sequence, bool context,
                    double weight, std::span<float> row_weights) {
  visit_rows(lane, sequence, context,
             [&](std::size_t row) { row_weights[row] += static_cast<float>(weight); });
}

PairObjective::PairObjective(const PreferenceLoss& loss, const PreferenceOptions& options)
    : loss_(loss), options_(options) {}

LaneColumns PairObjective::columns() const {
  return {
      .positions = true, .weights = true, .sequences = true, .prompt_targets = loss_.needs_prompt};
}

std::span<const std::string_view> PairObjective::metrics() const { return kMetrics; }

void PairObjective::weigh(const LaneLogProbs& lane, LaneTerms& terms) const {
  TRAIN_CHECK(lane.sequences.size() % 2 == 0, "a lane of {} sequences has half a pair",
              lane.sequences.size());
  for (std::size_t i = 0; i < lane.sequences.size(); i += 2) {
    const LaneSequence& chosen = lane.sequences[i];
    const LaneSequence& rejected = lane.sequences[i + 1];
    TRAIN_CHECK(chosen.item == rejected.item && chosen.side == 0 && rejected.side == 1,
                "sequences {} and {} of a lane are no pair", i, i + 1);
    PairLogProbs pair{.chosen = sequence_log_probs(lane, i),
                      .rejected = sequence_log_probs(lane, i + 1)};
    if (loss_.needs_prompt) {
      pair.chosen_with_prompt = sequence_log_probs(lane, i, /*context=*/true);
    }
    const PairLoss loss = loss_.of(options_, pair);
    terms.loss += loss.loss;
    terms.items += 1.0;
    add_row_weight(lane, chosen, false, -loss.by_chosen, terms.row_weights);
    add_row_weight(lane, rejected, false, -loss.by_rejected, terms.row_weights);
    if (loss_.needs_prompt) {
      add_row_weight(lane, chosen, true, -loss.by_chosen_with_prompt, terms.row_weights);
    }
    const PairMetrics metrics =
        loss_.needs_reference ? pair_metrics(options_, pair) : mean_metrics(options_, pair);
    terms.correct += metrics.accuracy;
    const std::array<double, kMetrics.size()> values = {
        metrics.reward_chosen, metrics.reward_rejected, metrics.accuracy,
        metrics.margin,        metrics.log_prob_chosen, metrics.log_prob_rejected};
    for (std::size_t metric = 0; metric < values.size(); ++metric) {
      terms.metrics[metric].sum += values[metric];
      terms.metrics[metric].count += 1.0;
    }
  }
}

PreferenceOptions preference_options(const configs::ObjectiveSection& section) {
  return {.beta = section.beta,
          .label_smoothing = section.label_smoothing,
          .gamma_beta_ratio = section.gamma_beta_ratio,
          .discopop_tau = section.discopop_tau,
          .desirable_weight = section.desirable_weight,
          .undesirable_weight = section.undesirable_weight};
}

namespace {

std::unique_ptr<const Objective> make_pair_objective(std::string_view loss,
                                                     const configs::ObjectiveSection& section) {
  const PreferenceLoss* found = find_preference_loss(loss);
  TRAIN_CHECK(found != nullptr, "no loss of pairs is called {}", loss);
  return std::make_unique<PairObjective>(*found, preference_options(section));
}

}  // namespace

// Objectives that differ in the loss of a pair alone.

std::unique_ptr<const Objective> make_dpo(const configs::ObjectiveSection& section) {
  return make_pair_objective(section.loss, section);
}

// Log-probabilities that are means over tokens: long answers weigh no more.
std::unique_ptr<const Objective> make_dpo_norm(const configs::ObjectiveSection& section) {
  return make_pair_objective("dpo_norm", section);
}

// Means over tokens with a margin to reach; no reference.
std::unique_ptr<const Objective> make_simpo(const configs::ObjectiveSection& section) {
  return make_pair_objective("simpo", section);
}

// Pairs weigh as likely as the model would write them.
std::unique_ptr<const Objective> make_wpo(const configs::ObjectiveSection& section) {
  return make_pair_objective("wpo", section);
}

// Cross-entropy of the chosen conversation, and the odds of both answers; no reference.
std::unique_ptr<const Objective> make_orpo(const configs::ObjectiveSection& section) {
  return make_pair_objective("orpo", section);
}

}  // namespace train::engine
