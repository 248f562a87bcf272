#pragma once

#include "engine/model/model_shape.hpp"
#include "engine/rank/plan/rank_options.hpp"

namespace train::engine::testing {

/// The dimensions of a model of an architecture of our own; of an empty spec those of ModelShape.
inline ModelShape shape_of(const ModelSpec& model) {
  ModelShape shape;
  if (model.layers.empty()) {
    return shape;
  }
  const LayerSpec& layer = model.layers.front();
  shape.architecture =
      model.architecture == "enoki" ? Architecture::enoki : Architecture::dstar_qwen3;
  shape.layers = static_cast<std::int64_t>(model.layers.size());
  shape.heads = layer.attention.heads;
  shape.head_dim = layer.attention.head_dim;
  shape.embedding_dim = model.embedding_dim;
  shape.mlp_hidden = layer.mlp.hidden;
  shape.vocab_size = model.vocab_size;
  shape.norm_eps = model.final_norm.eps;
  shape.rope_theta = model.ropes.front().theta;
  shape.residual_scale = model.residual_scale;
  shape.z_loss_coeff = model.z_loss_coeff;
  shape.qk_norm = layer.attention.head_norm != HeadNorm::none;
  shape.output_gate = layer.attention.output_gate;
  shape.tie_embeddings = model.tie_embeddings;
  return shape;
}

/// Gives the model other dimensions.
template <class Change>
void reshape(RankOptions& options, const Change& change) {
  ModelShape shape = shape_of(options.model);
  change(shape);
  options.model = shape;
}

}  // namespace train::engine::testing
