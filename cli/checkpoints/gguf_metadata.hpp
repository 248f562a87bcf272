#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "engine/model/spec.hpp"
#include "storage/weight_files/gguf_writer.hpp"

namespace train::cli {

/// Tensor of a GGUF file that holds settings, not weights: F32, one axis.
struct GgufConstant {
  std::string name;
  std::vector<float> values;
};

/// A model's part of a GGUF file's metadata, as llama.cpp reads it.
struct GgufModelMetadata {
  std::vector<storage::GgufField> fields;
  std::vector<GgufConstant> constants;  ///< Divisors of rope frequencies.
  std::vector<std::string> notes;       ///< Sentences: what llama.cpp computes otherwise.
};

/// Architecture and sizes of `model`, which a config.json describes: `intermediate_size` and
/// `max_position_embeddings` are read from there. Errors (user): llama.cpp has no such
/// architecture, or not with the model's settings; names the setting.
Result<GgufModelMetadata> gguf_metadata(const engine::ModelSpec& model,
                                        const nlohmann::ordered_json& config);

/// llama.cpp's name of ModelSpec::architecture; empty: it has none.
[[nodiscard]] std::string_view gguf_architecture(std::string_view architecture);

}  // namespace train::cli
