#include "engine/model/blocks/rotation_block.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/backend.hpp"
#include "kernels/rope/rope.hpp"

namespace train::engine {

RotationBlock::RotationBlock(const BlockContext& context, std::optional<std::size_t> rope,
                             const ModelSpec& model)
    : kernels_(&context.kernels), workspace_(&context.workspace) {
  if (!rope) {
    return;
  }
  rope_ = model.ropes.at(*rope);
  const std::int64_t angles = workspace_->seq_len() * rope_->rotary_dim / 2;
  cos_ = workspace_->share(fmt::format("rope {} cos", *rope), angles, Content::floats);
  sin_ = workspace_->share(fmt::format("rope {} sin", *rope), angles, Content::floats);
}

void RotationBlock::fill_table(const BlockCall& call) const {
  if (!rope_ || !workspace_->first_use(cos_)) {
    return;
  }
  kernels::RopeFrequencies frequencies;
  frequencies.given = !rope_->frequencies.empty();
  std::copy(rope_->frequencies.begin(), rope_->frequencies.end(), frequencies.values.begin());
  kernels_->rope_table(call.stream, {.cos = workspace_->floats_at(cos_),
                                     .sin = workspace_->floats_at(sin_),
                                     .seq_len = workspace_->seq_len(),
                                     .head_dim = rope_->rotary_dim,
                                     .theta = rope_->theta,
                                     .frequencies = frequencies,
                                     .factor = rope_->factor});
}

void RotationBlock::apply(const BlockCall& call, Elements x, kernels::RowLayout layout,
                          std::int64_t heads, bool inverse) const {
  if (!rope_) {
    return;
  }
  // After how many rows positions begin anew, or with given positions how many there are.
  const std::int64_t period =
      call.lane.positions == nullptr ? call.lane.seq_len : workspace_->seq_len();
  kernels_->rope_apply(call.stream, {.x = x,
                                     .cos = workspace_->floats_at(cos_),
                                     .sin = workspace_->floats_at(sin_),
                                     .positions = call.lane.positions,
                                     .tokens = call.lane.rows(),
                                     .seq_len = period,
                                     .heads = heads,
                                     .head_dim = rope_->rotary_dim,
                                     .layout = layout,
                                     .pairing = rope_->pairing,
                                     .inverse = inverse,
                                     .dtype = x.dtype});
}

kernels::RowRotation RotationBlock::by_place(const BlockCall& call) const {
  return {.cos = workspace_->floats_at(cos_),
          .sin = workspace_->floats_at(sin_),
          .seq_len = call.lane.seq_len};
}

}  // namespace train::engine
