// What a step, an evaluation or a probe comes to, once the ranks' sums are exchanged.

#include <cmath>

#include "base/check.hpp"
#include "engine/rank/rank_engine_parts.hpp"

namespace train::engine {
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

void RankEngine::finish_gradient(kernels::Stream& stream, std::size_t group) {
  GroupGradient& gradient = parts_->gradients[group];
  std::optional<LaneTree>& tree = plan_.ranks() == 1 ? gradient.own : gradient.owner;
  if (!tree) {
    return;  // No row of the group is this rank's.
  }
  TRAIN_CHECK(tree->held().size() == 1, "{}: {} sums are left of {} lanes",
              plan_.groups()[group].name, tree->held().size(), plan_.train_lanes().lanes());
  tree->clear();
  for (const std::size_t index : parts_->frozen[group]) {
    const GradientShard& shard = parts_->gradient_set->shards()[index];
    kernels_->fill(stream, {.out = shard.data, .value = 0.0F, .count = shard.rows * shard.cols});
  }
  double* nodes = parts_->step_sums.device<double>() + parts_->layout.step_block(options_.rank) +
                  parts_->norms.first_node(group);
  const double* end =
      sum_squares(*kernels_, stream, plan_.groups()[group], parts_->layout.group(group).reduce,
                  tree->root(), parts_->row_sums.as<double>(), nodes);
  parts_->step_sums.to_host(stream, nodes, static_cast<std::size_t>(end - nodes));
}

void RankEngine::combine(kernels::Stream& stream) {
  const MirroredBuffer& mirrored = parts_->scalars;
  auto* results = mirrored.host<StepScalars>();
  stream.enqueue([parts = parts_.get(), lanes = plan_.train_lanes().lanes(), results] {
    const auto sums_of = [parts](std::int64_t lane) { return parts->host_lane_sums(lane); };
    results->cross_entropy = sum_lanes(lanes, &kernels::LossSums::cross_entropy, sums_of);
    results->z_squared = sum_lanes(lanes, &kernels::LossSums::z_squared, sums_of);
    results->squared_norm =
        parts->norms.finish(parts->step_sums.host<double>(), parts->unit_squares);
  });
  mirrored.to_device(stream, results);
  auto* scalars = mirrored.device<StepScalars>();
  const auto tokens = static_cast<double>(tokens_per_step());
  kernels_->clip_scale(stream,
                       {.squared_norm = &scalars->squared_norm,
                        .cross_entropy = &scalars->cross_entropy,
                        .z_squared = &scalars->z_squared,
                        .gate = &scalars->gate,
                        .loss_scale = 1.0 / tokens,
                        .z_scale = static_cast<double>(options_.shape.z_loss_coeff) / tokens,
                        .clip = static_cast<float>(options_.optimizer.grad_clip)});
  mirrored.to_host(stream, &scalars->gate);
}

StepResult RankEngine::step_result(std::int64_t step) const {
  const StepScalars& results = parts_->results();
  StepResult result{.loss = results.gate.loss,
                    .cross_entropy = results.cross_entropy / static_cast<double>(tokens_per_step()),
                    .grad_norm = static_cast<double>(results.gate.grad_norm),
                    .lr = learning_rate_of(step),
                    .poisoned = results.gate.poisoned != 0,
                    .unit_grad_norms = {},
                    .optimizer_sums = {}};
  for (const double square : parts_->unit_squares) {
    result.unit_grad_norms.push_back(std::sqrt(square));
  }
  if (diagnosed(step) && !result.poisoned) {
    result.optimizer_sums = parts_->group_sums.front();
    add_each(result.optimizer_sums, parts_->group_sums.back());
  }
  return result;
}

EvaluationResult RankEngine::evaluation_result() const {
  const auto sums_of = [this](std::int64_t lane) {
    return parts_->eval_sums.host<kernels::LossSums>() +
           parts_->eval_sums_at[static_cast<std::size_t>(lane)];
  };
  const std::int64_t lanes = plan_.eval_lanes().lanes();
  const double targets = sum_lanes(lanes, &kernels::LossSums::targets, sums_of);
  return {.cross_entropy = sum_lanes(lanes, &kernels::LossSums::cross_entropy, sums_of) / targets,
          .accuracy = sum_lanes(lanes, &kernels::LossSums::correct, sums_of) / targets,
          .targets = targets};
}

NonfiniteOrigin RankEngine::nonfinite_origin() const {
  const auto* counts = parts_->nonfinite.host<std::int64_t>();
  for (std::int64_t lane = 0; lane < plan_.train_lanes().lanes(); ++lane) {
    for (std::size_t unit = 0; unit < unit_count(); ++unit) {
      if (counts[nonfinite_at(lane, unit, false)] > 0) {
        return {.found = true, .lane = lane, .unit = unit, .backward = false};
      }
    }
    for (std::size_t unit = unit_count(); unit-- > 0;) {
      if (counts[nonfinite_at(lane, unit, true)] > 0) {
        return {.found = true, .lane = lane, .unit = unit, .backward = true};
      }
    }
  }
  return {};
}

bool RankEngine::poisoned() const { return parts_->results().gate.poisoned != 0; }

MemoryPlan RankEngine::allocated() const {
  MemoryPlan memory;
  const auto sum = [](const std::vector<kernels::Buffer>& buffers) {
    std::size_t size_bytes = 0;
    for (const kernels::Buffer& buffer : buffers) {
      size_bytes += buffer.size_bytes();
    }
    return size_bytes;
  };
  for (std::size_t index = 0; index < parts_->gradients.size(); ++index) {
    const GroupGradient& gradient = parts_->gradients[index];
    memory.parameters_bytes += parts_->states[index].weights_bytes();
    memory.optimizer_bytes += parts_->states[index].optimizer_bytes();
    memory.offloaded_bytes += parts_->states[index].offloaded_bytes();
    memory.gathered_bytes += gradient.kept.size_bytes();
    const std::size_t all = (gradient.own ? gradient.own->size_bytes() : 0) +
                            (gradient.owner ? gradient.owner->size_bytes() : 0) +
                            gradient.spread.size_bytes();
    const std::size_t kept = parts_->layout.gradient_bytes(index);
    memory.gradients_bytes += kept;
    memory.lane_sums_bytes += all - kept;
  }
  memory.gathered_bytes += sum(parts_->gather_buffers) + parts_->made_weights.size_bytes();
  memory.transfer_bytes = sum(parts_->leaves) + parts_->sum_scratch.size_bytes();
  for (const auto& channel : parts_->staging) {
    for (const MirroredBuffer& slot : channel) {
      memory.transfer_bytes += slot.size_bytes();
    }
  }
  memory.activations_bytes = parts_->model.activation_bytes();
  memory.buffers_bytes = parts_->tokens.size_bytes() + parts_->targets.size_bytes() +
                         parts_->step_sums.size_bytes() + parts_->eval_sums.size_bytes() +
                         parts_->nonfinite.size_bytes() + parts_->row_sums.size_bytes() +
                         parts_->rounding.size_bytes() + parts_->optimizer_scratch.size_bytes() +
                         parts_->optimizer_sums.size_bytes();
  return memory;
}

}  // namespace train::engine
