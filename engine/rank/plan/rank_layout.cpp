#include "engine/rank/plan/rank_layout.hpp"

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <iterator>
#include <map>
#include <tuple>

#include "base/check.hpp"
#include "base/text/byte_sizes.hpp"
#include "engine/objective/registry.hpp"
#include "engine/optimizer/registry.hpp"
#include "engine/sharding/buffer_schedule.hpp"
#include "kernels/head/loss_sums.hpp"

namespace train::engine {
namespace {

constexpr std::int64_t kRoundingElements = std::int64_t{1} << 18;
constexpr std::int64_t kDoublesOfSums = sizeof(kernels::LossSums) / sizeof(double);

/// Appends one range to a staged op.
void append(StagedOp& op, std::vector<StagedOp::Range>& ranges, std::int64_t rank,
            std::size_t size_bytes) {
  ranges[static_cast<std::size_t>(rank)] = {op.size_bytes, size_bytes};
  op.size_bytes += size_bytes;
}

StagedOp empty_op(std::int64_t ranks) {
  StagedOp op;
  op.send.resize(static_cast<std::size_t>(ranks));
  op.receive.resize(static_cast<std::size_t>(ranks));
  return op;
}

template <class Value>
std::int64_t most(const std::vector<GroupLayout>& groups, const Value& value) {
  std::int64_t most = 0;
  for (const GroupLayout& group : groups) {
    most = std::max<std::int64_t>(most, value(group));
  }
  return most;
}

/// Rows of the largest segment.
std::int64_t most_rows(const Part& part) {
  std::int64_t rows = 0;
  for (const Segment& segment : part.segments) {
    rows = std::max(rows, segment.rows);
  }
  return rows;
}

bool has_all_rows(const Part& part, const ShardGroup& group) {
  std::int64_t rows = 0;
  for (const Segment& segment : part.segments) {
    rows += segment.rows;
  }
  for (const Parameter& parameter : group.parameters) {
    rows -= parameter.rows();
  }
  return rows == 0;
}

std::vector<std::int64_t> blocks_of(const LaneSchedule& lanes, std::int64_t ranks) {
  std::vector<std::int64_t> blocks = {0};
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    blocks.push_back(blocks.back() + static_cast<std::int64_t>(lanes.lanes_of(rank).size()));
  }
  return blocks;
}

/// Columns of 4 bytes a token.
std::size_t lane_bytes(const RankOptions& options, const Objective& objective) {
  const LaneColumns columns = objective.columns();
  const bool positions = columns.positions || options.scored_lanes > 0;
  const std::size_t count = 2U + (positions ? 1U : 0U) + (columns.weights ? 1U : 0U);
  return bytes_of(options.batch.micro_batch * options.seq_len * options.lane_slots,
                  count * sizeof(std::int32_t));
}

/// `others`: sums besides the objective's metrics.
std::int64_t lane_doubles_of(const Objective& objective, std::size_t others) {
  const RowWeighting* weighting = objective.weighting();
  const std::size_t metrics = others + (weighting == nullptr ? 0 : weighting->metrics().size());
  return kDoublesOfSums + static_cast<std::int64_t>(metrics * sizeof(MetricSum) / sizeof(double));
}

/// Parameters of a group that every cut divides alike.
struct RowKind {
  std::int64_t rows = 0, cols = 0, owner = kCutByRows;
  bool exact = false, frozen = false;
  friend auto operator<=>(const RowKind&, const RowKind&) = default;
};
using RowKinds = std::map<RowKind, std::int64_t>;  // With their number.

/// Sizes of all parts of a cut: Part::element_count of the rows, and of trained rows, and the
/// latter's segments and norm nodes. By part + parts * fine: for reduce parts, by rank.
struct PartSizes {
  std::vector<std::int64_t> elements, trained, segments, norms;
};

RowKinds kinds_of(const ShardGroup& group) {
  RowKinds kinds;
  for (std::size_t i = 0; i < group.parameters.size(); ++i) {
    const Parameter& parameter = group.parameters[i];
    ++kinds[{.rows = parameter.rows(),
             .cols = parameter.cols(),
             .owner = group.owners[i],
             .exact = parameter.exact,
             .frozen = parameter.frozen}];
  }
  return kinds;
}

/// PartSizes of groups. Models have many layers of the same shapes, and layers of experts many
/// equal matrices: each kind is counted once.
class AlikeGroups {
 public:
  /// Borrows `plan`.
  explicit AlikeGroups(const ShardPlan& plan) : plan_(&plan) {}

