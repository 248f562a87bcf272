#include "engine/rank/exec/passes/frozen_inputs.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "base/text/byte_sizes.hpp"
#include "engine/objective/registry.hpp"
#include "engine/rank/exec/passes/compared_outputs.hpp"

namespace train::engine {
namespace {

std::size_t bytes_of_lane(const RankLayout& layout, const RankOptions& options) {
  return bytes_of(options.batch.micro_batch * options.seq_len * options.model.embedding_dim,
                  kernels::size_of(layout.compute_dtype()));
}

std::size_t count_of_lane(const RankOptions& options) {
  return std::max<std::size_t>(1, ComparedOutputs::most(options));
}

}  // namespace

FrozenInputs::FrozenInputs(const RankPlan& rank)
    : rank_(&rank),
      lane_bytes_(bytes_of_lane(rank.layout(), rank.options())),
      of_lane_(count_of_lane(rank.options())),
      rows_(planned_bytes(rank.layout(), rank.plan(), rank.options()), "frozen copy's head inputs",
            rank.device().memory) {}

Elements FrozenInputs::of(const LaneWork& work, std::size_t index) const {
  TRAIN_CHECK(rows_.data() != nullptr, "nothing is compared with a frozen copy");
  TRAIN_CHECK(index < of_lane_, "{} of {}", index, of_lane_);
  return {rows_.data() + (static_cast<std::size_t>(work.round) * of_lane_ + index) * lane_bytes_,
          rank_->layout().compute_dtype()};
}

std::size_t FrozenInputs::planned_bytes(const RankLayout& layout, const ShardPlan& plan,
                                        const RankOptions& options) {
  if (!make_objective(options.objective)->reads_frozen()) {
    return 0;
  }
  return static_cast<std::size_t>(plan.train_lanes().rounds()) * count_of_lane(options) *
         bytes_of_lane(layout, options);
}

}  // namespace train::engine
