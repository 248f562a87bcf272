#pragma once

#include <cstdint>
#include <span>

namespace train::engine {

struct SamplingOptions {
  double temperature = 0.8;  ///< 0: always the most likely token.
  std::int64_t top_k = 0;    ///< Keep the k most likely; 0: all.
  double top_p = 1.0;        ///< Keep the smallest set with at least this probability (nucleus).
  std::uint64_t seed = 0;
};

/// Caps the logits: cap * tanh(logit / cap). 0: no cap.
void cap_logits(std::span<float> logits, float cap);

/// Picks the token at `position` of the text. Pure function of its arguments (counter-based
/// generator keyed by (seed, position)). Ties are ordered by token id. `vocab`: ids at and above it
/// are padding of the model's vocabulary and never chosen.
[[nodiscard]] std::int32_t sample_token(std::span<const float> logits, std::int64_t vocab,
                                        const SamplingOptions& options, std::int64_t position);

}  // namespace train::engine