  /// Sizes for a group cut into `parts`, each then into `fine_parts`. Valid as long as this.
  const PartSizes& sizes(std::size_t group, std::int64_t parts, std::int64_t fine_parts) {
    if (group != group_) {
      group_ = group;
      kinds_ = kinds_of(plan_->groups()[group]);
    }
    const bool whole = parts == 1 && fine_parts == 1;
    // The whole of a group has the padding between its units, too.
    const std::int64_t flat = whole ? plan_->groups()[group].element_count : 0;
    const auto [at, added] = known_.try_emplace({kinds_, parts, fine_parts, flat});
    if (added) {
      at->second = count({.parts = parts, .fine_parts = fine_parts});
      if (whole) {
        at->second.elements = {flat};
      }
    }
    return at->second;
  }

 private:
  PartSizes count(RowCut cut) {
    PartSizes sizes;
    sizes.elements.assign(static_cast<std::size_t>(cut.parts * cut.fine_parts), 0);
    sizes.trained = sizes.segments = sizes.norms = sizes.elements;
    for (const auto& [kind, number] : kinds_) {
      for (cut.fine = 0; cut.fine < cut.fine_parts; ++cut.fine) {
        for (cut.part = 0; cut.part < cut.parts; ++cut.part) {
          add(sizes, kind, number, cut);
        }
      }
    }
    return sizes;
  }

  void add(PartSizes& sizes, const RowKind& kind, std::int64_t number, const RowCut& cut) {
    const auto [first, end] = rows_of_cut(kind.rows, kind.owner, cut);
    if (first == end) {
      return;
    }
    const auto at = static_cast<std::size_t>(cut.part + cut.parts * cut.fine);
    const std::int64_t elements = (end - first) * kind.cols;
    const std::int64_t places = number * padded(kind.exact ? 2 * elements : elements);
    sizes.elements[at] += places;
    if (!kind.frozen) {
      sizes.trained[at] += places;
      sizes.segments[at] += number;
      sizes.norms[at] += number * node_count(kind.rows, {first, end - first});
    }
  }

  std::int64_t node_count(std::int64_t rows, LaneRange range) {
    const auto [at, added] = nodes_.try_emplace({rows, range.first, range.count}, 0);
    if (added) {
      at->second = std::ssize(RadixTree(rows).partial_sums(range));
    }
    return at->second;
  }

  const ShardPlan* plan_;
  std::size_t group_ = SIZE_MAX;
  RowKinds kinds_;
  std::map<std::tuple<RowKinds, std::int64_t, std::int64_t, std::int64_t>, PartSizes> known_;
  std::map<std::array<std::int64_t, 3>, std::int64_t> nodes_;
};

}  // namespace

