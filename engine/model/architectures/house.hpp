#pragma once

#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/model_shape.hpp"

namespace train::engine {

/// Enoki: LayerNorm before each branch, one c_attn, norms of queries and keys, an exact GELU.
[[nodiscard]] ModelSpec enoki_spec(const ModelShape& shape);
/// DSTAR's variant of Qwen3: RMSNorm, SwiGLU, a sigmoid gate on the attention's output.
[[nodiscard]] ModelSpec dstar_qwen3_spec(const ModelShape& shape);

/// Spec shared by both architectures: names of embedding, norms and head, ropes, scales.
[[nodiscard]] ModelSpec house_spec(const ModelShape& shape, kernels::NormKind norm);
/// A layer of house_spec(); only the sizes of attention and MLP are filled in.
[[nodiscard]] DecoderLayer house_layer(const ModelShape& shape, kernels::NormKind norm,
                                       std::int64_t index);

}  // namespace train::engine
