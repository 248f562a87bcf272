#include "engine/rank/exec/step_totals.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.hpp"
#include "base/text/byte_sizes.hpp"
#include "engine/lanes/lane_tree.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/head/head_loss.hpp"
#include "kernels/optimizer/global_norm.hpp"

namespace train::engine {

namespace {

/// The canonical tree over `rows`, down to the nodes that are given.
template <class Nodes>
double join(const Nodes& nodes, std::size_t& next, LaneRange rows, const double* values) {
  TRAIN_CHECK(next < nodes.size() && rows.count > 0, "rows {}..{} have no node", rows.first,
              rows.end());
  if (nodes[next].rows == rows) {
    return values[nodes[next++].at];
  }
  const std::int64_t left = left_count(rows.count);
  const double left_sum = join(nodes, next, {rows.first, left}, values);
  return left_sum + join(nodes, next, {rows.first + left, rows.count - left}, values);
}

double mean_of(const MetricSum& total) {
  return total.count > 0.0 ? total.sum / total.count : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

double* sum_squares(const kernels::KernelTable& kernels, kernels::Stream& stream,
                    const ShardGroup& group, const Part& part, const float* gradient,
                    double* row_sums, double* nodes) {
  kernels::RowSquareSumsParams squares;
  kernels::TreeSumParams trees;
  for (const Segment& segment : part.segments) {
    const Parameter& parameter = group.parameters[segment.parameter];
    squares.tensors.push_back({.x = gradient + segment.packed_offset,
                               .row_sums = row_sums,
                               .rows = segment.rows,
                               .cols = parameter.cols()});
    for (const LaneRange node : norm_nodes(segment, parameter)) {
      trees.sums.push_back({.values = row_sums + (node.first - segment.first_row),
                            .out = nodes++,
                            .count = node.count});
    }
    row_sums += segment.rows;
  }
  kernels.row_square_sums(stream, squares);
  kernels.tree_sum(stream, trees);
  return nodes;
}

NormTree::NormTree(const ShardPlan& plan, const RankLayout& layout, bool of_pass)
    : units_(plan.unit_count()) {
  collect(plan, layout, of_pass);
  for (ParameterNodes& parameter : parameters_) {
    std::sort(parameter.nodes.begin(), parameter.nodes.end(),
              [](const Node& a, const Node& b) { return a.rows.first < b.rows.first; });
  }
}

void NormTree::collect(const ShardPlan& plan, const RankLayout& layout, bool of_pass) {
  std::vector<std::size_t> first_of_unit = {0};
  for (std::size_t unit = 0; unit < units_; ++unit) {
    for (const Parameter& parameter : plan.units()[unit].parameters) {
      parameters_.push_back({.unit = unit, .rows = parameter.rows(), .nodes = {}});
    }
    first_of_unit.push_back(parameters_.size());
  }
  // A group's parameters are those of its units, one unit after the other.
  index_of_.resize(plan.groups().size());
  for (std::size_t group = 0; group < plan.groups().size(); ++group) {
    for (const std::size_t unit : plan.groups()[group].units) {
      for (std::size_t i = first_of_unit[unit]; i < first_of_unit[unit + 1]; ++i) {
        index_of_[group].push_back(i);
      }
    }
  }
  for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) {
    std::int64_t at = of_pass ? layout.pass_norm_block(rank) : layout.step_block(rank);
    for (std::size_t group = 0; group < plan.groups().size(); ++group) {
      if (rank == layout.rank()) {
        first_node_.push_back(at - layout.step_block(rank));
      }
      for (const Segment& segment : layout.reduce_part(group, rank).segments) {
        ParameterNodes& nodes = parameters_[index_of_[group][segment.parameter]];
        for (const LaneRange rows :
             norm_nodes(segment, plan.groups()[group].parameters[segment.parameter])) {
          nodes.nodes.push_back({.rows = rows, .at = at++});
        }
      }
    }
  }
}

std::vector<double> NormTree::parameter_squares(const double* values) const {
  std::vector<double> squares;
  for (const ParameterNodes& parameter : parameters_) {
    if (parameter.nodes.empty()) {  // frozen
      squares.push_back(0.0);
      continue;
    }
    std::size_t next = 0;
    squares.push_back(join(parameter.nodes, next, {0, parameter.rows}, values));
    TRAIN_CHECK(next == parameter.nodes.size(), "{} of {} nodes", next, parameter.nodes.size());
  }
  return squares;
}

double NormTree::finish(const double* values, std::vector<double>& unit_squares) const {
  std::vector<std::vector<double>> squares(units_);
  const std::vector<double> all = parameter_squares(values);
  for (std::size_t i = 0; i < all.size(); ++i) {
    squares[parameters_[i].unit].push_back(all[i]);
  }
  unit_squares.clear();
  for (const std::vector<double>& unit : squares) {
    unit_squares.push_back(tree_sum(unit.data(), static_cast<std::int64_t>(unit.size())));
  }
  return tree_sum(unit_squares.data(), static_cast<std::int64_t>(units_));
}

namespace {

/// The canonical tree over one field of loss sums that do not lie in the order of lanes.
template <class SumsOf>
double sum_lanes(std::int64_t lanes, double kernels::LossSums::*field, const SumsOf& sums_of) {
  std::vector<double> values;
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    values.push_back(sums_of(lane)->*field);
  }
  return tree_sum(values.data(), lanes);
}

}  // namespace

StepTotals::StepTotals(const RankPlan& rank)
    : rank_(&rank),
      step_sums_(rank.kernels(), bytes_of(rank.layout().step_block(rank.ranks()), sizeof(double)),
                 "norms and loss sums"),
      eval_sums_(rank.kernels(),
                 bytes_of(rank.layout().eval_block(rank.ranks()) * rank.layout().lane_doubles(),
                          sizeof(double)),
                 "evaluation loss sums"),
      nonfinite_(rank.kernels(),
                 bytes_of(rank.layout().lane_block(rank.ranks()),
                          2 * rank.unit_count() * sizeof(std::int64_t)),
                 "non-finite counts"),
      row_sums_(bytes_of(rank.layout().norm_rows(), sizeof(double)), "row sums",
                rank.device().memory),
      norms_(rank.plan(), rank.layout()),
      scalars_(rank.kernels(), sizeof(Scalars), "step scalars"),
      unread_sums_(sizeof(kernels::LossSums), "unread sums", rank.device().memory) {
  place_lanes();
  passes_.resize(rank.objective().passes(0).size());
  if (rank.layout().several_passes()) {
    pass_norms_.emplace(rank.plan(), rank.layout(), /*of_pass=*/true);
  }
  if (const std::size_t bytes = rank.layout().distance_factor_bytes(); bytes > 0) {
    distance_factors_.emplace(rank.kernels(), bytes, "factors of distances");
  }
}

void StepTotals::place_lanes() {
  const RankLayout& layout = rank_->layout();
  const std::int64_t ranks = rank_->ranks();
  step_sums_at_.resize(static_cast<std::size_t>(layout.lane_block(ranks)));
  lane_at_.resize(step_sums_at_.size());
  eval_sums_at_.resize(static_cast<std::size_t>(layout.eval_block(ranks)));
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    std::int64_t at = layout.step_block(rank) + layout.norm_count(rank);
    std::int64_t index = layout.lane_block(rank);
    for (const std::int64_t lane : rank_->plan().train_lanes().lanes_of(rank)) {
      step_sums_at_[static_cast<std::size_t>(lane)] = at;
      lane_at_[static_cast<std::size_t>(lane)] = index++;
      at += layout.lane_doubles();
    }
    at = layout.eval_block(rank) * layout.lane_doubles();
    for (const std::int64_t lane : rank_->plan().eval_lanes().lanes_of(rank)) {
      eval_sums_at_[static_cast<std::size_t>(lane)] = at;
      at += layout.lane_doubles();
    }
  }
}