RankLayout::RankLayout(const ShardPlan& plan, const RankOptions& options)
    : plan_(&plan),
      optimizer_(optimizer_of(options)),
      rank_(options.rank),
      ranks_(plan.ranks()),
      compute_weights_(plan.precision().compute != "bf16" ? ComputeWeights::masters
                       : options.knows_bf16               ? ComputeWeights::bf16
                                                          : ComputeWeights::rounded),
      makes_weights_(compute_weights_ == ComputeWeights::bf16 &&
                     engine::makes_weights(options.memory)),
      knows_bf16_(options.knows_bf16),
      offload_(offload_of(options.memory)),
      reduce_bf16_(plan.precision().reduce == "bf16" && plan.ranks() > 1),
      order_(plan.precision().determinism == "run" ? SumOrder::arrival : SumOrder::canonical),
      scored_bytes_(options.scored_lanes > 0
                        ? bytes_of(options.batch.micro_batch * options.seq_len, sizeof(float))
                        : 0),
      sampled_bytes_(options.sampled_texts > 0 ? bytes_of(options.model.vocab_size, sizeof(float))
                                               : 0),
      gather_buffers_(plan.gather_buffers()),
      gradient_buffer_count_(engine::gradient_buffer_count(plan)) {
  const auto objective = make_objective(options.objective);
  lane_slot_bytes_ = lane_bytes(options, *objective);
  block_sums_ = options.model.block_sums().size();
  reads_step_sums_ = options.model.reads_step_sums();
  source_sums_ = static_cast<std::size_t>(options.sources);
  lane_doubles_ = lane_doubles_of(*objective, source_sums_ + block_sums_);
  several_passes_ = objective->several_passes();
  reads_first_weights_ = objective->reads_first_weights();
  rewards_distance_ = objective->rewards_distance();
  world_ = make_world();
  make_groups();
}

void RankLayout::move_to(std::int64_t rank) {
  rank_ = rank;
  make_groups();
}

void RankLayout::make_groups() {
  groups_.clear();
  const std::int64_t own = own_buffers();
  for (std::size_t index = 0; index < plan_->groups().size(); ++index) {
    groups_.push_back(make_group(index, own));
    if (!groups_.back().resident) {
      gather_elements_ = std::max(gather_elements_, groups_.back().flat);
    }
    if (plan_->uses_shared_gradient(index)) {
      gradient_buffer_elements_ = std::max(gradient_buffer_elements_, groups_.back().gradient_flat);
    }
  }
}

GroupLayout RankLayout::make_group(std::size_t index, std::int64_t own_buffers) const {
  const ShardGroup& group = plan_->groups()[index];
  GroupLayout layout;
  layout.rows = plan_->state_part(index, rank_);
  layout.state = plan_->trained(index, layout.rows);
  layout.reduce = group.state_parts == ranks_
                      ? layout.state
                      : plan_->trained(index, plan_->reduce_part(index, rank_));
  layout.flat = group.element_count;
  layout.gradient_flat = group.gradient_count;
  layout.resident = plan_->resident(index);
  layout.made = makes_weights_ && layout.resident && !plan_->all_gathered(index) &&
                has_all_rows(layout.state, group);
  if (!layout.resident) {
    layout.shards.ranks = plan_->weight_peers(index, rank_);
    for (const std::int64_t peer : layout.shards.ranks) {
      const std::int64_t part = peer % group.weight_parts;
      layout.shards.elements.push_back(world_->shards[index][static_cast<std::size_t>(part)]);
    }
  }
  if (plan_->splits_kept_weights(index)) {
    const std::int64_t parts = plan_->reshard_ranks();
    layout.kept.ranks = plan_->reshard_peers(index, rank_);
    for (const std::int64_t peer : layout.kept.ranks) {
      const std::int64_t part = peer % parts;
      layout.kept.elements.push_back(world_->kept[index][static_cast<std::size_t>(part)]);
    }
    layout.kept_here = plan_->cut(index, parts, rank_ % parts);
  }
  layout.own_buffers = plan_->own_gradient(index) ? own_buffers : 0;
  // The forward pass of a second lane would write over it.
  layout.in_activations =
      layout.own_buffers == 1 && plan_->train_lanes().lanes_of(rank_).size() <= 1;
  if (ranks_ > 1) {
    layout.owner_buffers = layout.reduce.element_count > 0 ? world_->owner_buffers : 0;
    const bool into_own = group.state_parts == 1 && layout.own_buffers > 0;
    layout.broadcast_apart = plan_->broadcast(index) && !into_own;
  }
  return layout;
}

std::int64_t RankLayout::own_buffers() const {
  const LaneSchedule& lanes = plan_->train_lanes();
  std::int64_t own = 1;
  for (std::int64_t sync = 0; sync < lanes.syncs(); ++sync) {
    std::vector<LaneRange> singles;
    const LaneRange range = lanes.lanes_of(rank_, sync);
    for (std::int64_t lane = range.first; lane < range.end(); ++lane) {
      singles.push_back({lane, 1});
    }
    own = std::max(own, lane_tree_buffers(singles, plan_->lane_tree(), order_));
  }
  return own;
}

