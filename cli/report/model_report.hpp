#pragma once

#include <string>

#include "engine/model/spec.hpp"

namespace train::cli {

/// A table of the model for people: sizes, ropes, each kind of layer with the layers that are such,
/// parameters, FLOPs of a token and bytes of its weights in each type.
[[nodiscard]] std::string describe_spec(const engine::ModelSpec& model);

}  // namespace train::cli
