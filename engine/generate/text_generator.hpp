#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/model/model.hpp"
#include "kernels/backend.hpp"
#include "kernels/device/buffer.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

struct SamplingOptions {
  double temperature = 0.8;  ///< 0: always the most likely token.
  std::int64_t top_k = 0;    ///< Keep the k most likely; 0: all.
  double top_p = 1.0;        ///< Keep the smallest set with at least this probability (nucleus).
  std::uint64_t seed = 0;
};

/// Picks the token at `position` of the text. Pure function of its arguments (counter-based
/// generator keyed by (seed, position)). Ties are ordered by token id. `vocab`: ids at and above it
/// are padding of the model's vocabulary and never chosen.
[[nodiscard]] std::int32_t sample_token(std::span<const float> logits, std::int64_t vocab,
                                        const SamplingOptions& options, std::int64_t position);

/// Continues a text token by token with a trained model. A plain tool outside training: it blocks.
/// Each token is a forward pass over the last `context` tokens. REQUIRES: kernels of the host.
/// Ownership: owns its activations; borrows the weights (flat, one pointer per unit).
class TextGenerator {
 public:
  TextGenerator(const kernels::KernelTable& kernels, const ModelSpec& spec, std::int64_t context,
                std::vector<const float*> weights);

  struct Request {
    std::vector<std::int32_t> prompt;  ///< At least one token.
    std::int64_t tokens = 0;           ///< New tokens to make.
    std::int64_t vocab = 0;            ///< Ids the tokenizer knows; the rest is padding.
    SamplingOptions sampling;
  };
  /// Called with each new token; false stops.
  using OnToken = std::function<bool(std::int32_t token)>;

  void generate(kernels::Stream& stream, const Request& request, const OnToken& on_token);

 private:
  [[nodiscard]] UnitMemory memory_of(std::size_t unit) const;
  [[nodiscard]] std::span<const float> next_logits(kernels::Stream& stream,
                                                   std::span<const std::int32_t> text);

  std::int64_t context_;
  Model model_;
  std::vector<const float*> weights_;
  kernels::Buffer tokens_, logits_;
};

}  // namespace train::engine
