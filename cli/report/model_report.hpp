#pragma once

#include <string>

#include "engine/model/spec.hpp"

namespace train::cli {

/// Text table of the model: sizes, ropes, each kind of layer with its layer numbers, parameters,
/// FLOPs per token and bytes of the weights in each type.
[[nodiscard]] std::string describe_spec(const engine::ModelSpec& model);

}  // namespace train::cli