kernels::LossSums* StepTotals::lane_sums(const LaneWork& work) const {
  const auto lane = static_cast<std::size_t>(work.lane);
  double* sums = work.pass.evaluates() ? eval_sums_.device<double>() + eval_sums_at_.at(lane)
                                       : step_sums_.device<double>() + step_sums_at_.at(lane);
  return reinterpret_cast<kernels::LossSums*>(sums);
}

void StepTotals::lane_summed(kernels::Stream& stream, const LaneWork& work) const {
  (work.pass.evaluates() ? eval_sums_ : step_sums_).to_host(stream, lane_sums(work));
}

StepTotals::LaneOutcome StepTotals::lane_outcome(const LaneWork& work) const {
  LaneOutcome whole = outcome(work.pass.evaluates(), work.lane);
  whole.metrics = whole.metrics.first(whole.metrics.size() - rank_->layout().block_sums());
  return whole;
}

StepTotals::LaneOutcome StepTotals::outcome(bool evaluation, std::int64_t lane) const {
  const auto index = static_cast<std::size_t>(lane);
  double* sums = evaluation ? eval_sums_.host<double>() + eval_sums_at_.at(index)
                            : step_sums_.host<double>() + step_sums_at_.at(index);
  constexpr std::size_t kOfSums = sizeof(kernels::LossSums) / sizeof(double);
  const auto metrics = static_cast<std::size_t>(rank_->layout().lane_doubles()) - kOfSums;
  return {.sums = reinterpret_cast<kernels::LossSums*>(sums),
          .metrics = {reinterpret_cast<MetricSum*>(sums + kOfSums),
                      metrics * sizeof(double) / sizeof(MetricSum)}};
}

