#pragma once

#include "engine/model/model_shape.hpp"
#include "engine/rank/plan/rank_options.hpp"

namespace train::engine::testing {

/// Changes the model's dimensions.
template <class Change>
void reshape(RankOptions& options, const Change& change) {
  ModelShape shape = options.model.layers.empty() ? ModelShape() : shape_of(options.model);
  change(shape);
  options.model = shape;
}

}  // namespace train::engine::testing
