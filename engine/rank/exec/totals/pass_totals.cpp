#include "engine/rank/exec/totals/pass_totals.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace train::engine {

PassTotals::PassTotals(const RankPlan& rank, const HostDeviceBuffer& step_sums,
                       const LaneSums& lanes, const NormTree& norms)
    : rank_(&rank),
      step_sums_(&step_sums),
      lanes_(&lanes),
      norms_(&norms),
      norms_of_last_(rank.plan(), rank.layout(), /*of_pass=*/true),
      passes_(rank.objective().passes(0).size()) {
  if (const std::size_t bytes = rank.layout().distance_factor_bytes(); bytes > 0) {
    distance_factors_.emplace(rank.kernels(), bytes, "factors of distances");
  }
}

std::int64_t* PassTotals::agreement(std::size_t group, std::size_t segment) const {
  const RankLayout& layout = rank_->layout();
  std::size_t at = static_cast<std::size_t>(layout.agreement_block(rank_->rank())) + segment;
  for (std::size_t before = 0; before < group; ++before) {
    at += layout.group(before).reduce.segments.size();
  }
  static_assert(sizeof(std::int64_t) == sizeof(double));
  return reinterpret_cast<std::int64_t*>(step_sums_->device<double>() + at);
}

void PassTotals::agreement_counted(kernels::Stream& stream, const std::int64_t* count) const {
  step_sums_->to_host(stream, count);
}

SignAgreement PassTotals::sign_agreement(std::int64_t step) const {
  const RankLayout& layout = rank_->layout();
  SignAgreement sum;
  for (std::int64_t rank = 0; rank < rank_->ranks(); ++rank) {
    const auto* counts = reinterpret_cast<const std::int64_t*>(step_sums_->host<double>() +
                                                               layout.agreement_block(rank));
    for (std::size_t group = 0; group < rank_->group_count(); ++group) {
      const Part part = layout.reduce_part(group, rank);
      for (const Segment& segment : part.segments) {
        const std::int64_t agreeing = *counts++;
        if (rank_->trains(rank_->unit_of(group, segment.parameter), step)) {
          sum.agreeing += agreeing;
          sum.elements += segment.count;
        }
      }
    }
  }
  return sum;
}

double PassTotals::loss(const PassPlan& pass, std::int64_t step) const {
  if (rank_->pass(pass).source == GradientSource::distances) {
    return -distance_;
  }
  return rank_->pass(pass).head.unit(rank_->options().model.vocab_size) *
         rank_->step_mean(step,
                          lanes_->total(/*evaluation=*/false, &kernels::LossSums::cross_entropy),
                          pass.number);
}

void PassTotals::combine(kernels::Stream& stream, const PassPlan& pass, std::int64_t step) {
  const bool measures = measures_distances(pass);
  stream.enqueue([this, pass, step, measures] {
    PassOutcome& outcome = passes_[pass.number];
    outcome.loss = loss(pass, step);
    outcome.squared_norm = norms_->finish(step_sums_->host<double>(), outcome.unit_squares);
    if (measures) {
      weigh_distances(step);
    }
  });
  if (measures) {
    const auto* factors = distance_factors_->host<float>();
    distance_factors_->to_device(stream, factors, distance_factors_->size_bytes() / sizeof(float));
  }
}

void PassTotals::weigh_distances(std::int64_t step) {
  constexpr auto largest = static_cast<double>(std::numeric_limits<float>::max());
  const double coefficient = rank_->objective().passes(step).back().coefficient;
  const std::vector<double> squares = norms_of_last_.parameter_squares(step_sums_->host<double>());
  auto* factors = distance_factors_->host<float>();
  distance_ = 0.0;
  for (std::size_t i = 0; i < squares.size(); ++i) {
    const bool trained = rank_->trains(norms_of_last_.unit_of(i), step);
    const double distance = trained ? std::sqrt(squares[i]) : 0.0;
    distance_ += distance;
    // A distance that is not finite makes the loss so, which ends the run.
    factors[i] =
        distance > 0.0 ? static_cast<float>(-std::min(coefficient / distance, largest)) : 0.0F;
  }
}

const float* PassTotals::distance_factor(std::size_t group, std::size_t parameter) const {
  return distance_factors_->device<float>() + norms_of_last_.index_of(group, parameter);
}

PassTotals::Finished PassTotals::finish(std::int64_t step) {
  const Objective& objective = rank_->objective();
  const std::vector<Pass> passes = objective.passes(step);
  PassOutcome& last = passes_.back();
  last.loss = loss(rank_->passes().step().back(), step);
  last.squared_norm = norms_of_last_.finish(step_sums_->host<double>(), last.unit_squares);
  Finished finished;
  for (std::size_t number = 0; number < passes.size(); ++number) {
    finished.loss += passes[number].coefficient * passes_[number].loss;
    finished.finite = finished.finite && std::isfinite(passes_[number].squared_norm);
  }
  finished.metrics =
      objective.metric_values(step, passes_, sign_agreement(step), RankPlan::first_layer_unit());
  lanes_->add_block_metrics(finished.metrics);
  return finished;
}

}  // namespace train::engine
