#pragma once

#include <cstdint>
#include <functional>

#include "engine/rank_engine.hpp"
#include "kernels/backend.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

/// One optimizer step as a plain loop on one rank: the file to read first. The actors make exactly
/// these calls, spread over messages; benchmark and tests compare the two, bit for bit.
/// Threading: one owner, one stream. Ownership: owns the rank's engine.
class TrainStep {
 public:
  using Options = RankEngine::Options;
  /// Fills tokens and targets, [micro_batch, seq_len] each, of one lane of one step.
  using ReadLane = std::function<void(std::int64_t step, std::int64_t lane, std::int32_t* tokens,
                                      std::int32_t* targets)>;

  TrainStep(const kernels::KernelTable& kernels, const Options& options);

  /// Runs step `step` (from 0) and waits for it. Blocking.
  StepResult run(kernels::Stream& stream, std::int64_t step, const ReadLane& read_lane);
  /// Loss over the evaluation lanes (options.eval_lanes > 0); changes no weight. Blocking.
  EvaluationResult evaluate(kernels::Stream& stream, const ReadLane& read_lane);

  [[nodiscard]] RankEngine& rank() { return rank_; }
  [[nodiscard]] const RankEngine& rank() const { return rank_; }

 private:
  void run_lane(kernels::Stream& stream, const LaneWork& lane, const ReadLane& read_lane);

  RankEngine rank_;
};

}  // namespace train::engine
