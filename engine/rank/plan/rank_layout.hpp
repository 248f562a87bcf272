#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/lanes/lane_tree.hpp"
#include "engine/model/model.hpp"
#include "engine/optimizer/optimizer.hpp"
#include "engine/rank/plan/rank_options.hpp"
#include "engine/sharding/collective_schedule.hpp"
#include "engine/sharding/shard_plan.hpp"

namespace train::engine {

/// Bytes that one rank's RankEngine holds, by kind. Padding is included; code, libraries, staging
/// of snapshots and the data files' pages are not.
struct MemoryPlan {
  std::size_t parameters_bytes = 0;  ///< fp32 masters, and compute weights that are not gathered.
  std::size_t gradients_bytes = 0;   ///< The gradient of a step, as the strategy keeps it.
  std::size_t optimizer_bytes = 0;   ///< State tensors of the optimizer.
  std::size_t lane_sums_bytes = 0;   ///< Further partial sums of lanes: the price of P1.
  std::size_t gathered_bytes = 0;    ///< Buffers of gathered weights, and rows kept for backward.
  std::size_t transfer_bytes =
      0;  ///< Bytes on their way to and from other ranks; gradient buffers.
  std::size_t activations_bytes = 0;  ///< The model's workspace: activations and scratch.
  std::size_t buffers_bytes = 0;      ///< Lane slots, loss sums, scratch of norms and optimizer.
  std::size_t reference_bytes = 0;    ///< Weights of a live reference (ReferenceWeights).

  std::size_t offloaded_bytes = 0;  ///< Share of all these that is offloaded to the host.

  [[nodiscard]] std::size_t total_bytes() const {
    return parameters_bytes + gradients_bytes + optimizer_bytes + lane_sums_bytes + gathered_bytes +
           transfer_bytes + activations_bytes + buffers_bytes + reference_bytes;
  }
  /// Bytes in the device's own memory, where a device computes.
  [[nodiscard]] std::size_t device_bytes() const { return total_bytes() - offloaded_bytes; }
  friend bool operator==(const MemoryPlan&, const MemoryPlan&) = default;
};

/// A kind of bytes of a plan, and what people call it.
struct MemoryKind {
  const char* name;
  std::size_t MemoryPlan::*bytes;
};
inline constexpr auto kMemoryKinds = std::to_array<MemoryKind>({
    {"parameters", &MemoryPlan::parameters_bytes},
    {"gradients", &MemoryPlan::gradients_bytes},
    {"optimizer", &MemoryPlan::optimizer_bytes},
    {"lane sums", &MemoryPlan::lane_sums_bytes},
    {"gathered", &MemoryPlan::gathered_bytes},
    {"transfer", &MemoryPlan::transfer_bytes},
    {"activations", &MemoryPlan::activations_bytes},
    {"buffers", &MemoryPlan::buffers_bytes},
    {"reference", &MemoryPlan::reference_bytes},
});

/// Weights that layers read: the fp32 masters themselves; with bf16 compute the masters rounded to
/// bf16, stored as bf16, or as fp32 where the device's kernels know no bf16.
enum class ComputeWeights : std::uint8_t { masters, rounded, bf16 };

/// One group on one rank: its rows, its peers, the sizes of its buffers.
struct GroupLayout {
  Part rows;  ///< All rows of the rank's state part, trained or frozen: the shard of split weights.
  Part state;   ///< Trained rows among `rows`: masters and optimizer state.
  Part reduce;  ///< Trained rows whose gradient is finished here.

  /// Sources of an all-gather: peers, this rank included, and how many elements each of them sends.
  struct Sources {
    std::vector<std::int64_t> ranks;
    std::vector<std::int64_t> elements;
  };
  Sources shards;  ///< Gather of shards; no ranks where weights are resident.
  Sources kept;    ///< Gather of rows kept after the forward pass (reshard = N), else no ranks.
  Part kept_here;  ///< This rank's rows of the latter.

