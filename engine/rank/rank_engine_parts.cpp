#include "engine/rank/rank_engine_parts.hpp"

#include <fmt/format.h>

#include "base/byte_sizes.hpp"
#include "base/check.hpp"

namespace train::engine {
namespace {

std::vector<kernels::Buffer> make_shared(std::int64_t count, std::size_t size_bytes,
                                         const char* name, kernels::MemoryKind kind) {
  std::vector<kernels::Buffer> buffers;
  for (std::int64_t i = 0; i < count; ++i) {
    buffers.emplace_back(size_bytes, fmt::format("{} {}", name, i), kind);
  }
  return buffers;
}

}  // namespace

RankEngine::Parts::Parts(const kernels::KernelTable& kernels, const Options& options,
                         const ShardPlan& plan)
    : layout(plan, options),
      model(options.shape, kernels, options.batch.micro_batch, options.seq_len, true,
            layout.activations(checkpointing_of(options.memory))),
      train_schedule(plan, CommandKind::train_step),
      eval_schedule(plan, CommandKind::evaluate),
      diagnose_schedule(plan, CommandKind::diagnose),
      norms(plan, layout),
      scalars(kernels, sizeof(StepScalars), "step scalars"),
      decay(kernels, layout.optimizer(), ParameterGroup::decay),
      no_decay(kernels, layout.optimizer(), ParameterGroup::no_decay) {
  staged_on_host = !kernels.device->is_host() && options.parallel.transport != "nccl";
  make_buffers(kernels, options);
  make_staging(kernels);
  make_blocks(kernels, plan);
  states.reserve(plan.groups().size());
  for (std::size_t index = 0; index < plan.groups().size(); ++index) {
    states.emplace_back(kernels, plan.groups()[index], layout.group(index), layout.optimizer(),
                        layout.compute_weights(), layout.offload());
    states.back().initialise(options.shape, options.init);
  }
  make_gradients(kernels, plan);
}

void RankEngine::Parts::make_gradients(const kernels::KernelTable& kernels, const ShardPlan& plan) {
  const std::int64_t lanes = plan.train_lanes().lanes();
  std::size_t in_activations = 0;
  for (std::size_t index = 0; index < plan.groups().size(); ++index) {
    const GroupLayout& group = layout.group(index);
    const std::string& name = plan.groups()[index].name;
    GroupGradient& gradient = gradients.emplace_back();
    if (group.own_buffers > 0) {
      gradient.own.emplace(
          kernels, group.flat, lanes, layout.sum_order(), group.own_buffers, "gradients of " + name,
          group.in_activations ? model.gradient_memory(in_activations++) : nullptr);
    }
    if (group.owner_buffers > 0) {
      gradient.owner.emplace(kernels, group.reduce.element_count, lanes, layout.sum_order(),
                             group.owner_buffers, "reduced gradients of " + name);
    }
    if (group.spread_apart) {
      gradient.spread = {bytes_of(group.state.element_count, sizeof(float)),
                         "spread gradients of " + name, kernels.device->memory};
    }
    gradient.kept = {bytes_of(group.kept_here.element_count, layout.compute_size()),
                     "kept weights of " + name, kernels.device->memory};
  }
}

void RankEngine::Parts::make_buffers(const kernels::KernelTable& kernels, const Options& options) {
  const kernels::MemoryKind kind = kernels.device->memory;
  gather_buffers =
      make_shared(layout.gather_buffers(),
                  bytes_of(layout.gather_elements(), kernels::size_of(layout.compute_dtype())),
                  "gathered", kind);
  leaves = make_shared(layout.leaf_buffers(), bytes_of(layout.leaf_elements(), sizeof(float)),
                       "gradient leaf", kind);
  sum_scratch = {bytes_of(layout.sum_scratch_elements(), sizeof(float)), "received sum", kind};
  made_weights = {bytes_of(layout.made_elements(), size_of(layout.compute_dtype())), "made weights",
                  kind};
  rounding = {bytes_of(layout.rounding_elements(), sizeof(std::uint16_t)), "rounded weights", kind};
  row_sums = {bytes_of(layout.norm_rows(), sizeof(double)), "row sums", kind};
  optimizer_scratch = {layout.optimizer_scratch_bytes(), "scratch of the optimizer", kind};
  optimizer_sums = {kernels, bytes_of(layout.optimizer_sums(), sizeof(double)),
                    "row sums of the optimizer"};
  const std::size_t slots = bytes_of(
      options.batch.micro_batch * options.seq_len * options.lane_slots, sizeof(std::int32_t));
  tokens = {kernels, slots, "lane tokens"};
  targets = {kernels, slots, "lane targets"};
}

void RankEngine::Parts::make_staging(const kernels::KernelTable& kernels) {
  for (const Channel channel : {Channel::gather, Channel::reduce}) {
    const auto at = static_cast<std::size_t>(channel);
    for (std::size_t slot = 0; slot < kStagingSlots; ++slot) {
      const std::string name = fmt::format("staging of {}", channel_name(channel));
      staging[at][slot] = {kernels, layout.staging_bytes(channel), name, staged_on_host};
      if (staged_on_host) {
        outgoing[at][slot] = {layout.outgoing_bytes(channel), name + ", outgoing",
                              kernels.device->staging};
      }
    }
  }
}

void RankEngine::Parts::make_blocks(const kernels::KernelTable& kernels, const ShardPlan& plan) {
  const std::int64_t ranks = layout.ranks();
  const std::size_t lane_counts = 2 * plan.unit_count() * sizeof(std::int64_t);
  step_sums = {kernels, bytes_of(layout.step_block(ranks), sizeof(double)), "norms and loss sums"};
  eval_sums = {kernels, bytes_of(layout.eval_block(ranks), sizeof(kernels::LossSums)),
               "evaluation loss sums"};
  nonfinite = {kernels, bytes_of(layout.lane_block(ranks), lane_counts), "non-finite counts"};
  step_sums_at.resize(static_cast<std::size_t>(layout.lane_block(ranks)));
  lane_at.resize(step_sums_at.size());
  eval_sums_at.resize(static_cast<std::size_t>(layout.eval_block(ranks)));
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    std::int64_t at = layout.step_block(rank) + layout.norm_count(rank);
    std::int64_t place = layout.lane_block(rank);
    for (const std::int64_t lane : plan.train_lanes().lanes_of(rank)) {
      step_sums_at[static_cast<std::size_t>(lane)] = at;
      lane_at[static_cast<std::size_t>(lane)] = place++;
      at += static_cast<std::int64_t>(sizeof(kernels::LossSums) / sizeof(double));
    }
    place = layout.eval_block(rank);
    for (const std::int64_t lane : plan.eval_lanes().lanes_of(rank)) {
      eval_sums_at[static_cast<std::size_t>(lane)] = place++;
    }
  }
}

