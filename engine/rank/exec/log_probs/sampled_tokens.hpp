#pragma once

#include <cstdint>
#include <vector>

#include "engine/command.hpp"
#include "engine/host_state.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

/// The next token of each text that sampled lanes hold, by RankOptions::sampling. A text's token
/// depends on its weights, its tokens and their number alone. On the CPU it is the token that
/// TextGenerator would choose.
///
/// A lane has the text's last `seq_len` tokens at most, then padding that no row of the text sees:
/// whole kRows, so that a device meets few shapes.
///
/// Threading: calls that take a stream only enqueue. Ownership: owns its memory.
class SampledTokens {
 public:
  static constexpr std::int64_t kRows = 32;

  explicit SampledTokens(const RankPlan& rank);

  /// Rows of the lane, of `seq_len` at most, and the one of the text's last token. REQUIRES: the
  /// text has a token.
  [[nodiscard]] static std::int64_t rows_of(const LaneWork& work, std::int64_t seq_len);
  [[nodiscard]] static std::int64_t last_row(const LaneWork& work, std::int64_t seq_len);

  /// Device memory that receives the logits of a lane's last token, before any cap.
  [[nodiscard]] float* logits() const { return logits_.device<float>(); }
  /// Enqueues the choice of the lane's next token. A lane that does not follow the previous one
  /// clears tokens().
  void logits_computed(kernels::Stream& stream, const LaneWork& work);

  /// Tokens of this rank's lanes, in their order. To be read in stream order.
  [[nodiscard]] const std::vector<std::int32_t>& tokens() const { return tokens_; }

  void add_allocated(MemoryPlan& memory) const;

 private:
  void choose(const LaneWork& work);

  const RankPlan* rank_;
  HostDeviceBuffer logits_;      // [vocab_size]; none without sampled texts.
  std::int64_t last_lane_ = -1;  // Last lane in tokens_, in stream order.
  std::vector<std::int32_t> tokens_;
};

}  // namespace train::engine