std::shared_ptr<const RankLayout::World> RankLayout::make_world() const {
  auto world = std::make_shared<World>();
  world->lane_blocks = blocks_of(plan_->train_lanes(), ranks_);
  world->eval_blocks = blocks_of(plan_->eval_lanes(), ranks_);
  set_sums(*world);
  set_groups(*world);
  set_blocks(*world);
  return world;
}

void RankLayout::set_sums(World& world) const {
  std::vector<LaneRange> arrivals;
  for (std::int64_t sync = 0; sync < plan_->train_lanes().syncs(); ++sync) {
    world.sum_counts.emplace_back();
    for (std::int64_t rank = 0; rank < ranks_; ++rank) {
      const std::vector<LaneRange> sent = sums(rank, sync);
      world.sum_counts.back().push_back(sent.size());
      arrivals.insert(arrivals.end(), sent.begin(), sent.end());
    }
  }
  world.owner_buffers = lane_tree_buffers(arrivals, plan_->lane_tree(), order_);
}

void RankLayout::set_groups(World& world) const {
  world.norm_counts.assign(static_cast<std::size_t>(ranks_), 0);
  world.agreement_counts = world.norm_counts;
  AlikeGroups alike(*plan_);
  for (std::size_t index = 0; index < plan_->groups().size(); ++index) {
    const ShardGroup& group = plan_->groups()[index];
    const PartSizes& reduced = alike.sizes(index, group.state_parts, ranks_ / group.state_parts);
    for (std::size_t rank = 0; rank < world.norm_counts.size(); ++rank) {
      world.norm_counts[rank] += reduced.norms[rank];
      world.agreement_counts[rank] += several_passes_ ? reduced.segments[rank] : 0;
    }
    world.reduced.push_back(reduced.trained);
    world.shards.push_back(alike.sizes(index, group.weight_parts, 1).elements);
    world.kept.push_back(plan_->splits_kept_weights(index)
                             ? alike.sizes(index, plan_->reshard_ranks(), 1).elements
                             : std::vector<std::int64_t>{});
  }
}

void RankLayout::set_blocks(World& world) const {
  world.step_blocks = {0};
  const std::int64_t passes = several_passes_ ? 2 : 1;
  for (std::size_t rank = 0; rank < world.norm_counts.size(); ++rank) {
    const std::int64_t lanes = world.lane_blocks[rank + 1] - world.lane_blocks[rank];
    world.step_blocks.push_back(world.step_blocks.back() + passes * world.norm_counts[rank] +
                                lane_doubles_ * lanes + world.agreement_counts[rank]);
  }
}

Part RankLayout::reduce_part(std::size_t group, std::int64_t rank) const {
  return rank == rank_ ? groups_[group].reduce
                       : plan_->trained(group, plan_->reduce_part(group, rank));
}

Part RankLayout::gathered_part(std::size_t group, std::int64_t rank, bool smaller) const {
  const std::int64_t parts = plan_->reshard_ranks();
  return smaller ? plan_->cut(group, parts, rank % parts) : plan_->weight_part(group, rank);
}

std::vector<LaneRange> RankLayout::sums(std::int64_t rank, std::int64_t sync) const {
  const LaneRange range = plan_->train_lanes().lanes_of(rank, sync);
  if (order_ == SumOrder::canonical) {
    return plan_->lane_tree().partial_sums(range);
  }
  return range.count > 0 ? std::vector<LaneRange>{range} : std::vector<LaneRange>{};
}

kernels::DType RankLayout::compute_dtype() const {
  return compute_weights_ == ComputeWeights::bf16 ? kernels::DType::bf16 : kernels::DType::f32;
}

std::size_t RankLayout::compute_size() const {
  return compute_bf16() ? sizeof(std::uint16_t) : sizeof(float);
}

