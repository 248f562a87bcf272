#pragma once

#include <string>

#include "base/result.hpp"
#include "engine/model/spec.hpp"
#include "storage/weight_files/element_types.hpp"

namespace train::cli {

/// The config.json of weights that are written as `type`: as `config_text` has it, with the class
/// that loads them, their type, and ropes in both dialects, so that all versions read the same; of
/// a model that also sees or hears the language model's, with the keys of the whole. Errors (user):
/// `config_text`, of `source`, is no JSON object.
[[nodiscard]] Result<std::string> published_config(const std::string& config_text,
                                                   const std::string& source,
                                                   const engine::ModelSpec& model,
                                                   storage::WeightType type);

}  // namespace train::cli
