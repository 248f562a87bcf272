#include "engine/model/blocks/embedding_unit.hpp"

#include "base/check.hpp"
#include "engine/model/blocks/copy_rows.hpp"
#include "kernels/activation/bias.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/backend.hpp"
#include "kernels/embedding/embedding.hpp"

namespace train::engine {

EmbeddingUnit::EmbeddingUnit(const kernels::KernelTable& kernels, Workspace& workspace,
                             const ModelSpec& spec)
    : LayerUnit("embedding", kernels, workspace, spec),
      vocab_size_(spec.vocab_size),
      tied_(spec.tie_embeddings),
      scale_(spec.embedding_scale) {
  // Tied or not: as an embedding it is not decayed, and drawn by the embedding's rule.
  weight_ = parameters_.add({.name = spec.embedding,
                             .shape = {spec.vocab_size, spec.embedding_dim},
                             .group = ParameterGroup::no_decay,
                             .init = InitKind::embedding});
  if (!spec.positions.empty()) {
    TRAIN_CHECK(workspace.seq_len() <= spec.position_rows, "{} positions for a sequence of {}",
                spec.position_rows, workspace.seq_len());
    position_rows_ = spec.position_rows;
    positions_ = parameters_.add({.name = spec.positions,
                                  .shape = {spec.position_rows, spec.embedding_dim},
                                  .group = ParameterGroup::no_decay,
                                  .init = InitKind::embedding});
  }
  if (prefix_ > 0) {
    prefix_rows_ = parameters_.add({.name = spec.prefix,
                                    .shape = {prefix_, spec.embedding_dim},
                                    .group = ParameterGroup::no_decay,
                                    .init = InitKind::embedding});
    token_rows_ = share_token_rows(workspace, spec);
    prefix_gradients_ =
        workspace.share_backward("gradient of the prefix of each sequence",
                                 workspace.sequences() * prefix_ * spec.embedding_dim);
  }
  output_ =
      workspace.keep_for_next("embedding.", "residual", workspace.rows() * spec.embedding_dim);
  residual_gradient_ = share_residual_gradient(workspace, spec.embedding_dim);
}

void EmbeddingUnit::embed(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane,
                          Elements out) const {
  kernels_->embedding_forward(stream, {.tokens = lane.tokens,
                                       .weight = memory.weights + weight_.offset,
                                       .out = out,
                                       .rows = lane.rows(),
                                       .cols = embedding_dim_,
                                       .vocab = vocab_size_,
                                       .scale = scale_,
                                       .dtype = workspace_->dtype()});
}

void EmbeddingUnit::put_prefixes(kernels::Stream& stream, const UnitMemory& memory,
                                 const Lane& lane) const {
  const Elements out = workspace_->at(output_);
  const std::int64_t stride = with_prefix(lane).seq_len * embedding_dim_;
  const std::int64_t width = prefix_ * embedding_dim_;
  for (std::int64_t sequence = 0; sequence < lane.sequences; ++sequence) {
    copy_rows(*kernels_, stream, memory.weights + prefix_rows_.offset, out + sequence * stride,
              {.rows = 1, .cols = width, .from_stride = width, .to_stride = width});
  }
  const std::int64_t tokens = lane.seq_len * embedding_dim_;
  copy_rows(*kernels_, stream, workspace_->at(token_rows_), out + width,
            {.rows = lane.sequences, .cols = tokens, .from_stride = tokens, .to_stride = stride});
}

ConstElements EmbeddingUnit::prefix_backward(kernels::Stream& stream, const UnitMemory& memory,
                                             const Lane& lane) const {
  const ConstElements gradient = workspace_->at(residual_gradient_);
  const std::int64_t stride = with_prefix(lane).seq_len * embedding_dim_;
  const std::int64_t width = prefix_ * embedding_dim_;
  const std::int64_t tokens = lane.seq_len * embedding_dim_;
  const Elements of_tokens = workspace_->at(token_rows_);
  copy_rows(*kernels_, stream, gradient + width, of_tokens,
            {.rows = lane.sequences, .cols = tokens, .from_stride = stride, .to_stride = tokens});
  if (!prefix_rows_.frozen) {
    const Elements of_prefixes = workspace_->at(prefix_gradients_);
    copy_rows(*kernels_, stream, gradient, of_prefixes,
              {.rows = lane.sequences, .cols = width, .from_stride = stride, .to_stride = width});
    kernels_->bias_gradient(stream, {.dy = of_prefixes,
                                     .dbias = memory.gradient + prefix_rows_.gradient,
                                     .rows = lane.sequences * prefix_,
                                     .cols = embedding_dim_,
                                     .stride = embedding_dim_,
                                     .period = prefix_,
                                     .dtype = of_prefixes.dtype});
  }
  return of_tokens;
}

void EmbeddingUnit::forward(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane) {
  const bool puts_prefixes = prefix_ > 0 && lane.cache != CacheUse::extend;
  embed(stream, memory, lane, workspace_->at(puts_prefixes ? token_rows_ : output_));
  if (puts_prefixes) {
    put_prefixes(stream, memory, lane);
  }
  if (position_rows_ > 0) {
    kernels_->bias_add(stream, {.y = workspace_->at(output_),
                                .bias = memory.weights + positions_.offset,
                                .positions = lane.positions,
                                .rows = lane.rows(),
                                .cols = embedding_dim_,
                                .stride = embedding_dim_,
                                .period = used_positions(lane),
                                .dtype = workspace_->dtype()});
  }
}

void EmbeddingUnit::backward(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane) {
  const ConstElements gradient = prefix_ > 0 ? prefix_backward(stream, memory, lane)
                                             : ConstElements(workspace_->at(residual_gradient_));
  if (!weight_.frozen) {
    kernels_->embedding_backward(stream, {.tokens = lane.tokens,
                                          .dout = gradient,
                                          .dweight = memory.gradient + weight_.gradient,
                                          .rows = lane.rows(),
                                          .cols = embedding_dim_,
                                          .vocab = vocab_size_,
                                          .accumulate = tied_,
                                          .scale = scale_,
                                          .dtype = workspace_->dtype()});
  }
  if (position_rows_ > 0 && !positions_.frozen) {
    float* of_positions = memory.gradient + positions_.gradient;
    const std::int64_t used = used_positions(lane);
    kernels_->bias_gradient(stream, {.dy = workspace_->at(residual_gradient_),
                                     .dbias = of_positions,
                                     .positions = lane.positions,
                                     .rows = lane.rows(),
                                     .cols = embedding_dim_,
                                     .stride = embedding_dim_,
                                     .period = used,
                                     .dtype = workspace_->dtype()});
    kernels_->fill(stream, {.out = of_positions + used * embedding_dim_,
                            .count = (position_rows_ - used) * embedding_dim_});
  }
}

std::int64_t EmbeddingUnit::used_positions(const Lane& lane) const {
  return lane.positions == nullptr ? lane.seq_len : position_rows_;
}

}  // namespace train::engine