std::size_t RankLayout::reduce_size() const {
  return reduce_bf16_ ? sizeof(std::uint16_t) : sizeof(float);
}

StagedOp RankLayout::staged_gather(const GroupLayout::Sources& sources) const {
  StagedOp op = empty_op(ranks_);
  for (std::size_t i = 0; i < sources.ranks.size(); ++i) {
    if (sources.ranks[i] != rank_) {
      append(op, op.receive, sources.ranks[i], bytes_of(sources.elements[i], compute_size()));
    }
  }
  return op;
}

StagedOp RankLayout::staged_all_gather(const CollectiveOp& op) const {
  const auto index = static_cast<std::size_t>(op.group);
  const GroupLayout& layout = group(index);
  StagedOp staged = empty_op(ranks_);
  const std::size_t sent = bytes_of(layout.reduce.element_count, compute_size());
  for (std::int64_t rank = 0; rank < ranks_; ++rank) {
    if (rank != rank_) {
      staged.send[static_cast<std::size_t>(rank)] = {0, sent};
    }
  }
  staged.size_bytes = sent;
  for (std::int64_t rank = 0; rank < ranks_; ++rank) {
    if (rank != rank_) {
      append(staged, staged.receive, rank, bytes_of(reduce_elements(index, rank), compute_size()));
    }
  }
  return staged;
}

StagedOp RankLayout::staged_reduce(const CollectiveOp& op) const {
  const auto index = static_cast<std::size_t>(op.group);
  const GroupLayout& layout = group(index);
  StagedOp staged = empty_op(ranks_);
  const std::size_t own_sums = sum_count(rank_, op.part);
  for (std::int64_t rank = 0; rank < ranks_; ++rank) {
    append(staged, staged.send, rank,
           own_sums * bytes_of(reduce_elements(index, rank), reduce_size()));
  }
  for (std::int64_t rank = 0; rank < ranks_; ++rank) {
    if (rank != rank_) {
      append(staged, staged.receive, rank,
             sum_count(rank, op.part) * bytes_of(layout.reduce.element_count, reduce_size()));
    }
  }
  return staged;
}

StagedOp RankLayout::staged_broadcast(const CollectiveOp& op) const {
  const auto index = static_cast<std::size_t>(op.group);
  StagedOp staged = empty_op(ranks_);
  for (const std::int64_t peer : plan_->replica_peers(index, rank_)) {
    if (peer != rank_) {
      append(staged, staged.receive, peer, floats(reduce_elements(index, peer)));
    }
  }
  return staged;
}

StagedOp RankLayout::staged(const CollectiveOp& op, bool smaller) const {
  switch (op.kind) {
    case CollectiveKind::gather: {
      const GroupLayout& layout = group(static_cast<std::size_t>(op.group));
      return staged_gather(smaller ? layout.kept : layout.shards);
    }
    case CollectiveKind::all_gather:
      return staged_all_gather(op);
    case CollectiveKind::reduce:
      return staged_reduce(op);
    case CollectiveKind::broadcast:
      return staged_broadcast(op);
    case CollectiveKind::loss_and_norm:
    case CollectiveKind::eval_sums:
    case CollectiveKind::block_sums:
    case CollectiveKind::nonfinite:
    case CollectiveKind::reference:
      break;
  }
  return empty_op(ranks_);
}

std::size_t RankLayout::staging_bytes(Channel channel) const {
  std::size_t most = 0;
  const auto take = [&](CollectiveKind kind, std::size_t index, std::int32_t part, bool smaller) {
    const CollectiveOp op{
        .channel = channel, .kind = kind, .group = static_cast<std::int32_t>(index), .part = part};
    most = std::max(most, staged(op, smaller).size_bytes);
  };
  for (std::size_t index = 0; ranks_ > 1 && index < groups_.size(); ++index) {
    if (channel == Channel::gather) {
      take(CollectiveKind::gather, index, -1, false);
      take(CollectiveKind::gather, index, -1, true);
      if (plan_->all_gathered(index)) {
        take(CollectiveKind::all_gather, index, -1, false);
      }
    } else if (channel == Channel::reduce) {
      for (std::int64_t sync = 0; sync < plan_->train_lanes().syncs(); ++sync) {
        take(CollectiveKind::reduce, index, static_cast<std::int32_t>(sync), false);
      }
      if (plan_->broadcast(index)) {
        take(CollectiveKind::broadcast, index, -1, false);
      }
    }
  }
  return most;
}

