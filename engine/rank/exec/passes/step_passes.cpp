#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.hpp"
#include "engine/lanes/lane_tree.hpp"
#include "engine/rank/exec/step_totals.hpp"

// Outcomes of the passes in a step of several passes.

namespace train::engine {

double StepTotals::lane_total(double kernels::LossSums::*field) const {
  std::vector<double> values;
  for (std::int64_t lane = 0; lane < rank_->plan().train_lanes().lanes(); ++lane) {
    values.push_back(outcome(/*evaluation=*/false, lane).sums->*field);
  }
  return tree_sum(values.data(), static_cast<std::int64_t>(values.size()));
}

void StepTotals::add_pass_norms(kernels::Stream& stream, std::size_t group,
                                const float* gradient) const {
  add_norms_at(stream, group, gradient,
               step_sums_.device<double>() + rank_->layout().step_block(rank_->rank()) +
                   pass_norms_->first_node(group));
}

std::int64_t* StepTotals::agreement(std::size_t group, std::size_t segment) const {
  const RankLayout& layout = rank_->layout();
  std::size_t at = static_cast<std::size_t>(layout.agreement_block(rank_->rank())) + segment;
  for (std::size_t before = 0; before < group; ++before) {
    at += layout.group(before).reduce.segments.size();
  }
  static_assert(sizeof(std::int64_t) == sizeof(double));
  return reinterpret_cast<std::int64_t*>(step_sums_.device<double>() + at);
}

void StepTotals::agreement_counted(kernels::Stream& stream, const std::int64_t* count) const {
  step_sums_.to_host(stream, count);
}

SignAgreement StepTotals::sign_agreement(std::int64_t step) const {
  const RankLayout& layout = rank_->layout();
  SignAgreement sum;
  for (std::int64_t rank = 0; rank < rank_->ranks(); ++rank) {
    const auto* counts = reinterpret_cast<const std::int64_t*>(step_sums_.host<double>() +
                                                               layout.agreement_block(rank));
    for (std::size_t group = 0; group < rank_->group_count(); ++group) {
      for (const Segment& segment : layout.reduce_part(group, rank).segments) {
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

double StepTotals::pass_loss(const PassPlan& pass, std::int64_t step) const {
  if (rank_->pass(pass).source == GradientSource::distances) {
    return -distance_;
  }
  return rank_->pass(pass).head.unit(rank_->options().model.vocab_size) *
         rank_->step_mean(step, lane_total(&kernels::LossSums::cross_entropy), pass.number);
}

void StepTotals::combine_pass(kernels::Stream& stream, const PassPlan& pass, std::int64_t step) {
  const bool measures = measures_distances(pass);
  stream.enqueue([this, pass, step, measures] {
    PassOutcome& outcome = passes_[pass.number];
    outcome.loss = pass_loss(pass, step);
    outcome.squared_norm = norms_.finish(step_sums_.host<double>(), outcome.unit_squares);
    if (measures) {
      weigh_distances(step);
    }
  });
  if (measures) {
    const auto* factors = distance_factors_->host<float>();
    distance_factors_->to_device(stream, factors, distance_factors_->size_bytes() / sizeof(float));
  }
}

void StepTotals::weigh_distances(std::int64_t step) {
  constexpr auto largest = static_cast<double>(std::numeric_limits<float>::max());
  const double coefficient = rank_->objective().passes(step).back().coefficient;
  const std::vector<double> squares = pass_norms_->parameter_squares(step_sums_.host<double>());
  auto* factors = distance_factors_->host<float>();
  distance_ = 0.0;
  for (std::size_t i = 0; i < squares.size(); ++i) {
    const bool trained = rank_->trains(pass_norms_->unit_of(i), step);
    const double distance = trained ? std::sqrt(squares[i]) : 0.0;
    distance_ += distance;
    // A distance that is not finite makes the loss so, which ends the run.
    factors[i] =
        distance > 0.0 ? static_cast<float>(-std::min(coefficient / distance, largest)) : 0.0F;
  }
}

const float* StepTotals::distance_factor(std::size_t group, std::size_t parameter) const {
  return distance_factors_->device<float>() + pass_norms_->index_of(group, parameter);
}

void StepTotals::combine_passes(std::int64_t step) {
  const Objective& objective = rank_->objective();
  const std::vector<Pass> passes = objective.passes(step);
  PassOutcome& last = passes_.back();
  last.loss = pass_loss(rank_->passes().step().back(), step);
  last.squared_norm = pass_norms_->finish(step_sums_.host<double>(), last.unit_squares);
  auto* results = scalars_.host<Scalars>();
  results->squared_norm = norms_.finish(step_sums_.host<double>(), unit_squares_);
  results->z_squared = 0.0;
  results->cross_entropy = 0.0;
  for (std::size_t number = 0; number < passes.size(); ++number) {
    results->cross_entropy += passes[number].coefficient * passes_[number].loss;
    // Where signs disagree a join may drop non-finite values: training must not go on around them.
    if (!std::isfinite(passes_[number].squared_norm)) {
      results->squared_norm = std::numeric_limits<double>::quiet_NaN();
    }
  }
  metrics_ =
      objective.metric_values(step, passes_, sign_agreement(step), RankPlan::first_layer_unit());
  add_block_metrics(over_lanes(/*evaluation=*/false), metrics_);
}

}  // namespace train::engine
