#include "engine/rank/exec/totals/lane_sums.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <unordered_map>

#include "base/text/byte_sizes.hpp"
#include "engine/lanes/lane_tree.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/backend.hpp"

namespace train::engine {

namespace {

double mean_of(const MetricSum& total) {
  return total.count > 0.0 ? total.sum / total.count : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

LaneSums::LaneSums(const RankPlan& rank, const HostDeviceBuffer& step_sums)
    : rank_(&rank),
      step_sums_(&step_sums),
      eval_sums_(rank.kernels(),
                 bytes_of(rank.layout().eval_block(rank.ranks()) * rank.layout().lane_doubles(),
                          sizeof(double)),
                 "evaluation loss sums"),
      step_totals_(rank.kernels(), rank.layout().step_sums() * sizeof(double), "step sums"),
      unread_(sizeof(kernels::LossSums), "unread sums", rank.device().memory) {
  place_lanes();
  const std::vector<std::string> metrics = block_metrics(rank.options().model);
  std::unordered_map<std::string, std::size_t> index;
  for (const std::string& name : metrics) {
    index.emplace(name, index.size());
  }
  for (const std::string& name : rank.options().model.block_sums()) {
    block_metric_of_.push_back(index.at(name));
  }
  block_metric_count_ = metrics.size();
}

void LaneSums::place_lanes() {
  const RankLayout& layout = rank_->layout();
  const std::int64_t ranks = rank_->ranks();
  step_sums_at_.resize(static_cast<std::size_t>(layout.lane_block(ranks)));
  eval_sums_at_.resize(static_cast<std::size_t>(layout.eval_block(ranks)));
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    std::int64_t at = layout.step_block(rank) + layout.norm_count(rank);
    for (const std::int64_t lane : rank_->plan().train_lanes().lanes_of(rank)) {
      step_sums_at_[static_cast<std::size_t>(lane)] = at;
      at += layout.lane_doubles();
    }
    at = layout.eval_block(rank) * layout.lane_doubles();
    for (const std::int64_t lane : rank_->plan().eval_lanes().lanes_of(rank)) {
      eval_sums_at_[static_cast<std::size_t>(lane)] = at;
      at += layout.lane_doubles();
    }
  }
}

kernels::LossSums* LaneSums::sums(const LaneWork& work) const {
  const auto lane = static_cast<std::size_t>(work.lane);
  const std::int64_t at = (work.pass.evaluates() ? eval_sums_at_ : step_sums_at_).at(lane);
  return reinterpret_cast<kernels::LossSums*>(buffer_of(work).device<double>() + at);
}

void LaneSums::summed(kernels::Stream& stream, const LaneWork& work) const {
  buffer_of(work).to_host(stream, sums(work));
}

LaneSums::Outcome LaneSums::outcome(const LaneWork& work) const {
  const RankLayout& layout = rank_->layout();
  Outcome whole = whole_outcome(work.pass.evaluates(), work.lane);
  whole.metrics =
      whole.metrics.first(whole.metrics.size() - layout.block_sums() - layout.source_sums());
  return whole;
}

std::span<MetricSum> LaneSums::source_sums(const LaneWork& work) const {
  const RankLayout& layout = rank_->layout();
  return whole_outcome(work.pass.evaluates(), work.lane)
      .metrics.last(layout.block_sums() + layout.source_sums())
      .first(layout.source_sums());
}

LaneSums::Outcome LaneSums::whole_outcome(bool evaluation, std::int64_t lane) const {
  const auto index = static_cast<std::size_t>(lane);
  double* sums = evaluation ? eval_sums_.host<double>() + eval_sums_at_.at(index)
                            : step_sums_->host<double>() + step_sums_at_.at(index);
  constexpr std::size_t kOfSums = sizeof(kernels::LossSums) / sizeof(double);
  const auto metrics = static_cast<std::size_t>(rank_->layout().lane_doubles()) - kOfSums;
  return {.sums = reinterpret_cast<kernels::LossSums*>(sums),
          .metrics = {reinterpret_cast<MetricSum*>(sums + kOfSums),
                      metrics * sizeof(double) / sizeof(MetricSum)}};
}

double* LaneSums::block_sums(const LaneWork& work) const {
  const auto count = static_cast<std::int64_t>(2 * rank_->layout().block_sums());
  const bool counts =
      work.pass.evaluates() || work.pass.has_backward() || work.pass.loss == LossUse::block_sums;
  return count == 0 || !counts
             ? nullptr
             : reinterpret_cast<double*>(sums(work)) + rank_->layout().lane_doubles() - count;
}

void LaneSums::clear_block_sums(kernels::Stream& stream, const LaneWork& work) const {
  if (double* sums = block_sums(work)) {
    const auto floats = static_cast<std::int64_t>(4 * rank_->layout().block_sums());
    rank_->kernels().fill(stream, {.out = reinterpret_cast<float*>(sums), .count = floats});
  }
}

void LaneSums::blocks_summed(kernels::Stream& stream, const LaneWork& work) const {
  if (const double* sums = block_sums(work)) {
    buffer_of(work).to_host(stream, sums, 2 * rank_->layout().block_sums());
  }
}

const double* LaneSums::step_sums() const {
  return rank_->layout().step_sums() == 0 ? nullptr : step_totals_.device<double>();
}

void LaneSums::add_step_sums(kernels::Stream& stream) const {
  const std::size_t count = rank_->layout().step_sums();
  auto* totals = step_totals_.host<double>();
  stream.enqueue([this, totals, count] {
    std::vector<double> values(static_cast<std::size_t>(lanes(/*evaluation=*/false)));
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t lane = 0; lane < values.size(); ++lane) {
        const Outcome whole = whole_outcome(/*evaluation=*/false, static_cast<std::int64_t>(lane));
        values[lane] = whole.metrics.last(count)[i].sum;
      }
      totals[i] = tree_sum(values.data(), std::ssize(values));
    }
  });
  step_totals_.to_device(stream, totals, count);
}