std::size_t RankLayout::outgoing_bytes(Channel channel) const {
  std::int64_t elements = 0;
  for (std::size_t index = 0; ranks_ > 1 && index < groups_.size(); ++index) {
    const GroupLayout& layout = groups_[index];
    if (channel == Channel::gather && !layout.shards.ranks.empty()) {
      elements = std::max({elements, layout.rows.element_count, layout.kept_here.element_count});
    } else if (channel == Channel::reduce && plan_->broadcast(index)) {
      elements = std::max(elements, layout.reduce.element_count);
    }
  }
  return floats(elements);
}

std::int64_t RankLayout::sum_scratch_elements() const {
  return !reduce_bf16_
             ? 0
             : most(groups_, [](const GroupLayout& group) { return group.reduce.element_count; });
}

std::int64_t RankLayout::rounding_elements() const {
  return compute_weights_ != ComputeWeights::rounded
             ? 0
             : std::min(kRoundingElements, most(groups_, [](const GroupLayout& group) {
                          return group.resident ? group.flat : 0;
                        }));
}

std::int64_t RankLayout::made_elements() const {
  return most(groups_, [](const GroupLayout& group) { return group.made ? group.flat : 0; });
}

std::int64_t RankLayout::optimizer_elements(std::size_t group) const {
  std::int64_t elements = 0;
  for (const Segment& segment : groups_[group].state.segments) {
    const Parameter& parameter = plan_->groups()[group].parameters[segment.parameter];
    elements +=
        static_cast<std::int64_t>(optimizer_->states(parameter).size()) * padded(segment.count);
  }
  return elements;
}

std::size_t RankLayout::optimizer_scratch_bytes() const {
  std::size_t most = 0;
  for (std::size_t index = 0; index < groups_.size(); ++index) {
    for (const Segment& segment : groups_[index].state.segments) {
      const Parameter& parameter = plan_->groups()[index].parameters[segment.parameter];
      most = std::max(most, optimizer_->scratch_bytes(parameter, knows_bf16_));
    }
  }
  return most;
}

std::int64_t RankLayout::optimizer_sums() const {
  constexpr std::int64_t many = 1 << 16;
  std::int64_t rows = 0;
  for (const GroupLayout& group : groups_) {
    for (const Segment& segment : group.state.segments) {
      rows += segment.rows;
    }
  }
  return static_cast<std::int64_t>(optimizer_->row_sums().size()) *
         std::max(std::min(rows, many),
                  most(groups_, [](const GroupLayout& group) { return most_rows(group.state); }));
}

std::int64_t RankLayout::largest_segment() const {
  return most(groups_, [](const GroupLayout& group) {
    std::int64_t largest = 0;
    for (const Segment& segment : group.reduce.segments) {
      largest = std::max(largest, segment.count);
    }
    return largest;
  });
}

std::int64_t RankLayout::norm_rows() const {
  return most(groups_, [](const GroupLayout& group) {
    std::int64_t rows = 0;
    for (const Segment& segment : group.reduce.segments) {
      rows += segment.rows;
    }
    return rows;
  });
}

std::vector<LaneRange> norm_nodes(const Segment& segment, const Parameter& parameter) {
  return RadixTree(parameter.rows()).partial_sums({segment.first_row, segment.rows});
}