double* StepTotals::block_sums(const LaneWork& work) const {
  const auto count = static_cast<std::int64_t>(2 * rank_->layout().block_sums());
  const bool counts = work.pass.evaluates() || work.pass.has_backward();
  return count == 0 || !counts
             ? nullptr
             : reinterpret_cast<double*>(lane_sums(work)) + rank_->layout().lane_doubles() - count;
}

void StepTotals::clear_block_sums(kernels::Stream& stream, const LaneWork& work) const {
  if (double* sums = block_sums(work)) {
    const auto floats = static_cast<std::int64_t>(4 * rank_->layout().block_sums());
    rank_->kernels().fill(stream, {.out = reinterpret_cast<float*>(sums), .count = floats});
  }
}

void StepTotals::blocks_summed(kernels::Stream& stream, const LaneWork& work) const {
  if (const double* sums = block_sums(work)) {
    (work.pass.evaluates() ? eval_sums_ : step_sums_)
        .to_host(stream, sums, 2 * rank_->layout().block_sums());
  }
}

std::vector<MetricSum> StepTotals::over_lanes(bool evaluation) const {
  const std::int64_t lanes =
      evaluation ? rank_->options().eval_lanes : rank_->plan().train_lanes().lanes();
  std::vector<MetricSum> totals;
  for (std::size_t metric = 0; lanes > 0 && metric < outcome(evaluation, 0).metrics.size();
       ++metric) {
    const auto total = [&](double MetricSum::*field) {
      std::vector<double> values;
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        values.push_back(outcome(evaluation, lane).metrics[metric].*field);
      }
      return tree_sum(values.data(), lanes);
    };
    totals.push_back({.sum = total(&MetricSum::sum), .count = total(&MetricSum::count)});
  }
  return totals;
}

std::vector<double> StepTotals::metrics(bool evaluation) const {
  std::vector<double> means;
  std::vector<MetricSum> totals = over_lanes(evaluation);
  const std::size_t blocks = std::min(totals.size(), rank_->layout().block_sums());
  for (const MetricSum& total : std::span(totals).first(totals.size() - blocks)) {
    means.push_back(mean_of(total));
  }
  if (const RowWeighting* weighting = rank_->objective().weighting()) {
    weighting->derive(means);
  }
  add_block_metrics(std::span(totals).last(blocks), means);
  return means;
}

void StepTotals::add_block_metrics(std::span<const MetricSum> sums,
                                   std::vector<double>& means) const {
  const std::vector<std::string> names = rank_->options().model.block_sums();
  for (const std::string& name : block_metrics(rank_->options().model)) {
    MetricSum total;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      total.sum += names[i] == name ? sums[i].sum : 0.0;
      total.count += names[i] == name ? sums[i].count : 0.0;
    }
    means.push_back(mean_of(total));
  }
}

std::size_t StepTotals::nonfinite_at(std::int64_t lane, std::size_t unit, bool backward) const {
  const auto index = static_cast<std::size_t>(lane_at_[static_cast<std::size_t>(lane)]);
  return (index * 2 + (backward ? 1 : 0)) * rank_->unit_count() + unit;
}

std::int64_t* StepTotals::nonfinite_count(const LaneWork& work, std::size_t unit,
                                          bool backward) const {
  return nonfinite_.device<std::int64_t>() + nonfinite_at(work.lane, unit, backward);
}

void StepTotals::nonfinite_counted(kernels::Stream& stream, const std::int64_t* count) const {
  nonfinite_.to_host(stream, count);
}

void StepTotals::add_norms(kernels::Stream& stream, std::size_t group,
                           const float* gradient) const {
  add_norms_at(stream, group, gradient,
               step_sums_.device<double>() + rank_->layout().step_block(rank_->rank()) +
                   norms_.first_node(group));
}

void StepTotals::add_norms_at(kernels::Stream& stream, std::size_t group, const float* gradient,
                              double* nodes) const {
  const double* end =
      sum_squares(rank_->kernels(), stream, rank_->group(group), rank_->layout(group).reduce,
                  gradient, row_sums_.as<double>(), nodes);
  step_sums_.to_host(stream, nodes, static_cast<std::size_t>(end - nodes));
}

