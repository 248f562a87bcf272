#include "engine/generate/cache_bytes.hpp"

#include "engine/model/blocks/block.hpp"

namespace train::engine {

std::optional<CacheBytes> cache_bytes(const ModelSpec& model, CacheForm form) {
  constexpr std::int64_t kBytes = sizeof(float);
  CacheBytes bytes;
  bool found = false;
  for (const LayerSpec& layer : model.layers) {
    for (const BranchSpec& branch : layer.branches) {
      const std::optional<DecodingState> own = branch.block->decoding_state(form);
      const DecodingState state =
          own.value_or(branch.block->decoding_state(CacheForm::expanded).value_or(DecodingState()));
      bytes.token += kBytes * state.of_token;
      if (state.tokens > 0) {
        bytes.windows[state.tokens] += kBytes * state.of_token;
      }
      found = found || own;
    }
  }
  return found ? std::optional(bytes) : std::nullopt;
}

}  // namespace train::engine
