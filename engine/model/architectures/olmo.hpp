#pragma once

#include "engine/model/architectures/decoder_parts.hpp"

namespace train::engine {

/// Fills in the parts of a layer that OLMo 2 and 3 share.
void make_olmo_layer(ModelConfig& config, const DecoderSizes& sizes, DecoderLayer& layer);

}  // namespace train::engine
