#pragma once

#include "engine/model/architectures/decoder_parts.hpp"

namespace train::engine {

/// Parts shared by Gemma 2 and 3: a scaled embedding tied to the head, gains of 1 + w, norms before
/// and behind both branches, attention's own scale.
[[nodiscard]] ModelSpec gemma_model(ModelConfig& config, const DecoderSizes& sizes);
void make_gemma_layer(ModelConfig& config, const DecoderSizes& sizes, DecoderLayer& layer);

}  // namespace train::engine
