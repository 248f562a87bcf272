#pragma once

#include <string>

namespace train::engine {

/// The text of a config.json as ModelConfig reads it: Python's bare `Infinity`
/// and `NaN`, which are no JSON, in the form in which transformers 5 writes
/// them, {"__float__": "Infinity"}; and keys of the state spaces' original
/// program (`d_model`, `ssm_cfg`; no `model_type`) under transformers' names.
/// Any other text as it is.
[[nodiscard]] std::string in_known_dialect(const std::string& text);

}  // namespace train::engine
