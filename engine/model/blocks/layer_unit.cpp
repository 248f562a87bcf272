#include "engine/model/blocks/layer_unit.hpp"

#include "kernels/activation/elementwise.hpp"

namespace train::engine {

void LayerUnit::count_nonfinite_output(kernels::Stream& stream, const Lane& lane,
                                       std::int64_t* nonfinite) const {
  kernels_->count_nonfinite(stream, {.x = workspace_->at(output_),
                                     .count = lane.rows() * embedding_dim_,
                                     .nonfinite = nonfinite,
                                     .dtype = workspace_->dtype()});
}

}  // namespace train::engine
