#include "engine/model/blocks/attention_block.hpp"

#include <cmath>

#include "base/check.hpp"

namespace train::engine {

AttentionBlock::AttentionBlock(const BlockContext& context, const AttentionOptions& options)
    : kernels_(&context.kernels), workspace_(&context.workspace), options_(options) {
  TRAIN_CHECK(!(options.fused_projection && options.output_gate));
  const bool fused = options.fused_projection;
  const std::int64_t dim = options.heads * options.head_dim;
  add_projections(context);
  output_.emplace(context, fused ? "c_proj" : "o_proj", dim, options.embedding_dim,
                  InitKind::residual_output);
  if (options.qk_norm) {
    const HeadNormBlock::Options norm{options.norm, options.heads, options.head_dim,
                                      options.norm_eps};
    query_norm_.emplace(context, fused ? "q_layernorm" : "q_norm", norm);
    key_norm_.emplace(context, fused ? "k_layernorm" : "k_norm", norm);
  }
  reserve(context);
}

void AttentionBlock::add_projections(const BlockContext& context) {
  const std::int64_t dim = options_.heads * options_.head_dim;
  const std::int64_t query_stride = options_.head_dim * (options_.output_gate ? 2 : 1);
  const std::int64_t query_width = options_.heads * query_stride;
  width_ = query_width + 2 * dim;
  query_ = {0, {width_, query_stride}};
  gate_ = {options_.head_dim, {width_, query_stride}};
  key_ = {query_width, {width_, options_.head_dim}};
  value_ = {query_width + dim, {width_, options_.head_dim}};

  const std::int64_t inputs = options_.embedding_dim;
  if (options_.fused_projection) {
    projections_.emplace_back(context, "c_attn", inputs, width_, InitKind::linear);
    projection_columns_ = {0};
    return;
  }
  projections_.emplace_back(context, "q_proj", inputs, query_width, InitKind::linear);
  projections_.emplace_back(context, "k_proj", inputs, dim, InitKind::linear);
  projections_.emplace_back(context, "v_proj", inputs, dim, InitKind::linear);
  projection_columns_ = {query_.column, key_.column, value_.column};
}

void AttentionBlock::reserve(const BlockContext& context) {
  const std::int64_t rows = workspace_->rows();
  const std::int64_t dim = options_.heads * options_.head_dim;
  projection_ = workspace_->keep(context.prefix, "projection", rows * width_);
  if (options_.qk_norm) {
    rotated_ = workspace_->keep_unless_lean(context.prefix, "rotated", rows * 2 * dim);
  }
  attended_ = workspace_->keep(context.prefix, "attended", rows * dim);
  if (options_.output_gate) {
    gated_ = workspace_->keep(context.prefix, "gated", rows * dim);
  }
  lse_ = workspace_->keep(context.prefix, "lse", rows * options_.heads, Content::floats);
  const std::int64_t angles = workspace_->seq_len() * options_.head_dim / 2;
  cos_ = workspace_->share("rope cos", angles, Content::floats);
  sin_ = workspace_->share("rope sin", angles, Content::floats);
  dprojection_ = workspace_->scratch_backward(Phase::block, "attention dprojection", rows * width_);
  dattended_ = workspace_->scratch_backward(Phase::block, "attention dattended", rows * dim);
  delta_ = workspace_->scratch_backward(Phase::block, "attention delta", rows * options_.heads,
                                        Content::floats);
}

// With norms the rotated queries and keys have a buffer of their own, since the norms' backward
// pass needs their inputs; without, they are rotated in place.
AttentionBlock::View AttentionBlock::rotated_query() const {
  const std::int64_t dim = options_.heads * options_.head_dim;
  return options_.qk_norm ? View{0, {2 * dim, options_.head_dim}} : query_;
}

AttentionBlock::View AttentionBlock::rotated_key() const {
  const std::int64_t dim = options_.heads * options_.head_dim;
  return options_.qk_norm ? View{dim, {2 * dim, options_.head_dim}} : key_;
}

Elements AttentionBlock::rotated() const {
  return workspace_->at(options_.qk_norm ? rotated_ : projection_);
}

ConstElements AttentionBlock::head_output() const {
  return workspace_->at(options_.output_gate ? gated_ : attended_);
}

void AttentionBlock::rotate(const BlockCall& call, Elements base, const View& view,
                            bool inverse) const {
  kernels_->rope_apply(call.stream, {.x = base + view.column,
                                     .cos = workspace_->floats_at(cos_),
                                     .sin = workspace_->floats_at(sin_),
                                     .tokens = call.lane.rows(),
                                     .seq_len = call.lane.seq_len,
                                     .heads = options_.heads,
                                     .head_dim = options_.head_dim,
                                     .layout = view.layout,
                                     .inverse = inverse,
                                     .dtype = base.dtype});
}

kernels::RowRotation AttentionBlock::rotation(const BlockCall& call) const {
  return {.cos = workspace_->floats_at(cos_),
          .sin = workspace_->floats_at(sin_),
          .seq_len = call.lane.seq_len};
}

void AttentionBlock::normalise_and_rotate(const BlockCall& call) {
  if (workspace_->first_use(cos_)) {
    kernels_->rope_table(call.stream, {.cos = workspace_->floats_at(cos_),
                                       .sin = workspace_->floats_at(sin_),
                                       .seq_len = workspace_->seq_len(),
                                       .head_dim = options_.head_dim,
                                       .theta = options_.rope_theta});
  }
  if (!options_.qk_norm) {
    rotate(call, rotated(), query_, false);
    rotate(call, rotated(), key_, false);
    return;
  }
  const View query = rotated_query();
  const View key = rotated_key();
  ConstElements projection = workspace_->at(projection_);
  query_norm_->forward(call, projection + query_.column, query_.layout, rotated() + query.column,
                       query.layout, rotation(call));
  key_norm_->forward(call, projection + key_.column, key_.layout, rotated() + key.column,
                     key.layout, rotation(call));
}

void AttentionBlock::attend(const BlockCall& call) const {
  const std::int64_t dim = options_.heads * options_.head_dim;
  const kernels::RowLayout output_layout{dim, options_.head_dim};
  ConstElements projection = workspace_->at(projection_);
  kernels_->attention_forward(call.stream,
                              {.q = rotated() + rotated_query().column,
                               .k = rotated() + rotated_key().column,
                               .v = projection + value_.column,
                               .out = workspace_->at(attended_),
                               .lse = workspace_->floats_at(lse_),
                               .sequences = call.lane.sequences,
                               .seq_len = call.lane.seq_len,
                               .heads = options_.heads,
                               .head_dim = options_.head_dim,
                               .q_layout = rotated_query().layout,
                               .k_layout = rotated_key().layout,
                               .v_layout = value_.layout,
                               .out_layout = output_layout,
                               .scale = 1.0F / std::sqrt(static_cast<float>(options_.head_dim)),
                               .dtype = workspace_->dtype()});
  if (options_.output_gate) {
    kernels_->sigmoid_gate_forward(call.stream, {.x = workspace_->at(attended_),
                                                 .gate = projection + gate_.column,
                                                 .y = workspace_->at(gated_),
                                                 .tokens = call.lane.rows(),
                                                 .heads = options_.heads,
                                                 .head_dim = options_.head_dim,
                                                 .x_layout = output_layout,
                                                 .gate_layout = gate_.layout,
                                                 .y_layout = output_layout,
                                                 .dtype = workspace_->dtype()});
  }
}

void AttentionBlock::forward(const BlockCall& call, ConstElements x, Elements branch) {
  forward_kept(call, x);
  forward_output(call, branch);
}

void AttentionBlock::forward_kept(const BlockCall& call, ConstElements x) {
  for (std::size_t i = 0; i < projections_.size(); ++i) {
    projections_[i].forward(call, x, workspace_->at(projection_) + projection_columns_[i], width_);
  }
  normalise_and_rotate(call);
  attend(call);
}

void AttentionBlock::forward_output(const BlockCall& call, Elements branch) const {
  output_->forward(call, head_output(), branch, options_.embedding_dim);
}

void AttentionBlock::attend_backward(const BlockCall& call, ConstElements dattended) const {
  const std::int64_t dim = options_.heads * options_.head_dim;
  const kernels::RowLayout output_layout{dim, options_.head_dim};
  Elements dprojection = workspace_->at(dprojection_);
  kernels_->attention_backward(call.stream,
                               {.q = rotated() + rotated_query().column,
                                .k = rotated() + rotated_key().column,
                                .v = workspace_->at(projection_) + value_.column,
                                .out = workspace_->at(attended_),
                                .dout = dattended,
                                .lse = workspace_->floats_at(lse_),
                                .delta = workspace_->floats_at(delta_),
                                .dq = dprojection + query_.column,
                                .dk = dprojection + key_.column,
                                .dv = dprojection + value_.column,
                                .sequences = call.lane.sequences,
                                .seq_len = call.lane.seq_len,
                                .heads = options_.heads,
                                .head_dim = options_.head_dim,
                                .q_layout = rotated_query().layout,
                                .k_layout = rotated_key().layout,
                                .v_layout = value_.layout,
                                .out_layout = output_layout,
                                .dout_layout = output_layout,
                                .dq_layout = query_.layout,
                                .dk_layout = key_.layout,
                                .dv_layout = value_.layout,
                                .scale = 1.0F / std::sqrt(static_cast<float>(options_.head_dim)),
                                .dtype = workspace_->dtype()});
  if (!options_.qk_norm) {
    rotate(call, dprojection, query_, true);
    rotate(call, dprojection, key_, true);
    return;
  }
  ConstElements projection = workspace_->at(projection_);
  query_norm_->backward(call, projection + query_.column, query_.layout,
                        dprojection + query_.column, dprojection + query_.column, false,
                        rotation(call));
  key_norm_->backward(call, projection + key_.column, key_.layout, dprojection + key_.column,
                      dprojection + key_.column, false, rotation(call));
}

void AttentionBlock::backward(const BlockCall& call, ConstElements x, ConstElements dbranch,
                              Elements dx) {
  const std::int64_t dim = options_.heads * options_.head_dim;
  const kernels::RowLayout output_layout{dim, options_.head_dim};
  Elements dattended = workspace_->at(dattended_);
  Elements dprojection = workspace_->at(dprojection_);
  output_->backward_weight(call, dbranch, options_.embedding_dim, head_output());
  output_->backward_input(call, dbranch, options_.embedding_dim, dattended);
  if (options_.output_gate) {
    kernels_->sigmoid_gate_backward(call.stream,
                                    {.x = workspace_->at(attended_),
                                     .gate = workspace_->at(projection_) + gate_.column,
                                     .dy = dattended,
                                     .dx = dattended,
                                     .dgate = dprojection + gate_.column,
                                     .tokens = call.lane.rows(),
                                     .heads = options_.heads,
                                     .head_dim = options_.head_dim,
                                     .x_layout = output_layout,
                                     .gate_layout = gate_.layout,
                                     .dy_layout = output_layout,
                                     .dx_layout = output_layout,
                                     .dgate_layout = gate_.layout,
                                     .dtype = workspace_->dtype()});
  }
  if (options_.qk_norm && workspace_->lean()) {
    normalise_and_rotate(call);
  }
  attend_backward(call, dattended);
  for (std::size_t i = 0; i < projections_.size(); ++i) {
    ConstElements dy = dprojection + projection_columns_[i];
    projections_[i].backward_weight(call, dy, width_, x);
    projections_[i].backward_input(call, dy, width_, dx, /*accumulate=*/i > 0);
  }
}

}  // namespace train::engine