  std::int64_t flat = 0;           ///< Elements of the whole group.
  std::int64_t gradient_flat = 0;  ///< Elements of the group's gradient.
  std::int64_t own_buffers = 0;    ///< Buffers of this rank's tree over its lanes; 0: no tree.
  std::int64_t owner_buffers = 0;  ///< Buffers of the tree over all lanes' `reduce` rows; 0: none.
  bool resident = true;            ///< Whole compute weights stay here.
  bool made = false;            ///< Compute weights are made of the masters, all here, when needed.
  bool in_activations = false;  ///< `own_buffers` is 1, in memory that activations have left.
  bool broadcast_apart = false;  ///< The gradient broadcast uses its own buffer (`state`).
};

/// Rows that have fp32 values apart from what layers read: of split fp32 weights the whole shard.
[[nodiscard]] inline const Part& master_part(const GroupLayout& layout, ComputeWeights compute) {
  return compute == ComputeWeights::masters && !layout.resident ? layout.rows : layout.state;
}

/// Ranges of one op in its staging slot: send ranges first, then receive ranges.
struct StagedOp {
  struct Range {
    std::size_t offset = 0;
    std::size_t size_bytes = 0;
  };
  std::vector<Range> send, receive;  ///< By rank.
  std::size_t size_bytes = 0;
};

/// Sizes and places of everything that one rank keeps: a pure function of plan and options. The
/// engine allocates by it, plan_memory() adds it up.
class RankLayout {
 public:
  /// Borrows `plan`.
  RankLayout(const ShardPlan& plan, const RankOptions& options);
  /// Becomes the layout of another rank of the same plan, and keeps what is the same on all of
  /// them.
  void move_to(std::int64_t rank);

  [[nodiscard]] const GroupLayout& group(std::size_t index) const { return groups_[index]; }
  /// The trained rows of the group whose gradient `rank` finishes, and their elements.
  [[nodiscard]] Part reduce_part(std::size_t group, std::int64_t rank) const;
  [[nodiscard]] std::int64_t reduce_elements(std::size_t group, std::int64_t rank) const {
    return world_->reduced[group][static_cast<std::size_t>(rank)];
  }
  /// The rows that `rank` sends in a gather of the group; `smaller`: of kept rows.
  [[nodiscard]] Part gathered_part(std::size_t group, std::int64_t rank, bool smaller) const;
  [[nodiscard]] const Optimizer& optimizer() const { return *optimizer_; }
  [[nodiscard]] std::int64_t rank() const { return rank_; }
  [[nodiscard]] std::int64_t ranks() const { return ranks_; }
  [[nodiscard]] ComputeWeights compute_weights() const { return compute_weights_; }
  [[nodiscard]] Offload offload() const { return offload_; }
  [[nodiscard]] bool compute_bf16() const { return compute_weights_ != ComputeWeights::masters; }
  /// Dtype of whole weights in memory, and of activations.
  [[nodiscard]] kernels::DType compute_dtype() const;
  [[nodiscard]] bool reduce_bf16() const { return reduce_bf16_; }
  [[nodiscard]] SumOrder sum_order() const { return order_; }
  /// Bytes of an element of weights, and of gradients, on the wire.
  [[nodiscard]] std::size_t compute_size() const;
  [[nodiscard]] std::size_t reduce_size() const;

  /// The sums over lanes that `rank` sends at the end of `sync`, left to right.
  [[nodiscard]] std::vector<LaneRange> sums(std::int64_t rank, std::int64_t sync) const;
  /// Their number.
  [[nodiscard]] std::size_t sum_count(std::int64_t rank, std::int64_t sync) const {
    return world_->sum_counts[static_cast<std::size_t>(sync)][static_cast<std::size_t>(rank)];
  }
  /// Staged bytes of the op; none for `loss_and_norm` and other ops that need no staging. The
  /// ranges from and to this rank itself are empty, except in `send` of a reduce, whose own sums
  /// are packed like those for other ranks. `smaller`: a gather of kept rows.
  [[nodiscard]] StagedOp staged(const CollectiveOp& op, bool smaller) const;
  /// Bytes of one staging slot of a channel.
  [[nodiscard]] std::size_t staging_bytes(Channel channel) const;
  /// The most that one op of the channel sends from where it lies, without staging.
  [[nodiscard]] std::size_t outgoing_bytes(Channel channel) const;

