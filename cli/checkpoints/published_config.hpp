#pragma once

#include <string>

#include "base/result.hpp"
#include "engine/model/spec.hpp"
#include "storage/weight_files/element_types.hpp"

namespace train::cli {

/// The config.json for weights stored as `type`: `config_text` with the class that loads them,
/// their type, and rope settings in both dialects, so that all versions read the same; for a
/// multimodal model the language model's config, with the keys of the whole. Errors (user):
/// `config_text`, from `source`, is not a JSON object.
[[nodiscard]] Result<std::string> published_config(const std::string& config_text,
                                                   const std::string& source,
                                                   const engine::ModelSpec& model,
                                                   storage::WeightType type);

}  // namespace train::cli
