#pragma once

#include <string>

#include "base/result.hpp"
#include "engine/model/spec.hpp"

namespace train::cli {

/// The model that a config.json describes, for so many positions (0: not known). Logs a warning
/// that names what the text says and no part of the model has. Errors: those of
/// engine::spec_from_config().
[[nodiscard]] Result<engine::ModelSpec> read_model_config(const std::string& text,
                                                          const std::string& source,
                                                          std::int64_t context);

/// The same of a model that is read already. `source`: named in it.
void warn_of_unread_keys(const engine::ModelSpec& model, const std::string& source);

/// Of a model that is about to be trained: it says dropout, and none is done.
void warn_of_dropout(const engine::ModelSpec& model, const std::string& source);

}  // namespace train::cli
