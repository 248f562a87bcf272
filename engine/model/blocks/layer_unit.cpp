#include "engine/model/blocks/layer_unit.hpp"

#include "base/check.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/backend.hpp"

namespace train::engine {

Lane LayerUnit::with_prefix(const Lane& lane) const {
  TRAIN_CHECK(prefix_ == 0 || lane.positions == nullptr || lane.cache != CacheUse::none,
              "a lane of several texts a sequence, before each of which there are {} rows",
              prefix_);
  Lane seen = lane;
  seen.seq_len += lane.cache == CacheUse::extend ? 0 : prefix_;
  return seen;
}

void LayerUnit::count_nonfinite_output(kernels::Stream& stream, const Lane& lane,
                                       std::int64_t* nonfinite) const {
  kernels_->count_nonfinite(stream, {.x = workspace_->at(output_),
                                     .count = with_prefix(lane).rows() * embedding_dim_,
                                     .nonfinite = nonfinite,
                                     .dtype = workspace_->dtype()});
}

}  // namespace train::engine