  /// Elements of one shared buffer of gathered weights, and their number.
  [[nodiscard]] std::int64_t gather_elements() const { return gather_elements_; }
  [[nodiscard]] std::int64_t gather_buffers() const { return gather_buffers_; }
  /// Elements of a gradient buffer, and the number of such buffers.
  [[nodiscard]] std::int64_t gradient_buffer_elements() const { return gradient_buffer_elements_; }
  [[nodiscard]] std::int64_t gradient_buffer_count() const { return gradient_buffer_count_; }
  /// Elements of the fp32 copy of a received bf16 sum; 0: none is needed.
  [[nodiscard]] std::int64_t sum_scratch_elements() const;
  /// Elements through which masters are rounded; 0: none.
  [[nodiscard]] std::int64_t rounding_elements() const;
  /// Elements of the largest group whose weights are made; 0: none.
  [[nodiscard]] std::int64_t made_elements() const;
  /// Elements of all state tensors that the optimizer keeps of a group here, padding included.
  [[nodiscard]] std::int64_t optimizer_elements(std::size_t group) const;
  /// Scratch bytes of the largest update on this rank; 0: none.
  [[nodiscard]] std::size_t optimizer_scratch_bytes() const;
  /// Doubles of the row sums of any update's slice, and of all slices where their rows are not too
  /// many: those that fit are summed up together.
  [[nodiscard]] std::int64_t optimizer_sums() const;
  /// Most rows of a reduce part, of all its segments.
  [[nodiscard]] std::int64_t norm_rows() const;

  /// Doubles of the norms that `rank` sends: one for each node in sums of rows.
  [[nodiscard]] std::int64_t norm_count(std::int64_t rank) const {
    return world_->norm_counts[static_cast<std::size_t>(rank)];
  }
  /// First double of the block of `rank` in the exchange of norms and loss sums.
  [[nodiscard]] std::int64_t step_block(std::int64_t rank) const {
    return world_->step_blocks[static_cast<std::size_t>(rank)];
  }
  /// First lane of `rank` in the exchange of evaluation sums; (rank == ranks: their number).
  [[nodiscard]] std::int64_t eval_block(std::int64_t rank) const {
    return world_->eval_blocks[static_cast<std::size_t>(rank)];
  }
  /// First training lane of `rank` (rank == ranks: the number of lanes).
  [[nodiscard]] std::int64_t lane_block(std::int64_t rank) const {
    return world_->lane_blocks[static_cast<std::size_t>(rank)];
  }

  /// Index, in the exchange that step_block() divides, of the first of `rank`'s norms of the second
  /// pass's gradient, taken before the gradients of both are joined. For steps of two passes.
  [[nodiscard]] std::int64_t pass_norm_block(std::int64_t rank) const {
    return step_block(rank + 1) - agreement_count(rank) - norm_count(rank);
  }
  /// Index of the counts behind those norms: for each segment of the rank's reduce parts, an int64
  /// with the number of elements whose signs agree in both gradients.
  [[nodiscard]] std::int64_t agreement_block(std::int64_t rank) const {
    return step_block(rank + 1) - agreement_count(rank);
  }
  /// Steps have two passes.
  [[nodiscard]] bool several_passes() const { return several_passes_; }
  /// Bytes of the factor of each tensor's distance (GradientSource::distances); 0: none.
  [[nodiscard]] std::size_t distance_factor_bytes() const;
  /// Elements of the largest segment of a reduce part here.
  [[nodiscard]] std::int64_t largest_segment() const;

