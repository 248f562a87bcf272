#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "configs/data_section.hpp"
#include "configs/optimizer_section.hpp"
#include "engine/base/result.hpp"
#include "engine/gradient_norm.hpp"
#include "engine/lanes/lane_tree.hpp"
#include "engine/model/model.hpp"
#include "engine/optimizer/adamw_group.hpp"
#include "engine/state_view.hpp"
#include "engine/unit_state.hpp"
#include "kernels/backend.hpp"
#include "kernels/device/buffer.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

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
  std::uint64_t command = 0;  ///< Number of the command in the conductor's stream.
};

/// What a finished step reports. Means are over the global batch, in nats.
struct StepResult {
  double loss = 0.0;  ///< Cross-entropy + z-loss.
  double cross_entropy = 0.0;
  double grad_norm = 0.0;  ///< Before clipping.
  double lr = 0.0;
  bool poisoned = false;  ///< A loss or norm was not finite; no weight was changed.
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

/// All that one rank computes and keeps, below the actors: units, weights, moments, gradient trees,
/// lane slots. The plain loop (train_step.hpp) and the actors make the same calls in the same
/// order.
///
/// Threading: calls that take a stream only enqueue; they come from one owner per unit or group,
/// and always for the same compute stream. Calls marked "in stream order" read device results: call
/// them from work on that stream, or after synchronising it. Ownership: owns all device memory;
/// must outlive the streams' work.
class RankEngine {
 public:
  struct Options {
    ModelShape shape;
    InitOptions init;
    configs::BatchSection batch;
    configs::OptimizerSection optimizer;
    configs::ScheduleSection schedule;
    std::int64_t seq_len = 0;
    std::int64_t total_steps = 0;
    std::int64_t eval_lanes = 0;
    std::int32_t lane_slots = 4;
  };

  RankEngine(const kernels::KernelTable& kernels, const Options& options);

  [[nodiscard]] const kernels::KernelTable& kernel_table() const { return *kernels_; }

  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] std::size_t unit_count() const { return states_.size(); }
  [[nodiscard]] const std::string& unit_name(std::size_t unit) const;

  /// Host view of a slot's tokens and targets, [micro_batch * seq_len] each.
  [[nodiscard]] std::int32_t* slot_tokens(std::int32_t slot) const;
  [[nodiscard]] std::int32_t* slot_targets(std::int32_t slot) const;

  /// Enqueue one unit's pass over one lane. Forward units 0 .. n-1, backward n-1 .. 0, lanes in
  /// order.
  void forward(kernels::Stream& stream, std::size_t unit, const LaneWork& work);
  void backward(kernels::Stream& stream, std::size_t unit, const LaneWork& work);
  /// After the last lane and the reduction: enqueues the unit's squared gradient norm.
  void finish_gradient(kernels::Stream& stream, std::size_t unit);
  /// After all units: enqueues loss, global norm, clip scale and the poison check.
  void combine(kernels::Stream& stream);
  /// Enqueues one group's update of step `step` (from 0). Waits, on the stream, for `copied`: the
  /// snapshot that still reads the weights.
  void update(kernels::Stream& stream, ParameterGroup group, std::int64_t step,
              const kernels::Event& copied);

  [[nodiscard]] StepResult step_result(std::int64_t step) const;  ///< In stream order.
  [[nodiscard]] EvaluationResult evaluation_result() const;       ///< In stream order.
  [[nodiscard]] NonfiniteOrigin nonfinite_origin() const;         ///< In stream order.
  [[nodiscard]] bool poisoned() const;                            ///< In stream order.
  [[nodiscard]] std::uint64_t digest() const;  ///< In stream order; of all weights.
  [[nodiscard]] const float* gradient(std::size_t unit) const { return trees_[unit].root(); }

  [[nodiscard]] double learning_rate_of(std::int64_t step) const;
  [[nodiscard]] std::int64_t tokens_per_step() const;
  [[nodiscard]] std::vector<StateView> state_views() const;
  [[nodiscard]] const UnitState& state(std::size_t unit) const { return states_[unit]; }
  [[nodiscard]] Model& model() { return model_; }

 private:
  [[nodiscard]] Lane make_lane(const LaneWork& work) const;
  [[nodiscard]] std::int64_t* nonfinite_slot(const LaneWork& work, std::size_t unit,
                                             bool backward) const;

  const kernels::KernelTable* kernels_;
  Options options_;
  Model model_;
  std::vector<UnitState> states_;
  std::vector<LaneTree> trees_;
  std::vector<UnitSquaredNorm> norms_;
  AdamwGroup decay_, no_decay_;
  kernels::Buffer tokens_, targets_, train_sums_, eval_sums_, unit_norms_, scalars_, nonfinite_;
};

/// The engine on the device named by runtime.device. Errors: user_error if this build or machine
/// has no such device; failure if there is not enough memory (names what did not fit).
[[nodiscard]] Result<std::unique_ptr<RankEngine>> make_rank_engine(
    const std::string& device, const RankEngine::Options& options);

/// The kernels of the device named by runtime.device. REQUIRES: make_rank_engine() would accept it.
[[nodiscard]] const kernels::KernelTable& kernels_of(const std::string& device);

/// kernels::kernel_set() and kernels::measure_gemm_flops(), for those who may not see kernels.
[[nodiscard]] std::string kernel_set_name();
[[nodiscard]] double measure_peak_flops(int threads, double seconds);

}  // namespace train::engine
