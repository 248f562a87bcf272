#include "engine/rank/exec/log_probs/sampled_tokens.hpp"

#include <algorithm>
#include <span>

#include "base/check.hpp"
#include "base/text/byte_sizes.hpp"
#include "engine/generate/sampling.hpp"

namespace train::engine {

SampledTokens::SampledTokens(const RankPlan& rank)
    : rank_(&rank),
      logits_(rank.kernels(),
              bytes_of(rank.options().sampled_texts > 0 ? rank.options().model.vocab_size : 0,
                       sizeof(float)),
              "logits of a sampled token") {}

std::int64_t SampledTokens::rows_of(const LaneWork& work, std::int64_t seq_len) {
  TRAIN_CHECK(work.text.tokens > 0, "lane {} has no text", work.lane);
  return std::min(seq_len, (work.text.tokens + kRows - 1) / kRows * kRows);
}

std::int64_t SampledTokens::last_row(const LaneWork& work, std::int64_t seq_len) {
  return std::min(seq_len, work.text.tokens) - 1;
}

void SampledTokens::logits_computed(kernels::Stream& stream, const LaneWork& work) {
  const auto count = static_cast<std::size_t>(rank_->options().model.vocab_size);
  logits_.to_host(stream, logits_.device<float>(), count);
  stream.enqueue([this, work] { choose(work); });
}

void SampledTokens::choose(const LaneWork& work) {
  if (work.lane <= last_lane_) {
    tokens_.clear();
  }
  last_lane_ = work.lane;
  const RankOptions& options = rank_->options();
  const std::span<float> logits(logits_.host<float>(),
                                static_cast<std::size_t>(options.model.vocab_size));
  cap_logits(logits, options.model.logit_softcap);
  tokens_.push_back(sample_token(logits, work.text.vocab, options.sampling, work.text.tokens));
}

void SampledTokens::add_allocated(MemoryPlan& memory) const {
  memory.buffers_bytes += logits_.size_bytes();
}

}  // namespace train::engine
