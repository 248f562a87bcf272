#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "configs/data_section.hpp"
#include "configs/optimizer_section.hpp"
#include "configs/parallel_section.hpp"
#include "engine/collective/collective.hpp"
#include "engine/collective/collective_schedule.hpp"
#include "engine/model/initial_weights.hpp"
#include "engine/model/model.hpp"
#include "engine/rank/exact_sum.hpp"
#include "engine/rank/gradient_set.hpp"
#include "engine/rank/memory_plan.hpp"
#include "engine/sharding/buffer_schedule.hpp"
#include "engine/sharding/shard_plan.hpp"
#include "engine/state_view.hpp"
#include "kernels/backend.hpp"
#include "kernels/device/buffer.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

class Optimizer;

/// What a lane is run for.
enum class LanePurpose : std::uint8_t {
  train,     ///< Forward and backward; the gradient enters the step's sum.
  evaluate,  ///< Forward alone, on validation tokens.
  probe,     ///< Forward and backward of a training lane, counting NaN and Inf; no weight changes.
};

/// Names one lane of one command; `slot` holds its tokens.
struct LaneWork {
  LanePurpose purpose = LanePurpose::train;
  std::int64_t step = 0;
  std::int64_t lane = 0;
  std::int32_t slot = 0;
  std::int64_t round = 0;     ///< Of this rank's lanes (LaneSchedule).
  std::uint64_t command = 0;  ///< Number of the command in the conductor's stream.
};

/// What a finished step reports. Means are over the global batch, in nats.
struct StepResult {
  double loss = 0.0;  ///< Cross-entropy + z-loss.
  double cross_entropy = 0.0;
  double grad_norm = 0.0;  ///< Before clipping.
  double lr = 0.0;
  bool poisoned = false;                ///< A loss or norm was not finite; no weight was changed.
  std::vector<double> unit_grad_norms;  ///< Of each unit, before clipping.
  /// Of the updated rows whose gradient this rank finishes: Optimizer::row_sums(), which added up
  /// over ranks are those of the model (diagnose()). Empty in other steps and when poisoned.
  std::vector<ExactSum> optimizer_sums;
};

/// Mean cross-entropy in nats (no z-loss) and accuracy over the targets of all evaluation lanes.
struct EvaluationResult {
  double cross_entropy = 0.0;
  double accuracy = 0.0;
  double targets = 0.0;
};

/// Where NaN or Inf first appeared, in the order of computation.
struct NonfiniteOrigin {
  bool found = false;
  std::int64_t lane = 0;
  std::size_t unit = 0;
  bool backward = false;
};

/// Where one unit's pass finds the shared memory that its group has on lease.
struct UnitPlace {
  std::int32_t gather = -1;  ///< Lease of the gathered weights; -1: they are resident.
  std::int32_t leaf = -1;    ///< Lease of the leaf of the lane's gradient (backward of training).
};

/// All that one rank computes and keeps, below the actors: its share of weights, masters, moments
/// and gradients, the buffers it lends to gathers and leaves, lane slots. The plain loop over ranks
/// (world_step.hpp) and the actors make the same calls in the same order.
///
/// A collective op takes three calls: pack() enqueues what fills the bytes to send; when the stream
/// has run that, transfer() says which bytes go where; when they have arrived, unpack() enqueues
/// what takes them in. Op i of a channel uses staging slot i % kStagingSlots: its pack() may be
/// enqueued when the unpack() of op i - kStagingSlots has run; the first ops of a command, when
/// those of the command before have. The device memory of leases is safe by the order of the one
/// compute stream: a lease may begin when the last use of the one before it is enqueued (for a
/// leaf: when the pack() of its group's reduce has run).
///
/// Threading: calls that take a stream only enqueue; they come from one owner per unit or group,
/// and always for the same compute stream. Reductions and what follows them up to combine() may
/// have a stream of their own: a reduce's pack() comes after the visits that it sends the sums of,
/// combine() after all of it. Calls marked "in stream order" read device results: call them from
/// work on that stream, or after synchronising it. Ownership: owns all device memory; must outlive
/// the streams' work.
class RankEngine {
 public:
  struct Options {
    ModelShape shape;
    InitOptions init;
    configs::BatchSection batch;
    configs::OptimizerSection optimizer;
    configs::ScheduleSection schedule;
    configs::ParallelSection parallel;
    configs::PrecisionSection precision;
    configs::MemorySection memory;
    configs::TrainSection train;
    std::int64_t rank = 0;
    std::int64_t seq_len = 0;
    std::int64_t total_steps = 0;
    std::int64_t eval_lanes = 0;
    std::int32_t lane_slots = 4;
    /// The optimizer's sums (StepResult) are made every this many finished steps and at the last.
    std::int64_t diagnostics_interval = 1;
    bool knows_bf16 = false;  ///< The device's; an engine takes it from its kernels.
    /// Parameters that one rank shall keep whole, besides those that the optimizer needs so.
    std::vector<std::string> whole_parameters = {};
  };

