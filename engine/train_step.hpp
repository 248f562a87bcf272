#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "configs/data_section.hpp"
#include "configs/optimizer_section.hpp"
#include "engine/gradient_norm.hpp"
#include "engine/lanes/lane_tree.hpp"
#include "engine/model/model.hpp"
#include "engine/optimizer/adamw_group.hpp"
#include "engine/unit_state.hpp"
#include "kernels/backend.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

/// What a finished step reports.
struct StepResult {
  double loss = 0.0;           ///< Cross-entropy + z-loss, mean over the global batch, nats.
  double cross_entropy = 0.0;  ///< Mean over the global batch, nats.
  double grad_norm = 0.0;      ///< Before clipping.
  bool poisoned = false;       ///< A loss or norm was not finite; no weight was changed.
};

/// One optimizer step as a plain loop on one rank: the file to read first. The actors run exactly
/// these calls, spread over messages; benchmark and tests compare the two, bit for bit.
class TrainStep {
 public:
  struct Options {
    ModelShape shape;
    InitOptions init;
    configs::BatchSection batch;
    configs::OptimizerSection optimizer;
    configs::ScheduleSection schedule;
    std::int64_t seq_len = 0;
    std::int64_t total_steps = 0;
  };
  /// Fills tokens and targets, [micro_batch, seq_len] each, of one lane of one step.
  using ReadLane = std::function<void(std::int64_t step, std::int64_t lane, std::int32_t* tokens,
                                      std::int32_t* targets)>;

  TrainStep(const kernels::KernelTable& kernels, const Options& options);

  /// Runs step `step` (from 0) and waits for it. Blocking.
  StepResult run(kernels::Stream& stream, std::int64_t step, const ReadLane& read_lane);

  [[nodiscard]] std::uint64_t digest() const;  ///< Of all weights.
  [[nodiscard]] std::vector<UnitState>& units() { return units_; }
  [[nodiscard]] const float* gradient(std::size_t unit) const { return trees_[unit].root(); }

 private:
  void add_slices();
  void run_lane(kernels::Stream& stream, const Lane& lane);
  /// Enqueues norm, loss and the gate of the update.
  void reduce(kernels::Stream& stream);

  const kernels::KernelTable* kernels_;
  Options options_;
  Model model_;
  std::vector<UnitState> units_;
  std::vector<LaneTree> trees_;
  std::vector<UnitSquaredNorm> norms_;
  std::vector<AdamwGroup> groups_;
  kernels::Buffer tokens_, targets_, sums_, scalars_;
};

}  // namespace train::engine
