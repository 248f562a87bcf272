#include "engine/rank/exec/log_probs/lane_weighting.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "base/text/byte_sizes.hpp"
#include "kernels/head/head_loss.hpp"
#include "kernels/head/log_probs.hpp"

namespace train::engine {
namespace {

const RowWeighting& weighting_of(const RankPlan& rank) {
  const RowWeighting* weighting = rank.objective().any_weighting();
  TRAIN_CHECK(weighting != nullptr, "the objective's row weights are known without a first pass");
  return *weighting;
}

std::size_t row_bytes(const RankPlan& rank) { return bytes_of(rank.lane_tokens(), sizeof(float)); }

std::span<const LaneSequence> filled(std::span<const LaneSequence> sequences) {
  const auto end = std::find_if(sequences.begin(), sequences.end(),
                                [](const LaneSequence& sequence) { return sequence.rows == 0; });
  return sequences.first(static_cast<std::size_t>(end - sequences.begin()));
}

}  // namespace

LaneWeighting::LaneWeighting(const RankPlan& rank, ReferenceLogProbs& reference)
    : weighting_(&weighting_of(rank)),
      reference_(&reference),
      capacity_(most_sequences(rank.options())),
      sequences_(capacity_ * static_cast<std::size_t>(rank.options().lane_slots)),
      log_probs_(rank.kernels(), row_bytes(rank), "row log-probabilities"),
      row_weights_(rank.kernels(), row_bytes(rank), "row weights") {
  if (weighting_->needs_square_sums()) {
    log_square_sums_.emplace(rank.kernels(), row_bytes(rank), "row sums of squares");
  }
  if (weighting_->needs_reference() && rank.objective().reads_frozen()) {
    frozen_log_probs_.emplace(rank.kernels(), row_bytes(rank), "frozen row log-probabilities");
  }
}

std::span<LaneSequence> LaneWeighting::sequences(std::int32_t slot) const {
  return std::span(sequences_).subspan(static_cast<std::size_t>(slot) * capacity_, capacity_);
}

kernels::LogProbResults LaneWeighting::results() const {
  return {.log_probs = log_probs_.device<float>(),
          .log_square_sum = log_square_sums_ ? log_square_sums_->device<float>() : nullptr};
}

kernels::LogProbResults LaneWeighting::frozen_results() const {
  return {.log_probs = frozen_log_probs_->device<float>()};
}

void LaneWeighting::copy_out(kernels::Stream& stream, std::size_t count) const {
  log_probs_.to_host(stream, log_probs_.device<float>(), count);
  if (log_square_sums_) {
    log_square_sums_->to_host(stream, log_square_sums_->device<float>(), count);
  }
  if (frozen_log_probs_) {
    frozen_log_probs_->to_host(stream, frozen_log_probs_->device<float>(), count);
  }
}

LaneLogProbs LaneWeighting::lane_of(std::int32_t slot, const HostRows& rows) const {
  const std::size_t count = rows.targets.size();
  return {.sequences = filled(sequences(slot)),
          .references = {},
          .targets = rows.targets,
          .weights = rows.weights,
          .log_probs = {log_probs_.host<float>(), count},
          .log_square_sums = log_square_sums_
                                 ? std::span<const float>(log_square_sums_->host<float>(), count)
                                 : std::span<const float>()};
}

void LaneWeighting::find_references(const LaneLogProbs& lane) {
  references_.clear();
  LaneLogProbs frozen = lane;
  if (frozen_log_probs_) {
    frozen.log_probs = {frozen_log_probs_->host<float>(), lane.log_probs.size()};
  }
  for (const LaneSequence& sequence : lane.sequences) {
    references_.push_back(frozen_log_probs_ ? frozen.log_prob_of(sequence)
                                            : reference_->of(sequence.document));
  }
}

void LaneWeighting::weigh(kernels::Stream& stream, std::int32_t slot, const HostRows& rows,
                          kernels::LossSums* outcome, std::span<MetricSum> metrics) {
  const std::size_t count = rows.targets.size();
  copy_out(stream, count);
  stream.enqueue([this, slot, rows, count, outcome, metrics] {
    LaneLogProbs lane = lane_of(slot, rows);
    if (weighting_->needs_reference()) {
      find_references(lane);
      lane.references = references_;
    }
    LaneTerms terms{.metrics = metrics, .row_weights = {row_weights_.host<float>(), count}};
    std::fill(terms.metrics.begin(), terms.metrics.end(), MetricSum());
    std::fill(terms.row_weights.begin(), terms.row_weights.end(), 0.0F);
    weighting_->weigh(lane, terms);
    *outcome = {.cross_entropy = terms.loss,
                .z_squared = 0.0,
                .correct = terms.correct,
                .targets = terms.items,
                .weights = terms.items};
  });
  row_weights_.to_device(stream, row_weights_.host<float>(), count);
}

void LaneWeighting::keep_as_reference(kernels::Stream& stream, const LaneWork& work,
                                      const HostRows& rows) {
  copy_out(stream, rows.targets.size());
  stream.enqueue([this, work, rows] {
    const LaneLogProbs lane = lane_of(work.slot, rows);
    const std::span<ReferenceLogProbs::Entry> entries = reference_->lane(work.lane);
    std::fill(entries.begin(), entries.end(), ReferenceLogProbs::Entry());
    for (std::size_t i = 0; i < lane.sequences.size(); ++i) {
      entries[i] = {.document = lane.sequences[i].document,
                    .log_prob = lane.log_prob_of(lane.sequences[i])};
    }
  });
}

std::size_t LaneWeighting::planned_bytes(const RankOptions& options, const Objective& objective) {
  const RowWeighting* weighting = objective.any_weighting();
  if (weighting == nullptr) {
    return 0;
  }
  const std::int64_t rows = options.batch.micro_batch * options.seq_len;
  const bool frozen = weighting->needs_reference() && objective.reads_frozen();
  const std::int64_t columns = 2 + (weighting->needs_square_sums() ? 1 : 0) + (frozen ? 1 : 0);
  return bytes_of(rows * columns, sizeof(float)) +
         most_sequences(options) * static_cast<std::size_t>(options.lane_slots) *
             sizeof(LaneSequence);
}

std::size_t LaneWeighting::allocated_bytes() const {
  return log_probs_.size_bytes() + row_weights_.size_bytes() +
         (log_square_sums_ ? log_square_sums_->size_bytes() : 0) +
         (frozen_log_probs_ ? frozen_log_probs_->size_bytes() : 0) +
         sequences_.size() * sizeof(LaneSequence);
}

}  // namespace train::engine
