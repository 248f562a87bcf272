#pragma once

#include "engine/model/architectures/decoder_parts.hpp"

namespace train::engine {

/// What OLMo 2 and 3 have alike.
void make_olmo_layer(ModelConfig& config, const DecoderSizes& sizes, DecoderLayer& layer);

}  // namespace train::engine
