#include "engine/rank/exec/log_probs/document_scores.hpp"

#include "base/text/byte_sizes.hpp"
#include "kernels/head/log_probs.hpp"

namespace train::engine {

DocumentScores::DocumentScores(const RankPlan& rank)
    : log_probs_(rank.kernels(),
                 bytes_of(rank.options().scored_lanes > 0 ? rank.lane_tokens() : 0, sizeof(float)),
                 "log-probabilities of a lane") {}

kernels::LogProbResults DocumentScores::results() const {
  return {.log_probs = log_probs_.device<float>()};
}

void DocumentScores::lane_scored(kernels::Stream& stream, const LaneWork& work,
                                 std::span<const std::int32_t> targets,
                                 std::span<const std::int32_t> positions) {
  log_probs_.to_host(stream, log_probs_.device<float>(), targets.size());
  stream.enqueue([this, lane = work.lane, targets, positions] {
    if (lane <= last_lane_) {
      sums_.clear();
    }
    last_lane_ = lane;
    const float* log_probs = log_probs_.host<float>();
    bool scored = false;  // the document has a target already
    for (std::size_t row = 0; row < targets.size(); ++row) {
      scored = scored && positions[row] != 0;
      if (targets[row] < 0) {
        continue;
      }
      if (!scored) {
        sums_.push_back(0.0);
        scored = true;
      }
      sums_.back() += static_cast<double>(log_probs[row]);
    }
  });
}

void DocumentScores::add_allocated(MemoryPlan& memory) const {
  memory.buffers_bytes += log_probs_.size_bytes();
}

}  // namespace train::engine