std::span<std::byte> LaneSums::step_lanes_block(std::int64_t rank) const {
  const RankLayout& layout = rank_->layout();
  const std::int64_t first = layout.step_block(rank) + layout.norm_count(rank);
  const std::int64_t lanes = layout.lane_block(rank + 1) - layout.lane_block(rank);
  return {step_sums_->host<std::byte>() + bytes_of(first, sizeof(double)),
          bytes_of(lanes * layout.lane_doubles(), sizeof(double))};
}

std::span<std::byte> LaneSums::eval_block(std::int64_t rank) const {
  const RankLayout& layout = rank_->layout();
  const std::int64_t first = layout.eval_block(rank);
  const std::size_t lane = bytes_of(layout.lane_doubles(), sizeof(double));
  return {eval_sums_.host<std::byte>() + bytes_of(first, lane),
          bytes_of(layout.eval_block(rank + 1) - first, lane)};
}

std::int64_t LaneSums::lanes(bool evaluation) const {
  return evaluation ? rank_->options().eval_lanes : rank_->plan().train_lanes().lanes();
}

double LaneSums::total(bool evaluation, double kernels::LossSums::*field) const {
  std::vector<double> values;
  for (std::int64_t lane = 0; lane < lanes(evaluation); ++lane) {
    values.push_back(whole_outcome(evaluation, lane).sums->*field);
  }
  return values.empty() ? 0.0 : tree_sum(values.data(), static_cast<std::int64_t>(values.size()));
}

std::vector<MetricSum> LaneSums::over_lanes(bool evaluation) const {
  const std::int64_t lanes = this->lanes(evaluation);
  std::vector<MetricSum> totals;
  for (std::size_t metric = 0; lanes > 0 && metric < whole_outcome(evaluation, 0).metrics.size();
       ++metric) {
    const auto total = [&](double MetricSum::*field) {
      std::vector<double> values;
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        values.push_back(whole_outcome(evaluation, lane).metrics[metric].*field);
      }
      return tree_sum(values.data(), lanes);
    };
    totals.push_back({.sum = total(&MetricSum::sum), .count = total(&MetricSum::count)});
  }
  return totals;
}

std::vector<double> LaneSums::metrics(bool evaluation) const {
  std::vector<double> means;
  std::vector<MetricSum> totals = over_lanes(evaluation);
  const std::size_t blocks = std::min(totals.size(), rank_->layout().block_sums());
  const std::size_t sources = std::min(totals.size(), rank_->layout().source_sums());
  const auto add = [&means](std::span<const MetricSum> sums) {
    std::ranges::transform(sums, std::back_inserter(means), mean_of);
  };
  const std::span<const MetricSum> others = std::span(totals).first(totals.size() - blocks);
  add(others.first(others.size() - sources));
  if (const RowWeighting* weighting = rank_->objective().weighting()) {
    weighting->derive(means);
  }
  add(others.last(sources));
  append_block_means(std::span(totals).last(blocks), means);
  return means;
}

void LaneSums::add_block_metrics(std::vector<double>& means) const {
  append_block_means(over_lanes(/*evaluation=*/false), means);
}

void LaneSums::append_block_means(std::span<const MetricSum> sums,
                                  std::vector<double>& means) const {
  std::vector<MetricSum> totals(block_metric_count_);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    totals[block_metric_of_[i]].sum += sums[i].sum;
    totals[block_metric_of_[i]].count += sums[i].count;
  }
  for (const MetricSum& total : totals) {
    means.push_back(mean_of(total));
  }
}

EvaluationResult LaneSums::evaluation_result() const {
  const auto sum = [this](double kernels::LossSums::*field) {
    return total(/*evaluation=*/true, field);
  };
  const auto mean = [](double total, double count) { return count > 0.0 ? total / count : 0.0; };
  const double targets = sum(&kernels::LossSums::targets);
  return {.cross_entropy =
              mean(sum(&kernels::LossSums::cross_entropy), sum(&kernels::LossSums::weights)),
          .accuracy = mean(sum(&kernels::LossSums::correct), targets),
          .targets = targets,
          .metrics = metrics(/*evaluation=*/true)};
}

}  // namespace train::engine