std::span<std::byte> StepTotals::block(CollectiveKind kind, std::int64_t rank) const {
  const RankLayout& layout = rank_->layout();
  const auto range = [](const HostDeviceBuffer& buffer, std::int64_t first, std::int64_t end,
                        std::size_t size) {
    return std::span<std::byte>(buffer.host<std::byte>() + bytes_of(first, size),
                                bytes_of(end - first, size));
  };
  if (kind == CollectiveKind::loss_and_norm) {
    return range(step_sums_, layout.step_block(rank), layout.step_block(rank + 1), sizeof(double));
  }
  if (kind == CollectiveKind::eval_sums) {
    return range(eval_sums_, layout.eval_block(rank) * layout.lane_doubles(),
                 layout.eval_block(rank + 1) * layout.lane_doubles(), sizeof(double));
  }
  return range(nonfinite_, layout.lane_block(rank), layout.lane_block(rank + 1),
               2 * rank_->unit_count() * sizeof(std::int64_t));
}

void StepTotals::combine(kernels::Stream& stream, std::int64_t step) {
  auto* results = scalars_.host<Scalars>();
  const bool several = rank_->layout().several_passes();
  stream.enqueue([this, step, several, results] {
    if (several) {
      return combine_passes(step);
    }
    results->cross_entropy = lane_total(&kernels::LossSums::cross_entropy);
    results->z_squared = lane_total(&kernels::LossSums::z_squared);
    results->squared_norm = norms_.finish(step_sums_.host<double>(), unit_squares_);
    metrics_ = metrics(/*evaluation=*/false);
  });
  scalars_.to_device(stream, results);
  auto* scalars = scalars_.device<Scalars>();
  const RankOptions& options = rank_->options();
  const auto z_loss = static_cast<double>(options.model.z_loss_coeff);
  rank_->kernels().clip_scale(stream, {.squared_norm = &scalars->squared_norm,
                                       .cross_entropy = &scalars->cross_entropy,
                                       .z_squared = &scalars->z_squared,
                                       .guard = &scalars->guard,
                                       .loss_scale = several ? 1.0 : rank_->step_mean(step, 1.0),
                                       .z_scale = rank_->step_mean(step, z_loss),
                                       .clip = static_cast<float>(options.optimizer.grad_clip)});
  scalars_.to_host(stream, &scalars->guard);
}

const kernels::UpdateGuard* StepTotals::guard() const { return &scalars_.device<Scalars>()->guard; }

StepResult StepTotals::step_result(std::int64_t step) const {
  StepResult result{.loss = results().guard.loss,
                    .cross_entropy = rank_->layout().several_passes()
                                         ? results().cross_entropy
                                         : rank_->step_mean(step, results().cross_entropy),
                    .grad_norm = static_cast<double>(results().guard.grad_norm),
                    .lr = rank_->learning_rate_of(step),
                    .nonfinite = nonfinite(),
                    .unit_grad_norms = {},
                    .optimizer_sums = {},
                    .metrics = metrics_};
  for (const double square : unit_squares_) {
    result.unit_grad_norms.push_back(std::sqrt(square));
  }
  return result;
}

EvaluationResult StepTotals::evaluation_result() const {
  const auto sums_of = [this](std::int64_t lane) { return outcome(true, lane).sums; };
  const std::int64_t lanes = rank_->options().eval_lanes;
  const auto sum = [&](double kernels::LossSums::*field) {
    return lanes > 0 ? sum_lanes(lanes, field, sums_of) : 0.0;
  };
  const auto mean = [](double total, double count) { return count > 0.0 ? total / count : 0.0; };
  const double targets = sum(&kernels::LossSums::targets);
  return {.cross_entropy =
              mean(sum(&kernels::LossSums::cross_entropy), sum(&kernels::LossSums::weights)),
          .accuracy = mean(sum(&kernels::LossSums::correct), targets),
          .targets = targets,
          .metrics = metrics(/*evaluation=*/true)};
}

NonfiniteOrigin StepTotals::nonfinite_origin() const {
  const auto* counts = nonfinite_.host<std::int64_t>();
  for (std::int64_t lane = 0; lane < rank_->plan().train_lanes().lanes(); ++lane) {
    for (std::size_t unit = 0; unit < rank_->unit_count(); ++unit) {
      if (counts[nonfinite_at(lane, unit, false)] > 0) {
        return {.found = true, .lane = lane, .unit = unit, .backward = false};
      }
    }
    for (std::size_t unit = rank_->unit_count(); unit-- > 0;) {
      if (counts[nonfinite_at(lane, unit, true)] > 0) {
        return {.found = true, .lane = lane, .unit = unit, .backward = true};
      }
    }
  }
  return {};
}

bool StepTotals::nonfinite() const { return results().guard.nonfinite != 0; }

void StepTotals::add_allocated(MemoryPlan& memory) const {
  memory.buffers_bytes += step_sums_.size_bytes() + eval_sums_.size_bytes() +
                          nonfinite_.size_bytes() + row_sums_.size_bytes() +
                          (distance_factors_ ? distance_factors_->size_bytes() : 0);
}

// Outcomes of the passes in a step of several passes.

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
