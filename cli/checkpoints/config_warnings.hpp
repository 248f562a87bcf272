#pragma once

#include <string>

#include "base/result.hpp"
#include "engine/model/spec.hpp"

namespace train::cli {

/// Model described by a config.json, for so many positions (0: unknown). Logs a warning that names
/// keys which no part of the model uses. Errors: those of engine::spec_from_config().
[[nodiscard]] Result<engine::ModelSpec> read_model_config(const std::string& text,
                                                          const std::string& source,
                                                          std::int64_t context);

/// Logs that warning for a model that is already parsed. `source`: named in it.
void warn_of_unread_keys(const engine::ModelSpec& model, const std::string& source);

/// Warns before training that the model's dropout is not applied.
void warn_of_dropout(const engine::ModelSpec& model, const std::string& source);

}  // namespace train::cli
