#pragma once

#include <cstdint>

#include "engine/model/blocks/state_space/mamba_spec.hpp"
#include "engine/model/config_json/model_config.hpp"

namespace train::engine {

/// Mamba's scan with norms of what it is given, as hybrids have it (`mamba_*` keys, modules of
/// "mamba."), of a model of width `dim`. transformers 5 leaves the steps' map and bias of Jamba to
/// its defaults, with steps of 0.7: here they start as Mamba's.
[[nodiscard]] MambaSpec hybrid_scan(ModelConfig& config, std::int64_t dim, float eps);

}  // namespace train::engine
