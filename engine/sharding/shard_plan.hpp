#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "configs/sections/parallel_section.hpp"
#include "engine/command.hpp"
#include "engine/model/model.hpp"
#include "engine/sharding/lane_schedule.hpp"

namespace train::engine {

enum class Strategy : std::uint8_t { none, optimizer, gradient, full, hybrid };

[[nodiscard]] const char* strategy_name(Strategy strategy);

/// Rows of one parameter that lie next to each other in two buffers. `count` = rows * cols.
struct Segment {
  std::size_t parameter = 0;  ///< Index in ShardGroup::parameters.
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t flat_offset = 0;      ///< Offset of the first row in the group's flat weights.
  std::int64_t gradient_offset = 0;  ///< In the flat gradient, if it is trained.
  std::int64_t packed_offset = 0;    ///< Offset of the first row in the part's packed buffer.
  std::int64_t count = 0;
};

/// Segments of one part of a group's rows; parameters without a row in the part are left out.
/// Packed offsets are multiples of 16 elements; with one part packed and flat are the same.
struct Part {
  std::vector<Segment> segments;
  std::int64_t element_count = 0;  ///< Size of the packed buffer, padding included.
};

/// One part of rows cut into `parts`, or its cut `fine` of `fine_parts`.
struct RowCut {
  std::int64_t parts = 1, part = 0, fine_parts = 1, fine = 0;
};

/// In ShardGroup::owners: no rank owns the parameter, its rows are split evenly.
inline constexpr std::int64_t kCutByRows = -1;

/// Units whose weights are gathered, and whose gradients are reduced, as one.
struct ShardGroup {
  std::string name;                         ///< "block 3"; several units: "block 0 .. block 3".
  std::vector<std::size_t> units;           ///< Ascending.
  std::vector<std::int64_t> unit_base;      ///< First element of each unit in the flat weights.
  std::vector<std::int64_t> unit_gradient;  ///< First element of each unit in the flat gradient.
  std::vector<Parameter> parameters;  ///< All units', with their places in the group's buffers.
  std::int64_t element_count = 0;     ///< Size of the flat weights.
  std::int64_t gradient_count = 0;    ///< Size of the flat gradient; 0: the whole group is frozen.
  Strategy strategy = Strategy::none;
  std::int64_t weight_parts = 1;  ///< Number of shards of the weights between steps.
  std::int64_t state_parts = 1;   ///< Number of shards of masters, moments and kept gradients.
  /// By parameter: the rank that finishes all its rows' gradient; kCutByRows: they are split.
  std::vector<std::int64_t> owners;

  [[nodiscard]] std::size_t first_unit() const { return units.front(); }
  [[nodiscard]] std::size_t last_unit() const { return units.back(); }
  [[nodiscard]] bool trained() const { return gradient_count > 0; }
};

/// Assignment of state and work to ranks, a pure function of the configuration. Ranks and launcher
/// derive the same one.
///
/// Ranks r of one replica g = r / parts are neighbours; r % parts is the part. Rows are cut by
/// dimension 0, evenly to within one row: first into state_parts, then each part into
/// ranks / state_parts finer ones. The finest part of a rank is its reduce part: there it finishes
/// the tree over lanes and computes norms; a checkpoint's shard holds exactly those rows.
///
/// A whole parameter is not cut: all its rows belong to the one part that its owner has in any cut,
/// and the other parts have none. Owners follow from the sizes of the whole parameters of the model
/// (assign_owners), so that all ranks keep about as much of them.
class ShardPlan {
 public:
  struct Options {
    configs::ParallelSection parallel;
    configs::PrecisionSection precision;
    std::vector<UnitParameters> units;
    std::int64_t train_lanes = 1;
    std::int64_t eval_lanes = 0;
    std::int64_t scored_lanes = 0;
    std::int64_t sampled_texts = 0;
    std::vector<std::int64_t> radix = {2};  ///< Radix of the tree over training lanes.
    bool tied = false;  ///< The last unit uses the first one's matrix: they are one group.
    /// Names of parameters whose rows are never split. REQUIRES: each is one of `units`.
    std::vector<std::string> whole_parameters;
  };

  /// Errors (user): ranks > lanes, a group that does not divide ranks, a pattern that matches
  /// nothing, an unknown strategy, a group of units with two strategies, too few gather credits
  /// (says how many are needed), runs of lanes that the radix does not fit. Each names the key.
  [[nodiscard]] static Result<ShardPlan> make(const Options& options);

  [[nodiscard]] const configs::ParallelSection& parallel() const { return options_.parallel; }
  [[nodiscard]] const configs::PrecisionSection& precision() const { return options_.precision; }
  [[nodiscard]] const std::vector<std::int64_t>& radix() const { return options_.radix; }
  [[nodiscard]] std::int64_t ranks() const { return options_.parallel.ranks; }
  [[nodiscard]] std::size_t unit_count() const { return options_.units.size(); }
  [[nodiscard]] const std::vector<UnitParameters>& units() const { return options_.units; }
  [[nodiscard]] const std::vector<ShardGroup>& groups() const { return groups_; }
  [[nodiscard]] std::size_t group_of(std::size_t unit) const { return group_of_[unit]; }
  /// First element of `unit` in its group's flat buffer.
  [[nodiscard]] std::int64_t base_of(std::size_t unit) const;
  /// First element of `unit` in its group's flat gradient.
  [[nodiscard]] std::int64_t gradient_base_of(std::size_t unit) const;
  /// The backward pass ends above the unit: nothing in it or below it is trained.
  [[nodiscard]] bool below_trained(std::size_t unit) const { return unit < lowest_trained_; }

