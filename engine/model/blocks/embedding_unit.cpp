#include "engine/model/blocks/embedding_unit.hpp"

namespace train::engine {

EmbeddingUnit::EmbeddingUnit(const kernels::KernelTable& kernels, Workspace& workspace,
                             const ModelShape& shape)
    : UnitBase("embedding", kernels, workspace, shape.embedding_dim),
      vocab_size_(shape.vocab_size),
      tied_(shape.tie_embeddings) {
  // Tied or not: as an embedding it is not decayed, and drawn by the embedding's rule.
  weight_ = parameters_.add({.name = "transformer.wte.weight",
                             .rows = shape.vocab_size,
                             .cols = shape.embedding_dim,
                             .group = ParameterGroup::no_decay,
                             .init = InitKind::embedding});
  output_ = workspace.keep("transformer.wte.", "residual", workspace.rows() * shape.embedding_dim);
  residual_gradient_ = share_residual_gradient(workspace, shape.embedding_dim);
}

void EmbeddingUnit::forward(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane) {
  kernels_->embedding_forward(stream, {.tokens = lane.tokens,
                                       .weight = memory.weights + weight_,
                                       .out = workspace_->at(output_),
                                       .rows = lane.rows(),
                                       .cols = embedding_dim_,
                                       .vocab = vocab_size_,
                                       .dtype = workspace_->dtype()});
}

void EmbeddingUnit::backward(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane) {
  kernels_->embedding_backward(stream, {.tokens = lane.tokens,
                                        .dout = workspace_->at(residual_gradient_),
                                        .dweight = memory.gradient + weight_,
                                        .rows = lane.rows(),
                                        .cols = embedding_dim_,
                                        .vocab = vocab_size_,
                                        .accumulate = tied_,
                                        .dtype = workspace_->dtype()});
}

}  // namespace train::engine
