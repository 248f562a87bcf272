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

void LaneWeighting::weigh_sources(const LaneLogProbs& lane, std::span<const std::int32_t> sources,
                                  std::span<MetricSum> by_source) const {
  if (by_source.empty()) {
    return;
  }
  const std::size_t length = lane.targets.size() / sources.size();
  std::vector<MetricSum> metrics(weighting_->metrics().size());
  std::vector<float> row_weights(lane.targets.size());
  for (std::size_t source = 0; source < by_source.size(); ++source) {
    std::vector<LaneSequence> sequences;
    std::vector<double> references;
    for (std::size_t i = 0; i < lane.sequences.size(); ++i) {
      const auto row = static_cast<std::size_t>(lane.sequences[i].first);
      if (sources[row / length] == static_cast<std::int32_t>(source)) {
        sequences.push_back(lane.sequences[i]);
        if (!lane.references.empty()) {
          references.push_back(lane.references[i]);
        }
      }
    }
    LaneLogProbs part = lane;
    part.sequences = sequences;
    part.references = references;
    std::ranges::fill(metrics, MetricSum());
    std::ranges::fill(row_weights, 0.0F);
    LaneTerms terms{.metrics = metrics, .row_weights = row_weights};
    if (!sequences.empty()) {
      weighting_->weigh(part, terms);
    }
    by_source[source] = {.sum = terms.loss, .count = terms.items};
  }
}

void LaneWeighting::weigh(kernels::Stream& stream, std::int32_t slot, const HostRows& rows,
                          const Results& results) {
  const std::size_t count = rows.targets.size();
  copy_out(stream, count);
  stream.enqueue([this, slot, rows, count, results] {
    LaneLogProbs lane = lane_of(slot, rows);
    if (weighting_->needs_reference()) {
      find_references(lane);
      lane.references = references_;
    }
    LaneTerms terms{.metrics = results.metrics, .row_weights = {row_weights_.host<float>(), count}};
    std::fill(terms.metrics.begin(), terms.metrics.end(), MetricSum());
    std::fill(terms.row_weights.begin(), terms.row_weights.end(), 0.0F);
    weighting_->weigh(lane, terms);
    *results.sums = {.cross_entropy = terms.loss,
                     .z_squared = 0.0,
                     .correct = terms.correct,
                     .targets = terms.items,
                     .weights = terms.items};
    weigh_sources(lane, rows.sources, results.by_source);
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