  [[nodiscard]] Part weight_part(std::size_t group, std::int64_t rank) const;
  [[nodiscard]] Part state_part(std::size_t group, std::int64_t rank) const;
  [[nodiscard]] Part reduce_part(std::size_t group, std::int64_t rank) const;
  /// The cut whose rows are reduce_part().
  [[nodiscard]] RowCut reduce_cut(std::size_t group, std::int64_t rank) const;
  /// Part `part` of the group's rows cut into `parts` (then its cut `fine` of `fine_parts`).
  [[nodiscard]] Part cut(std::size_t group, std::int64_t parts, std::int64_t part,
                         std::int64_t fine_parts = 1, std::int64_t fine = 0) const;

  /// The rows of `part` that are trained, packed without the others. Of the whole group: packed as
  /// in its flat gradient.
  [[nodiscard]] Part trained(std::size_t group, const Part& part) const;

  /// Ranks that together hold all of the group's weights, this one included, ascending.
  [[nodiscard]] std::vector<std::int64_t> weight_peers(std::size_t group, std::int64_t rank) const;
  /// Ranks that keep the same state part, this one included, ascending.
  [[nodiscard]] std::vector<std::int64_t> replica_peers(std::size_t group, std::int64_t rank) const;
  /// Ranks of the smaller group that keeps gathered weights between the passes (reshard = N); rank
  /// r keeps cut(group, N, r % N).
  [[nodiscard]] std::vector<std::int64_t> reshard_peers(std::size_t group, std::int64_t rank) const;
  /// reshard = N applies to the group: N is less than its weight_parts.
  [[nodiscard]] bool splits_kept_weights(std::size_t group) const;

  /// The weights of the group are whole on every rank between steps.
  [[nodiscard]] bool resident(std::size_t group) const { return groups_[group].weight_parts == 1; }
  /// True if an update is followed by an all-gather of the group's new rows (optimizer, gradient).
  [[nodiscard]] bool all_gathered(std::size_t group) const;
  /// Reduced gradients are sent on to the replicas of their state part (none, hybrid).
  [[nodiscard]] bool broadcast(std::size_t group) const;
  /// A full-size gradient buffer of its own (none, optimizer, or more than one lane a sync); else
  /// lanes use a gradient buffer that groups share, if any of it is trained.
  [[nodiscard]] bool own_gradient(std::size_t group) const;
  /// Some lane's gradient needs a shared gradient buffer: there is no own gradient, or it holds
  /// sums to which further lanes of a sync are added.
  [[nodiscard]] bool uses_shared_gradient(std::size_t group) const;
  /// A rank has more than one lane in a sync.
  [[nodiscard]] bool uses_lane_sums() const;

  /// parallel.reshard as a number of ranks: 1 never (keeps it whole), 0 after_forward, else N.
  [[nodiscard]] std::int64_t reshard_ranks() const { return reshard_ranks_; }
  /// Shared buffers of gathered weights that a rank keeps (parallel.gather_credits, or one per
  /// group when it keeps them to the end of the step); 0: nothing is ever gathered.
  [[nodiscard]] std::int64_t gather_buffers() const;
  /// Fewest gather buffers with which a step of this plan can run.
  [[nodiscard]] std::int64_t gather_buffers_needed() const;
  [[nodiscard]] const LaneSchedule& train_lanes() const { return train_lanes_; }
  [[nodiscard]] const LaneSchedule& eval_lanes() const { return eval_lanes_; }
  /// The order of a gradient's sum over the training lanes.
  [[nodiscard]] const RadixTree& lane_tree() const { return lane_tree_; }
  [[nodiscard]] const LaneSchedule& lanes_of(const PassPlan& pass) const {
    return pass.rows == LaneRows::validation  ? eval_lanes_
           : pass.rows == LaneRows::questions ? scored_lanes_
           : pass.rows == LaneRows::texts     ? sampled_lanes_
                                              : train_lanes_;
  }

  /// Digest of all that decides collectives: ranks with different plans never exchange a byte.
  [[nodiscard]] std::uint64_t digest() const { return digest_; }

 private:
  explicit ShardPlan(const Options& options);
  [[nodiscard]] std::int64_t gathered_groups() const;

  Options options_;
  std::vector<ShardGroup> groups_;
  std::vector<std::size_t> group_of_;
  std::size_t lowest_trained_ = 0;
  std::int64_t reshard_ranks_ = 0;
  LaneSchedule train_lanes_;
  LaneSchedule eval_lanes_;
  RadixTree lane_tree_;
  LaneSchedule scored_lanes_;
  LaneSchedule sampled_lanes_;
  std::uint64_t digest_ = 0;
};

/// Sets ShardGroup::owners of all groups: for each parameter named in `whole` a rank in [0, ranks),
/// for the others kCutByRows. The same on every rank: a pure function of the arguments.
///
/// From the largest parameter to the smallest (of equal ones the first of the model), each goes
/// where the fullest rank that would keep its state has least; of equals where least is reduced, of
/// those where least of its own group is, so that a gather has many senders. No rank then has more
/// than the mean and one parameter, where every group is split over all ranks.
void assign_owners(std::vector<ShardGroup>& groups, const std::vector<std::string>& whole,
                   std::int64_t ranks);

/// First row and end of the cut's share of a parameter's `rows` (ShardGroup::owners).
[[nodiscard]] std::pair<std::int64_t, std::int64_t> rows_of_cut(std::int64_t rows,
                                                                std::int64_t owner,
                                                                const RowCut& cut);

}  // namespace train::engine