  /// Doubles of what is exchanged of a lane: its LossSums, then its objective's metrics.
  [[nodiscard]] std::int64_t lane_doubles() const { return lane_doubles_; }
  /// Sums of sources before those of blocks, a MetricSum each.
  [[nodiscard]] std::size_t source_sums() const { return source_sums_; }
  /// Sums of blocks that end them, a MetricSum each.
  [[nodiscard]] std::size_t block_sums() const { return block_sums_; }
  /// Sums over all lanes of a step that blocks read: these, or 0.
  [[nodiscard]] std::size_t step_sums() const { return reads_step_sums_ ? block_sums_ : 0; }

  /// Bytes of the gradient of a group as its strategy keeps it (MemoryPlan::gradients_bytes).
  [[nodiscard]] std::size_t gradient_bytes(std::size_t group) const;
  /// Options of the model's activations for the lanes of this plan; their gradients belong to the
  /// groups with GroupLayout::in_activations, in the order of groups.
  [[nodiscard]] ActivationOptions activations(const Checkpointing& checkpointing) const;
  /// All but the model's activations.
  [[nodiscard]] MemoryPlan memory() const;

 private:
  /// Sizes and places of all ranks, the same in each one's layout.
  struct World {
    std::vector<std::vector<std::int64_t>> reduced;    // Elements of reduce parts, by group, rank.
    std::vector<std::vector<std::int64_t>> shards;     // Elements of weight parts, by group, part.
    std::vector<std::vector<std::int64_t>> kept;       // Elements of kept rows, likewise; or empty.
    std::vector<std::vector<std::size_t>> sum_counts;  // By sync, rank.
    std::int64_t owner_buffers = 0;                    // Buffers of a group with rows to reduce.
    std::vector<std::int64_t> step_blocks, norm_counts, lane_blocks, eval_blocks;
    std::vector<std::int64_t> agreement_counts;  // By rank; 0 in steps of one pass.
  };

  [[nodiscard]] std::shared_ptr<const World> make_world() const;
  void set_groups(World& world) const;
  void set_sums(World& world) const;
  void set_blocks(World& world) const;
  void make_groups();
  [[nodiscard]] GroupLayout make_group(std::size_t index, std::int64_t own_buffers) const;
  [[nodiscard]] std::int64_t own_buffers() const;
  [[nodiscard]] std::int64_t agreement_count(std::int64_t rank) const {
    return world_->agreement_counts.at(static_cast<std::size_t>(rank));
  }

  [[nodiscard]] StagedOp staged_gather(const GroupLayout::Sources& sources) const;
  [[nodiscard]] StagedOp staged_all_gather(const CollectiveOp& op) const;
  [[nodiscard]] StagedOp staged_reduce(const CollectiveOp& op) const;
  [[nodiscard]] StagedOp staged_broadcast(const CollectiveOp& op) const;
  void add_group(MemoryPlan& memory, std::size_t index) const;

  const ShardPlan* plan_;
  std::shared_ptr<const Optimizer> optimizer_;
  std::int64_t rank_;
  std::int64_t ranks_;
  ComputeWeights compute_weights_;
  bool makes_weights_;
  bool knows_bf16_;
  Offload offload_;
  bool reduce_bf16_;
  SumOrder order_;
  std::size_t lane_slot_bytes_ = 0;
  std::size_t scored_bytes_ = 0;   // Log-probabilities of a scored lane.
  std::size_t sampled_bytes_ = 0;  // Logits of a sampled token.
  std::int64_t lane_doubles_ = 0;
  std::size_t source_sums_ = 0, block_sums_ = 0;
  bool reads_step_sums_ = false;
  std::vector<GroupLayout> groups_;
  std::int64_t gather_elements_ = 0, gather_buffers_ = 0;
  std::int64_t gradient_buffer_elements_ = 0, gradient_buffer_count_ = 0;
  bool several_passes_ = false, reads_first_weights_ = false, rewards_distance_ = false;
  std::shared_ptr<const World> world_;
};

/// Nodes of the canonical tree over a parameter's rows that make up the segment.
[[nodiscard]] std::vector<LaneRange> norm_nodes(const Segment& segment, const Parameter& parameter);

}  // namespace train::engine
