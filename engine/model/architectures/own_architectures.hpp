#pragma once

#include "engine/model/model_shape.hpp"
#include "engine/model/spec.hpp"

namespace train::engine {

/// Enoki: LayerNorm before each branch, one c_attn, norms of queries and keys, an exact GELU.
[[nodiscard]] ModelSpec enoki_spec(const ModelShape& shape);
/// DSTAR's variant of Qwen3: RMSNorm, SwiGLU, a sigmoid gate on the attention's output.
[[nodiscard]] ModelSpec dstar_qwen3_spec(const ModelShape& shape);

}  // namespace train::engine
