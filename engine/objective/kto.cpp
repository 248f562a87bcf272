#include <algorithm>
#include <array>

#include "base/check.hpp"
#include "engine/objective/pair_objective.hpp"
#include "engine/objective/registry.hpp"

namespace train::engine {
namespace {

using namespace std::string_view_literals;

/// KTO: the mean of kto_loss() over the examples of a step. Its baseline z0 is computed per lane:
/// the mean of log pi - log pi_ref over the lane's mismatched documents, clamped at 0, without a
/// gradient (Ethayarajh et al. 2024). So the loss depends on which examples share a lane, as it
/// depends on the batch in other programs, but not on the rank that computes the lane.
class KtoObjective final : public Objective, private RowWeighting {
 public:
  explicit KtoObjective(const PreferenceOptions& options) : options_(options) {}

  [[nodiscard]] RowKind rows() const override { return RowKind::examples; }
  [[nodiscard]] LaneColumns columns() const override {
    return {.positions = true, .weights = true, .sequences = true};
  }
  [[nodiscard]] std::vector<Pass> passes(std::int64_t /*step*/) const override {
    return {{.head = {.weighting = this}}};
  }

 private:
  enum Metric : std::uint8_t { chosen, rejected, kl, margins, log_p_chosen, log_p_rejected };
  static constexpr auto kNames =
      std::to_array<std::string_view>({"rewards/chosen"sv, "rewards/rejected"sv, "kl"sv,
                                       "rewards/margins"sv, "logps/chosen"sv, "logps/rejected"sv});

  [[nodiscard]] std::span<const std::string_view> metrics() const override { return kNames; }
  [[nodiscard]] bool needs_reference() const override { return true; }
  void weigh(const LaneLogProbs& lane, LaneTerms& terms) const override;
  void derive(std::span<double> means) const override {
    means[margins] = means[chosen] - means[rejected];
  }

  PreferenceOptions options_;
};

double baseline_of_lane(const LaneLogProbs& lane) {
  double sum = 0.0;
  for (std::size_t i = 1; i < lane.sequences.size(); i += 2) {
    sum += sequence_log_probs(lane, i).ratio();
  }
  const std::size_t examples = lane.sequences.size() / 2;
  return examples == 0 ? 0.0 : std::max(0.0, sum / static_cast<double>(examples));
}

void KtoObjective::weigh(const LaneLogProbs& lane, LaneTerms& terms) const {
  TRAIN_CHECK(lane.sequences.size() % 2 == 0, "a lane of {} sequences has half an example",
              lane.sequences.size());
  const double baseline = baseline_of_lane(lane);
  const auto add = [&](Metric metric, double value) {
    terms.metrics[metric].sum += value;
    terms.metrics[metric].count += 1.0;
  };
  for (std::size_t i = 0; i < lane.sequences.size(); i += 2) {
    const LaneSequence& answer = lane.sequences[i];
    const LaneSequence& mismatched = lane.sequences[i + 1];
    TRAIN_CHECK(answer.item == mismatched.item && answer.side <= 1 && mismatched.side == 2,
                "sequences {} and {} of a lane are no example", i, i + 1);
    const SequenceLogProbs known = sequence_log_probs(lane, i);
    const bool desirable = answer.side == 0;
    const PairLoss loss = kto_loss(options_, desirable, known.ratio(), baseline);
    terms.loss += loss.loss;
    terms.items += 1.0;
    // An answer is told right where it is above the baseline if wanted, below it if not.
    const double above = known.ratio() - baseline;
    terms.correct += (desirable ? above > 0.0 : above < 0.0) ? 1.0 : 0.0;
    add_row_weight(lane, answer, false, -loss.by_chosen, terms.row_weights);
    add(desirable ? chosen : rejected, options_.beta * known.ratio());
    add(desirable ? log_p_chosen : log_p_rejected, known.policy);
    add(kl, baseline);
  }
}

}  // namespace

std::unique_ptr<const Objective> make_kto(const configs::ObjectiveSection& section) {
  return std::make_unique<KtoObjective>(preference_options(section));
}

}  // namespace train::engine
