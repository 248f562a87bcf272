#include "run/memory/run_needs.hpp"

#include <algorithm>

#include "engine/rank/exec/exchanges.hpp"
#include "engine/rank/exec/rank_memory.hpp"
#include "engine/rank/state/state_rows.hpp"
#include "run/plan/kept_checkpoints.hpp"
#include "run/plan/node_position.hpp"
#include "run/program/run_program.hpp"

namespace train::run {
namespace {

using engine::Channel;

/// Copies on the host of what a device's rank sends and receives by way of it.
std::uint64_t transfer_copies(const engine::RankLayout& layout) {
  std::uint64_t bytes = 0;
  for (const Channel channel : {Channel::gather, Channel::reduce}) {
    bytes += layout.staging_bytes(channel) + layout.outgoing_bytes(channel);
  }
  return engine::kStagingSlots * bytes;
}

/// Bytes of the largest tensor's rows in a rank's shard.
std::uint64_t largest_rows(const engine::ShardPlan& plan, std::int64_t rank) {
  std::int64_t largest = 0;
  for (std::size_t index = 0; index < plan.groups().size(); ++index) {
    const engine::ShardGroup& group = plan.groups()[index];
    const engine::RowCut cut = plan.reduce_cut(index, rank);
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      const engine::Parameter& parameter = group.parameters[i];
      const auto [first, end] = engine::rows_of_cut(parameter.rows(), group.owners[i], cut);
      largest = std::max(largest, (end - first) * parameter.cols());
    }
  }
  return static_cast<std::uint64_t>(largest) * sizeof(float);
}

/// Takes what the host keeps of a device's engine out of the rows of the device.
void leave_to_host(RunNeeds& needs) {
  engine::MemoryPlan& device = needs.engine;
  needs.offloaded_bytes = device.offloaded_bytes;
  const std::size_t optimizer = std::min(device.optimizer_bytes, device.offloaded_bytes);
  device.optimizer_bytes -= optimizer;
  device.parameters_bytes -= device.offloaded_bytes - optimizer;
  device.offloaded_bytes = 0;
}

engine::RankSpan node_of(std::int64_t rank, std::int64_t ranks, std::int64_t nodes) {
  NodePosition position{.node = 0, .nodes = nodes};
  while (position.ranks(ranks).second <= rank) {
    ++position.node;
  }
  return {position.ranks(ranks).first, position.ranks(ranks).second};
}

}  // namespace

std::vector<std::int64_t> measured_ranks(std::int64_t ranks) {
  constexpr std::int64_t kAll = 64;
  constexpr std::int64_t kAtEachEnd = 8;
  std::vector<std::int64_t> measured;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    if (ranks <= kAll || rank < kAtEachEnd || rank >= ranks - kAtEachEnd) {
      measured.push_back(rank);
    }
  }
  return measured;
}

RunNeeds needs_of(const RunPlan& run, const engine::RankOptions& options) {
  return needs_of(run, options, engine::plan_of(options).value(), {}, nullptr);
}

RunNeeds needs_of(const RunPlan& run, const engine::RankOptions& options,
                  const engine::ShardPlan& plan, const LayoutVisitor& visit,
                  const RunNeeds* other) {
  const configs::RunConfig& config = run.config;
  const auto optimizer = engine::optimizer_of(options);
  const bool processes = in_processes(config.parallel, run.separate_processes);
  engine::RankLayout layout(plan, options);
  RunNeeds needs;
  needs.has_device = config.runtime.device != "cpu";
  std::int64_t fullest = 0;
  std::uint64_t shard = 0;
  std::uint64_t largest = 0;  // Tensor of a shard.
  std::uint64_t share = 0;    // Share of its node's snapshots.
  for (const std::int64_t rank : measured_ranks(plan.ranks())) {
    engine::RankOptions of_rank = options;
    of_rank.rank = rank;
    layout.move_to(rank);
    if (visit) {
      visit(plan, layout);
    }
    const engine::MemoryPlan memory = engine::plan_beside_activations(layout, plan, of_rank);
    if (memory.total_bytes() > needs.engine.total_bytes()) {
      needs.engine = memory;
      fullest = rank;
    }
    if (needs.has_device && processes && config.parallel.transport != "nccl") {
      needs.transfer_copies_bytes = std::max(needs.transfer_copies_bytes, transfer_copies(layout));
    }
    const auto node = node_of(rank, plan.ranks(), config.parallel.nodes);
    needs.node_ranks =
        std::max(needs.node_ranks, static_cast<std::uint64_t>(node.end - node.first));
    shard = std::max(shard, engine::shard_bytes(plan, *optimizer, rank));
    largest = std::max(largest, largest_rows(plan, rank));
    share = std::max(share, engine::node_bytes(plan, *optimizer, rank, node));
  }
  layout.move_to(fullest);
  needs.engine.activations_bytes = engine::plan_activations(layout, options);
  if (needs.has_device) {
    leave_to_host(needs);
  }
  needs.device_ranks = processes ? 1 : needs.node_ranks;
  const std::uint64_t copies = config.checkpoint.interval_steps > 0 ? kStateCopies : 1;
  needs.checkpoint_copies_bytes = copies * shard;
  needs.snapshot_copy_bytes = needs.has_device && keeps_in_memory(run) ? share : 0;
  needs.digest_copy_bytes = needs.has_device ? largest : 0;
  needs.node_snapshots_bytes =
      static_cast<std::uint64_t>(memory_slots(run)) * share * needs.node_ranks;
  needs.programs = processes ? needs.node_ranks + 1 : 1;  // And the launcher.
  needs.checkpoint_bytes = other != nullptr ? other->checkpoint_bytes : checkpoint_bytes(run);
  needs.checkpoints = static_cast<std::uint64_t>(most_checkpoints(config));
  return needs;
}

}  // namespace train::run
