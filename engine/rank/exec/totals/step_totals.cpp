#include "engine/rank/exec/totals/step_totals.hpp"

#include <cmath>
#include <limits>

#include "base/text/byte_sizes.hpp"
#include "kernels/backend.hpp"
#include "kernels/optimizer/global_norm.hpp"
#include "kernels/optimizer/update_guard.hpp"

namespace train::engine {

struct StepTotals::Scalars {
  double squared_norm = 0.0;
  double cross_entropy = 0.0;
  double z_squared = 0.0;
  double reserved = 0.0;
  kernels::UpdateGuard guard;
};

StepTotals::StepTotals(const RankPlan& rank)
    : rank_(&rank),
      step_sums_(rank.kernels(), bytes_of(rank.layout().step_block(rank.ranks()), sizeof(double)),
                 "norms and loss sums"),
      lanes_(rank, step_sums_),
      nonfinite_(rank),
      row_sums_(bytes_of(rank.layout().norm_rows(), sizeof(double)), "row sums",
                rank.device().memory),
      norms_(rank.plan(), rank.layout()),
      scalars_(rank.kernels(), sizeof(Scalars), "step scalars") {
  if (rank.layout().several_passes()) {
    passes_.emplace(rank, step_sums_, lanes_, norms_);
  }
}

void StepTotals::add_norms(kernels::Stream& stream, std::size_t group,
                           const float* gradient) const {
  add_norms_of(norms_, stream, group, gradient);
}

void StepTotals::add_pass_norms(kernels::Stream& stream, std::size_t group,
                                const float* gradient) const {
  add_norms_of(passes_->norms(), stream, group, gradient);
}

void StepTotals::add_norms_of(const NormTree& tree, kernels::Stream& stream, std::size_t group,
                              const float* gradient) const {
  double* nodes = step_sums_.device<double>() + rank_->layout().step_block(rank_->rank()) +
                  tree.first_node(group);
  const double* end =
      sum_squares(rank_->kernels(), stream, rank_->group(group), rank_->layout(group).reduce,
                  gradient, row_sums_.as<double>(), nodes);
  step_sums_.to_host(stream, nodes, static_cast<std::size_t>(end - nodes));
}

std::span<std::byte> StepTotals::block(CollectiveKind kind, std::int64_t rank) const {
  if (kind == CollectiveKind::eval_sums) {
    return lanes_.eval_block(rank);
  }
  if (kind == CollectiveKind::block_sums) {
    return lanes_.step_lanes_block(rank);
  }
  if (kind != CollectiveKind::loss_and_norm) {
    return nonfinite_.block(rank);
  }
  const std::int64_t first = rank_->layout().step_block(rank);
  return {step_sums_.host<std::byte>() + bytes_of(first, sizeof(double)),
          bytes_of(rank_->layout().step_block(rank + 1) - first, sizeof(double))};
}

void StepTotals::finish(std::int64_t step, Scalars& results) {
  results.squared_norm = norms_.finish(step_sums_.host<double>(), unit_squares_);
  if (passes_) {
    PassTotals::Finished finished = passes_->finish(step);
    // Where signs disagree a join may drop non-finite values: training must not go on around them.
    if (!finished.finite) {
      results.squared_norm = std::numeric_limits<double>::quiet_NaN();
    }
    results.z_squared = 0.0;
    results.cross_entropy = finished.loss;
    metrics_ = std::move(finished.metrics);
    return;
  }
  results.cross_entropy = lanes_.total(/*evaluation=*/false, &kernels::LossSums::cross_entropy);
  results.z_squared = lanes_.total(/*evaluation=*/false, &kernels::LossSums::z_squared);
  metrics_ = lanes_.metrics(/*evaluation=*/false);
}

void StepTotals::combine(kernels::Stream& stream, std::int64_t step) {
  auto* results = scalars_.host<Scalars>();
  stream.enqueue([this, step, results] { finish(step, *results); });
  scalars_.to_device(stream, results);
  auto* scalars = scalars_.device<Scalars>();
  const RankOptions& options = rank_->options();
  const auto z_loss = static_cast<double>(options.model.z_loss_coeff);
  rank_->kernels().clip_scale(stream, {.squared_norm = &scalars->squared_norm,
                                       .cross_entropy = &scalars->cross_entropy,
                                       .z_squared = &scalars->z_squared,
                                       .guard = &scalars->guard,
                                       .loss_scale = passes_ ? 1.0 : rank_->step_mean(step, 1.0),
                                       .z_scale = rank_->step_mean(step, z_loss),
                                       .clip = static_cast<float>(options.optimizer.grad_clip)});
  scalars_.to_host(stream, &scalars->guard);
}

const StepTotals::Scalars& StepTotals::results() const { return *scalars_.host<Scalars>(); }

const kernels::UpdateGuard* StepTotals::guard() const { return &scalars_.device<Scalars>()->guard; }

StepResult StepTotals::step_result(std::int64_t step) const {
  StepResult result{.loss = results().guard.loss,
                    .cross_entropy = passes_ ? results().cross_entropy
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

bool StepTotals::nonfinite() const { return results().guard.nonfinite != 0; }

void StepTotals::add_allocated(MemoryPlan& memory) const {
  memory.buffers_bytes += step_sums_.size_bytes() + lanes_.size_bytes() + nonfinite_.size_bytes() +
                          row_sums_.size_bytes() + (passes_ ? passes_->size_bytes() : 0);
}

}  // namespace train::engine
