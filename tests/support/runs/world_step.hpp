#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/lanes/text_lanes.hpp"
#include "engine/rank/exec/rank_engine.hpp"

namespace train::engine {

/// Training step of all ranks as a plain loop in one thread: the work of the actors without
/// messages, in program order. The file to read first, and the oracle of the tests.
///
/// Blocking; for tests, benchmarks and readers. Every rank has its own RankEngine; bytes are copied
/// between them with memcpy.
class WorldStep {
 public:
  using Options = RankOptions;
  /// Fills a lane's tokens and targets, [micro_batch * seq_len] each; eval: validation lanes.
  using ReadLane = std::function<void(std::int64_t step, std::int64_t lane, std::int32_t* tokens,
                                      std::int32_t* targets)>;
  /// Fills a lane's columns, all those of the objective.
  using FillLane = std::function<void(std::int64_t step, std::int64_t lane, const LaneSlot& slot)>;

  /// Makes `options.parallel.ranks` engines. REQUIRES: plan_of(options) is not an error.
  WorldStep(const kernels::KernelTable& kernels, const Options& options);

  /// Runs step `step` (from 0). Checks that every rank has the same result and returns it.
  StepResult run(kernels::Stream& stream, std::int64_t step, const FillLane& fill_lane);
  StepResult run(kernels::Stream& stream, std::int64_t step, const ReadLane& read_lane);
  /// Runs a step of as many passes as there are streams, each with its own lanes.
  StepResult run_passes(kernels::Stream& stream, std::int64_t step,
                        const std::vector<FillLane>& streams);
  EvaluationResult evaluate(kernels::Stream& stream, const FillLane& fill_lane);
  EvaluationResult evaluate(kernels::Stream& stream, const ReadLane& read_lane);
  /// Scores the documents of the scored lanes.
  void score(kernels::Stream& stream, const FillLane& fill_lane);
  /// The next token of each text, in their order.
  std::vector<std::int32_t> sample(kernels::Stream& stream, const TextTokens& texts);
  /// Computes the reference's log-probabilities of the documents of as many lanes as a step has.
  void compute_reference(kernels::Stream& stream, std::int64_t index, const FillLane& fill_lane);
  /// Runs the lanes of `step` again and finds the first NaN or Inf; weights are unchanged.
  NonfiniteOrigin find_nonfinite(kernels::Stream& stream, std::int64_t step,
                                 const ReadLane& read_lane);
  /// Searches pass `number` of a step.
  NonfiniteOrigin find_nonfinite(kernels::Stream& stream, std::int64_t step,
                                 const FillLane& fill_lane, std::size_t number = 0);

  [[nodiscard]] std::uint64_t digest() const;  ///< All weights, summed over ranks.
  [[nodiscard]] RankEngine& rank(std::int64_t rank) {
    return *ranks_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] const RankEngine& rank(std::int64_t rank) const {
    return *ranks_[static_cast<std::size_t>(rank)];
  }

 private:
  void keep_gradient(kernels::Stream& stream, const PassPlan& pass, std::int64_t step,
                     const FillLane& fill_lane);
  void compute_reference(kernels::Stream& stream, const PassPlan& pass, std::int64_t step,
                         const FillLane& fill_lane);
  void add_block_sums(kernels::Stream& stream, const PassPlan& pass, std::int64_t step,
                      const FillLane& fill_lane);
  void finish_gradients(kernels::Stream& stream, const LaneWork& work);

  std::vector<std::unique_ptr<RankEngine>> ranks_;
};

}  // namespace train::engine
