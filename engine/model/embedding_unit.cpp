#include "engine/model/embedding_unit.hpp"

namespace train::engine {

EmbeddingUnit::EmbeddingUnit(const kernels::KernelTable& kernels, Workspace& workspace,
                             std::int64_t embedding_dim, std::int64_t vocab_size)
    : UnitBase("embedding", kernels, workspace, embedding_dim), vocab_size_(vocab_size) {
  weight_ = parameters_.add({.name = "transformer.wte.weight",
                             .rows = vocab_size,
                             .cols = embedding_dim,
                             .group = ParameterGroup::no_decay,
                             .init = InitKind::embedding});
  output_ = workspace.keep("transformer.wte.", "residual", workspace.rows() * embedding_dim);
  residual_gradient_ = share_residual_gradient(workspace, embedding_dim);
}

void EmbeddingUnit::forward(kernels::Stream& stream, const float* weights, const Lane& lane,
                            float* /*gradient*/) {
  kernels_->embedding_forward(stream, {.tokens = lane.tokens,
                                       .weight = weights + weight_,
                                       .out = workspace_->at(output_),
                                       .rows = lane.rows(),
                                       .cols = embedding_dim_,
                                       .vocab = vocab_size_});
}

void EmbeddingUnit::backward(kernels::Stream& stream, const float* /*weights*/, const Lane& lane,
                             float* gradient) {
  kernels_->embedding_backward(stream, {.tokens = lane.tokens,
                                        .dout = workspace_->at(residual_gradient_),
                                        .dweight = gradient + weight_,
                                        .rows = lane.rows(),
                                        .cols = embedding_dim_,
                                        .vocab = vocab_size_});
}

}  // namespace train::engine
