#include "engine/model/blocks/embedding_unit.hpp"

#include "base/check.hpp"
#include "kernels/activation/bias.hpp"
#include "kernels/activation/elementwise.hpp"
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
  output_ =
      workspace.keep_for_next("embedding.", "residual", workspace.rows() * spec.embedding_dim);
  residual_gradient_ = share_residual_gradient(workspace, spec.embedding_dim);
}

void EmbeddingUnit::forward(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane) {
  kernels_->embedding_forward(stream, {.tokens = lane.tokens,
                                       .weight = memory.weights + weight_.offset,
                                       .out = workspace_->at(output_),
                                       .rows = lane.rows(),
                                       .cols = embedding_dim_,
                                       .vocab = vocab_size_,
                                       .scale = scale_,
                                       .dtype = workspace_->dtype()});
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
  if (!weight_.frozen) {
    kernels_->embedding_backward(stream, {.tokens = lane.tokens,
                                          .dout = workspace_->at(residual_gradient_),
                                          .dweight = memory.gradient + weight_.gradient,
                                          .rows = lane.rows(),
                                          .cols = embedding_dim_,
                                          .vocab = vocab_size_,
                                          .accumulate = tied_,
                                          .scale = scale_,
                                          .dtype = workspace_->dtype()});
  }
  if (position_rows_ > 0 && !positions_.frozen) {
    float* gradient = memory.gradient + positions_.gradient;
    const std::int64_t used = used_positions(lane);
    kernels_->bias_gradient(stream, {.dy = workspace_->at(residual_gradient_),
                                     .dbias = gradient,
                                     .positions = lane.positions,
                                     .rows = lane.rows(),
                                     .cols = embedding_dim_,
                                     .stride = embedding_dim_,
                                     .period = used,
                                     .dtype = workspace_->dtype()});
    kernels_->fill(stream, {.out = gradient + used * embedding_dim_,
                            .count = (position_rows_ - used) * embedding_dim_});
  }
}

std::int64_t EmbeddingUnit::used_positions(const Lane& lane) const {
  return lane.positions == nullptr ? lane.seq_len : position_rows_;
}

}  // namespace train::engine