  /// REQUIRES: plan_of(options) is not an error, nor check_freeze().
  RankEngine(const kernels::KernelTable& kernels, const Options& options);
  ~RankEngine();
  RankEngine(const RankEngine&) = delete;
  RankEngine& operator=(const RankEngine&) = delete;

  [[nodiscard]] const kernels::KernelTable& kernel_table() const { return *kernels_; }
  [[nodiscard]] const kernels::Device& device() const { return *kernels_->device; }
  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] const ShardPlan& plan() const { return plan_; }
  /// Visits and leases of a command (train_step, evaluate or diagnose).
  [[nodiscard]] const BufferSchedule& schedule(CommandKind kind) const;
  [[nodiscard]] std::size_t unit_count() const { return plan_.unit_count(); }
  [[nodiscard]] const std::string& unit_name(std::size_t unit) const;
  /// A slot's tokens and targets for the host to write, [micro_batch * seq_len] each.
  [[nodiscard]] std::int32_t* slot_tokens(std::int32_t slot) const;
  [[nodiscard]] std::int32_t* slot_targets(std::int32_t slot) const;

  /// Enqueue one unit's pass over one lane. Forward units 0 .. n-1, backward n-1 .. 0, this rank's
  /// lanes in the order of its rounds.
  void forward(kernels::Stream& stream, std::size_t unit, const LaneWork& work, UnitPlace place);
  void backward(kernels::Stream& stream, std::size_t unit, const LaneWork& work, UnitPlace place);

  /// A gather's pack() already takes this rank's own rows in: its lease may begin then. A reduce is
  /// packed after the group's last visit of the sync on this rank (if it has one), a
  /// spread after finish_gradient(), a refresh after settle_weights().
  void pack(kernels::Stream& stream, const CollectiveOp& op);
  /// True if what is sent needs nothing of pack(): the op may start at once.
  [[nodiscard]] bool packed_already(const CollectiveOp& op) const;
  /// Ranges of this rank's own are empty on both sides: unpack() takes its own rows from where they
  /// are. What needs no conversion is sent from, or received, where it lies; else in the slot.
  [[nodiscard]] Transfer transfer(const CollectiveOp& op) const;
  void unpack(kernels::Stream& stream, const CollectiveOp& op);
  /// reshard = N: enqueues the copy of the rows this rank keeps of a gathered group. Call it when a
  /// lease of a forward pass ends; does nothing for any other.
  void keep_for_backward(kernels::Stream& stream, CommandKind kind, std::int32_t gather);

  /// After the group's last reduce: enqueues gradient programs and the norms of this rank's rows.
  void finish_gradient(kernels::Stream& stream, std::size_t group);
  /// After loss_and_norm: enqueues loss, global norm, clip scale and the poison check.
  void combine(kernels::Stream& stream);
  /// Enqueues one weight-decay group's update of step `step` (from 0). Waits, on the stream, for
  /// `copied`: the snapshot that still reads the weights.
  void update(kernels::Stream& stream, ParameterGroup group, std::int64_t step,
              const kernels::Event& copied);
  /// After both updates: enqueues what makes compute weights of masters where they have not (bf16).
  void settle_weights(kernels::Stream& stream);

  [[nodiscard]] StepResult step_result(std::int64_t step) const;  ///< In stream order.
  [[nodiscard]] EvaluationResult evaluation_result() const;       ///< In stream order.
  [[nodiscard]] NonfiniteOrigin nonfinite_origin() const;         ///< In stream order.
  [[nodiscard]] bool poisoned() const;                            ///< In stream order.
  /// In stream order; of the masters in this rank's reduce parts. The sum over ranks modulo 2^64 is
  /// the digest of all weights, the same at any plan.
  [[nodiscard]] std::uint64_t digest() const;
  /// In stream order; engine::tensor_digests() of shard_views().
  [[nodiscard]] std::vector<std::uint64_t> tensor_digests(std::span<const std::string> names) const;
  /// The reduced gradients of this rank's rows, by parameter; valid between finish_gradient() and
  /// the next forward pass or reduce. What objectives read and change (gradient_set.hpp).
  [[nodiscard]] GradientSet& gradients();

  [[nodiscard]] double learning_rate_of(std::int64_t step) const;
  [[nodiscard]] const Optimizer& optimizer() const;
  [[nodiscard]] std::int64_t tokens_per_step() const;
  /// The rows that this rank's shard of a checkpoint holds: its reduce parts, of weights and
  /// moments. Memory of the device (HostState makes it the host's).
  [[nodiscard]] std::vector<StateView> shard_views() const;
  /// All rows that this rank keeps, and views of no row of the other tensors: what a restore fills.
  /// Call settle_restored() afterwards. Memory of the device.
  [[nodiscard]] std::vector<StateView> state_views() const;
  /// After a restore, blocking: compute weights from masters. Weights that this rank lacks the
  /// masters of (optimizer, gradient with bf16) are restored too.
  void settle_restored();
  /// Whole weights of `unit` (flat, the device's; REQUIRES: fp32); nullptr unless resident here.
  [[nodiscard]] const float* resident_weights(std::size_t unit) const;
  [[nodiscard]] Model& model();
  /// What is allocated, by kind; equals plan_memory() of the same options.
  [[nodiscard]] MemoryPlan allocated() const;

 private:
  struct Parts;  // rank_engine_parts.hpp

  void make_gradient_set();
  void make_optimizer();
  [[nodiscard]] bool diagnosed(std::int64_t step) const;  ///< It makes the optimizer's sums.
  [[nodiscard]] Lane make_lane(const LaneWork& work) const;
  [[nodiscard]] std::int64_t lane_tokens() const;
  /// Index of the count in Parts::nonfinite.
  [[nodiscard]] std::size_t nonfinite_at(std::int64_t lane, std::size_t unit, bool backward) const;
  [[nodiscard]] ConstElements group_weights(std::size_t group, const LaneWork& work,
                                            UnitPlace place) const;
  [[nodiscard]] float* group_gradient(std::size_t group, const LaneWork& work,
                                      UnitPlace place) const;
  [[nodiscard]] UnitMemory memory_of(std::size_t unit, const LaneWork& work, UnitPlace place,
                                     bool with_gradient) const;
  void make_weights(kernels::Stream& stream, std::size_t unit);
  void clear_probe(kernels::Stream& stream, std::size_t unit, bool backward, const LaneWork& work,
                   UnitPlace place);
  [[nodiscard]] bool smaller_group(const CollectiveOp& op) const;
  void pack_refresh(kernels::Stream& stream, const CollectiveOp& op);
  void pack_reduce(kernels::Stream& stream, const CollectiveOp& op);
  [[nodiscard]] Transfer transfer_blocks(const CollectiveOp& op) const;
  /// What is sent from where it lies, without packing: empty unless op is of that kind.
  [[nodiscard]] std::span<const std::byte> sent_directly(const CollectiveOp& op) const;
  /// The same bytes in memory of the host.
  [[nodiscard]] std::span<const std::byte> outgoing(const CollectiveOp& op) const;
  /// Enqueue the copies between the device and what transports send and fill; nothing on the CPU.
  void bring_to_host(kernels::Stream& stream, const CollectiveOp& op) const;
  void bring_to_device(kernels::Stream& stream, const CollectiveOp& op) const;
  /// Copies rows of a gathered group into their place: this rank's own, or the others'.
  void take_gathered(kernels::Stream& stream, const CollectiveOp& op, bool own);
  void unpack_refresh(kernels::Stream& stream, const CollectiveOp& op);
  void unpack_reduce(kernels::Stream& stream, const CollectiveOp& op);
  void unpack_spread(kernels::Stream& stream, const CollectiveOp& op);

  const kernels::KernelTable* kernels_;
  Options options_;
  ShardPlan plan_;
  std::unique_ptr<Parts> parts_;
};

/// The plan of `options`, which every rank and the launcher derive alike. Errors: ShardPlan::make.
[[nodiscard]] Result<ShardPlan> plan_of(const RankEngine::Options& options);
/// Error (user) naming train.freeze when a pattern matches no parameter and no unit.
[[nodiscard]] Status check_freeze(const RankEngine::Options& options);

}  // namespace train::engine