void RankLayout::add_group(MemoryPlan& memory, std::size_t index) const {
  const GroupLayout& layout = groups_[index];
  if (layout.resident && !layout.made) {
    memory.parameters_bytes += bytes_of(layout.flat, size_of(compute_dtype()));
  }
  std::size_t kept = 0;  // Besides what layers read.
  if (compute_bf16() || !layout.resident) {
    kept += floats(master_part(layout, compute_weights_).element_count);
  }
  if (compute_bf16() && !layout.resident) {
    kept += bytes_of(layout.rows.element_count, sizeof(std::uint16_t));
  }
  const std::size_t optimizer = floats(optimizer_elements(index));
  memory.parameters_bytes += kept;
  memory.optimizer_bytes += optimizer;
  memory.offloaded_bytes += offload_ == Offload::nothing ? 0 : optimizer;
  memory.offloaded_bytes += offload_ == Offload::parameters ? kept : 0;
  memory.gathered_bytes += bytes_of(layout.kept_here.element_count, compute_size());

  const std::size_t own = bytes_of(layout.own_buffers, floats(layout.gradient_flat));
  const std::size_t owner = bytes_of(layout.owner_buffers, floats(layout.reduce.element_count));
  const std::size_t apart = layout.broadcast_apart ? floats(layout.state.element_count) : 0;
  memory.gradients_bytes += gradient_bytes(index);
  memory.lane_sums_bytes += own + owner + apart - gradient_bytes(index);
  memory.gradients_bytes += several_passes_ ? floats(layout.reduce.element_count) : 0;
  memory.reference_bytes += reads_first_weights_ ? floats(layout.reduce.element_count) : 0;
}

std::size_t RankLayout::gradient_bytes(std::size_t group) const {
  // One buffer of those that a group has; the others are sums of lanes.
  const GroupLayout& layout = groups_[group];
  const Strategy strategy = plan_->groups()[group].strategy;
  if (strategy == Strategy::none || strategy == Strategy::optimizer) {
    return floats(layout.gradient_flat);
  }
  return floats(layout.broadcast_apart ? layout.state.element_count : layout.reduce.element_count);
}

ActivationOptions RankLayout::activations(const Checkpointing& checkpointing) const {
  ActivationOptions options{.checkpointing = checkpointing, .dtype = compute_dtype()};
  for (std::size_t index = 0; index < groups_.size(); ++index) {
    if (groups_[index].in_activations) {
      options.gradients.push_back(
          {plan_->groups()[index].last_unit(), floats(groups_[index].gradient_flat)});
    }
  }
  return options;
}

MemoryPlan RankLayout::memory() const {
  MemoryPlan memory;
  for (std::size_t index = 0; index < groups_.size(); ++index) {
    add_group(memory, index);
  }
  memory.gathered_bytes +=
      bytes_of(gather_buffers_, bytes_of(gather_elements_, size_of(compute_dtype()))) +
      bytes_of(made_elements(), size_of(compute_dtype()));
  memory.transfer_bytes =
      kStagingSlots * (staging_bytes(Channel::gather) + staging_bytes(Channel::reduce)) +
      bytes_of(gradient_buffer_count_, floats(gradient_buffer_elements_)) +
      floats(sum_scratch_elements());
  memory.buffers_bytes =
      lane_slot_bytes_ + scored_bytes_ + sampled_bytes_ +
      bytes_of(step_block(ranks_), sizeof(double)) +
      bytes_of(eval_block(ranks_) * lane_doubles_, sizeof(double)) + step_sums() * sizeof(double) +
      bytes_of(lane_block(ranks_), 2 * plan_->unit_count() * sizeof(std::int64_t)) +
      bytes_of(norm_rows(), sizeof(double)) + bytes_of(rounding_elements(), sizeof(std::uint16_t)) +
      optimizer_scratch_bytes() + bytes_of(optimizer_sums(), sizeof(double)) +
      (several_passes_ ? floats(largest_segment()) : 0) + distance_factor_bytes();
  return memory;
}

std::size_t RankLayout::distance_factor_bytes() const {
  std::int64_t parameters = 0;
  for (const UnitParameters& unit : plan_->units()) {
    parameters += static_cast<std::int64_t>(unit.parameters.size());
  }
  return rewards_distance_ ? floats(parameters) : 0;
}

}  // namespace train::engine