kernels::LossSums* RankEngine::Parts::lane_sums(std::int64_t lane) const {
  return reinterpret_cast<kernels::LossSums*>(step_sums.device<double>() +
                                              step_sums_at[static_cast<std::size_t>(lane)]);
}

const kernels::LossSums* RankEngine::Parts::host_lane_sums(std::int64_t lane) const {
  return reinterpret_cast<const kernels::LossSums*>(step_sums.host<double>() +
                                                    step_sums_at[static_cast<std::size_t>(lane)]);
}

float* RankEngine::Parts::reduced(std::size_t group) const {
  const GroupGradient& gradient = gradients[group];
  if (layout.ranks() == 1) {
    return gradient.own->root();
  }
  return gradient.owner ? gradient.owner->root() : nullptr;
}

float* RankEngine::Parts::optimizer_gradient(const ShardPlan& plan, std::size_t group,
                                             const Segment& segment) const {
  const GroupGradient& gradient = gradients[group];
  if (layout.group(group).spread_apart) {
    return gradient.spread.as<float>() + segment.packed_offset;
  }
  if (layout.ranks() > 1 && plan.spread(group)) {
    return gradient.own->root() + segment.flat_offset;
  }
  return reduced(group) + segment.packed_offset;
}

const MirroredBuffer& RankEngine::Parts::staged(const CollectiveOp& op) const {
  return staging[static_cast<std::size_t>(op.channel)][op.index % kStagingSlots];
}

const kernels::Buffer& RankEngine::Parts::outgoing_of(const CollectiveOp& op) const {
  return outgoing[static_cast<std::size_t>(op.channel)][op.index % kStagingSlots];
}

}  // namespace train::engine
