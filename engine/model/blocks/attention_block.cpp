#include "engine/model/blocks/attention_block.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.hpp"
#include "kernels/activation/activation.hpp"
#include "kernels/activation/clamp.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_cached.hpp"
#include "kernels/backend.hpp"

namespace train::engine {
namespace {

/// Mean number of keys that a query of a sequence sees, as the figures of other programs count it.
double mean_keys(std::int64_t seq_len, std::int64_t window) {
  const auto all = static_cast<double>(seq_len);
  if (window == 0 || window >= seq_len) {
    return all / 2.0;
  }
  const auto seen = static_cast<double>(window);
  return seen - seen * seen / (2.0 * all);
}

}  // namespace

std::unique_ptr<Block> AttentionSpec::make(const BlockContext& context,
                                           const ModelSpec& model) const {
  return std::make_unique<AttentionBlock>(context, *this, model);
}

std::string AttentionSpec::sizes() const { return fmt::format("{} heads of {}", heads, head_dim); }

std::string AttentionSpec::describe() const {
  std::string text = fmt::format("{}, {} of keys and values", sizes(), kv_heads);
  if (window > 0) {
    text += fmt::format(", window {}", window);
  }
  if (softcap > 0.0F) {
    text += fmt::format(", scores capped at {}", softcap);
  }
  if (head_norm == HeadNorm::per_head) {
    text += ", QK norm per head";
  } else if (head_norm == HeadNorm::whole) {
    text += ", QK norm over all heads";
  }
  text += clip > 0.0F ? fmt::format(", clipped at {}", clip) : "";
  text += rope ? fmt::format(", rope {}", *rope) : "";
  text += output_gate ? ", output gate" : "";
  text += sinks.empty() ? "" : ", sinks";
  text += projection_bias ? ", biases" : "";
  text += layout == ProjectionLayout::separate ? "" : ", one matrix for q, k, v";
  return text;
}

std::string AttentionSpec::mistake() const {
  return heads % kv_heads == 0
             ? ""
             : fmt::format("num_attention_heads {} is not a multiple of num_key_value_heads {}",
                           heads, kv_heads);
}

std::optional<DecodingState> AttentionSpec::decoding_state(CacheForm form) const {
  if (form != CacheForm::expanded) {
    return std::nullopt;
  }
  return DecodingState{.of_token = 2 * kv_heads * head_dim, .tokens = window};
}

double AttentionSpec::score_flops(std::int64_t seq_len) const {
  return 4.0 * static_cast<double>(heads * head_dim) * mean_keys(seq_len, window);
}

std::vector<TensorRule> AttentionSpec::tensor_rules(const ModelSpec& model,
                                                    const BranchSpec& branch,
                                                    Dialect dialect) const {
  std::vector<TensorRule> rules;
  if (dialect != Dialect::gguf) {
    return rules;
  }
  const TensorOrder linear = model.transposed_linears ? TensorOrder::transposed : TensorOrder::same;
  const TensorOrder turned = pairs_in_gguf ? TensorOrder::rotary_pairs : linear;
  switch (layout) {
    case ProjectionLayout::separate:
      rules = {{query, "attn_q", turned, heads},
               {key, "attn_k", turned, kv_heads},
               {value, "attn_v", linear}};
      break;
    case ProjectionLayout::fused:
      rules = {{query, "attn_qkv", linear}};
      break;
    case ProjectionLayout::per_head:
      rules = {{query, "attn_qkv", TensorOrder::by_parts, heads}};
      break;
  }
  rules.push_back({output, "attn_output", linear});
  rules.push_back({sinks, "attn_sinks.weight"});
  NormSpec head = norm;
  head.name = query_norm;
  rules.push_back(norm_rule(head, "attn_q_norm"));
  head.name = key_norm;
  rules.push_back(norm_rule(head, "attn_k_norm"));
  add_norm_rules(branch, {"attn_norm", "post_attention_norm"}, rules);
  return rules;
}

AttentionBlock::AttentionBlock(const BlockContext& context, const AttentionSpec& spec,
                               const ModelSpec& model)
    : kernels_(&context.kernels),
      workspace_(&context.workspace),
      spec_(spec),
      rotation_(context, spec.rope, model),
      embedding_dim_(model.embedding_dim),
      transposed_(model.transposed_linears),
      scale_(spec.scale > 0.0F ? spec.scale : 1.0F / std::sqrt(static_cast<float>(spec.head_dim))),
      query_dim_(spec.heads * spec.head_dim),
      kv_dim_(spec.kv_heads * spec.head_dim) {
  TRAIN_CHECK(spec.kv_heads > 0 && spec.heads % spec.kv_heads == 0, "{} heads, {} of keys",
              spec.heads, spec.kv_heads);
  TRAIN_CHECK(!spec.output_gate || spec.layout == ProjectionLayout::separate);
  // The norms' buffer takes the values, too, and q, k and v lie side by side in both.
  TRAIN_CHECK(!clips() || (spec.head_norm == HeadNorm::whole && !spec.output_gate &&
                           spec.layout != ProjectionLayout::per_head),
              "clipped heads of another form");
  if (const std::optional<RopeSpec>& rope = rotation_.rope()) {
    norm_rotates_ = spec.head_norm == HeadNorm::per_head &&
                    rope->pairing == kernels::RopePairing::interleaved &&
                    rope->rotary_dim == spec.head_dim;
  }
  add_projections(context);
  output_.emplace(context, spec.output,
                  LinearBlock::Options{.inputs = query_dim_,
                                       .outputs = embedding_dim_,
                                       .init = InitKind::residual_output,
                                       .bias = spec.output_bias,
                                       .transposed = transposed_});
  add_norms(context);
  if (!spec.sinks.empty()) {
    sinks_ = context.parameters.add({.name = context.prefix + spec.sinks,
                                     .shape = {spec.heads},
                                     .group = ParameterGroup::no_decay,
                                     .init = InitKind::embedding,
                                     .exact = true});
  }
  reserve(context);
}

const float* AttentionBlock::sinks(const BlockCall& call) const {
  return sinks_ ? exact_weights(call.weights, sinks_->offset) : nullptr;
}

void AttentionBlock::add_projections(const BlockContext& context) {
  const std::int64_t dim = spec_.head_dim;
  const std::int64_t query_stride = dim * (spec_.output_gate ? 2 : 1);
  const std::int64_t query_width = spec_.heads * query_stride;
  width_ = query_width + 2 * kv_dim_;
  query_ = {0, {width_, query_stride}, spec_.heads};
  gate_ = {dim, {width_, query_stride}, spec_.heads};
  key_ = {query_width, {width_, dim}, spec_.kv_heads};
  value_ = {query_width + kv_dim_, {width_, dim}, spec_.kv_heads};
  const bool separate = spec_.layout == ProjectionLayout::separate;
  const auto add = [&](const std::string& name, std::int64_t outputs, std::int64_t column) {
    projections_.emplace_back(context, name,
                              LinearBlock::Options{.inputs = embedding_dim_,
                                                   .outputs = outputs,
                                                   .init = InitKind::linear,
                                                   .bias = spec_.projection_bias,
                                                   .transposed = transposed_,
                                                   .bias_later = separate});
    projection_columns_.push_back(column);
  };
  if (separate) {
    add(spec_.query, query_width, query_.column);
    add(spec_.key, kv_dim_, key_.column);
    add(spec_.value, kv_dim_, value_.column);
    const std::array names = {spec_.query, spec_.key, spec_.value};
    for (std::size_t i = 0; spec_.projection_bias && i < names.size(); ++i) {
      projections_[i].add_bias(context, names[i]);
    }
    all_projections_ = LinearBlock::side_by_side(projections_);
    return;
  }
  add(spec_.query, width_, 0);
  if (spec_.layout == ProjectionLayout::per_head) {
    TRAIN_CHECK(spec_.heads == spec_.kv_heads, "heads side by side come without groups");
    query_ = {0, {width_, 3 * dim}, spec_.heads};
    key_ = {dim, {width_, 3 * dim}, spec_.heads};
    value_ = {2 * dim, {width_, 3 * dim}, spec_.heads};
  }
}

void AttentionBlock::add_norms(const BlockContext& context) {
  if (!has_norms()) {
    return;
  }
  const bool whole = spec_.head_norm == HeadNorm::whole;
  const auto options = [&](std::int64_t heads) {
    return HeadNormBlock::Options{.kind = spec_.norm.kind,
                                  .heads = whole ? 1 : heads,
                                  .head_dim = whole ? heads * spec_.head_dim : spec_.head_dim,
                                  .eps = spec_.norm.eps,
                                  .plus_one = spec_.norm.plus_one};
  };
  query_norm_.emplace(context, spec_.query_norm, options(spec_.heads));
  key_norm_.emplace(context, spec_.key_norm, options(spec_.kv_heads));
}

void AttentionBlock::reserve(const BlockContext& context) {
  const std::int64_t rows = workspace_->rows();
  projection_ = workspace_->keep(context.prefix, "projection", rows * width_);
  if (has_norms()) {
    rotated_ = workspace_->keep_unless_lean(Phase::branch, context.prefix, "rotated",
                                            rows * rotated_width());
  }
  attended_ = workspace_->keep(context.prefix, "attended", rows * query_dim_);
  if (spec_.output_gate) {
    gated_ = workspace_->keep(context.prefix, "gated", rows * query_dim_);
  }
  lse_ = workspace_->keep(context.prefix, "lse", rows * spec_.heads, Content::floats);
  if (const std::int64_t texts = workspace_->cached_texts(); texts > 0) {
    cache_capacity_ = kernels::cache_capacity(workspace_->seq_len(), spec_.window);
    const std::int64_t count = texts * kv_dim_ * cache_capacity_ + kernels::KeyValueCache::kSlack;
    cached_keys_ = workspace_->keep_for_texts(context.prefix + "cached keys", count);
    cached_values_ = workspace_->keep_for_texts(context.prefix + "cached values", count);
  }
  dprojection_ = workspace_->scratch_backward(Phase::branch, "dprojection", rows * width_);
  dattended_ = workspace_->scratch_backward(Phase::branch, "dattended", rows * query_dim_);
  delta_ =
      workspace_->scratch_backward(Phase::branch, "delta", rows * spec_.heads, Content::floats);
}

// With norms the rotated queries and keys have a buffer of their own, since the norms' backward
// pass needs their inputs; without, they are rotated in place.
AttentionBlock::View AttentionBlock::rotated_query() const {
  return has_norms() ? View{0, {rotated_width(), spec_.head_dim}, spec_.heads} : query_;
}

AttentionBlock::View AttentionBlock::rotated_key() const {
  return has_norms() ? View{query_dim_, {rotated_width(), spec_.head_dim}, spec_.kv_heads} : key_;
}

AttentionBlock::View AttentionBlock::values_view() const {
  const std::int64_t column = query_dim_ + kv_dim_;
  return clips() ? View{column, {rotated_width(), spec_.head_dim}, spec_.kv_heads} : value_;
}

Elements AttentionBlock::values() const { return workspace_->at(clips() ? rotated_ : projection_); }

std::int64_t AttentionBlock::rotated_width() const {
  return query_dim_ + kv_dim_ * (clips() ? 2 : 1);
}

Elements AttentionBlock::rotated() const {
  return workspace_->at(has_norms() ? rotated_ : projection_);
}

ConstElements AttentionBlock::head_output() const {
  return workspace_->at(spec_.output_gate ? gated_ : attended_);
}

kernels::RowLayout AttentionBlock::norm_layout(const View& view) const {
  return spec_.head_norm == HeadNorm::whole ? kernels::RowLayout{view.layout.outer_stride, 0}
                                            : view.layout;
}

void AttentionBlock::rotate(const BlockCall& call, Elements base, const View& view,
                            bool inverse) const {
  rotation_.apply(call, base + view.column, view.layout, view.heads, inverse);
}

bool AttentionBlock::norm_rotates(const BlockCall& call) const {
  return norm_rotates_ && call.lane.positions == nullptr;
}

kernels::RowRotation AttentionBlock::rotation(const BlockCall& call) const {
  return norm_rotates(call) ? rotation_.by_place(call) : kernels::RowRotation();
}

void AttentionBlock::normalise(const BlockCall& call) const {
  const View query = rotated_query();
  const View key = rotated_key();
  ConstElements projection = workspace_->at(projection_);
  query_norm_->forward(call, projection + query_.column, norm_layout(query_),
                       rotated() + query.column, norm_layout(query), rotation(call));
  key_norm_->forward(call, projection + key_.column, norm_layout(key_), rotated() + key.column,
                     norm_layout(key), rotation(call));
}

void AttentionBlock::clip(const BlockCall& call) const {
  const auto clamp = [&](ConstElements x, std::int64_t x_stride, Elements y, std::int64_t cols) {
    kernels_->clamp_forward(call.stream, {.x = x,
                                          .y = y,
                                          .bound = spec_.clip,
                                          .rows = call.lane.rows(),
                                          .cols = cols,
                                          .x_stride = x_stride,
                                          .y_stride = rotated_width(),
                                          .dtype = workspace_->dtype()});
  };
  clamp(rotated(), rotated_width(), rotated(), query_dim_ + kv_dim_);
  clamp(workspace_->at(projection_) + value_.column, width_, values() + values_view().column,
        kv_dim_);
}

void AttentionBlock::clip_backward(const BlockCall& call, Elements dprojection) const {
  const auto clamp = [&](ConstElements x, std::int64_t x_stride, Elements dy, std::int64_t cols) {
    kernels_->clamp_backward(call.stream, {.x = x,
                                           .dy = dy,
                                           .dx = dy,
                                           .bound = spec_.clip,
                                           .rows = call.lane.rows(),
                                           .cols = cols,
                                           .x_stride = x_stride,
                                           .dy_stride = width_,
                                           .dtype = workspace_->dtype()});
  };
  normalise(call);
  clamp(rotated(), rotated_width(), dprojection, query_dim_ + kv_dim_);
  clamp(workspace_->at(projection_) + value_.column, width_, dprojection + value_.column, kv_dim_);
}

void AttentionBlock::normalise_and_rotate(const BlockCall& call) {
  rotation_.fill_table(call);
  if (has_norms()) {
    normalise(call);
  }
  if (clips()) {
    clip(call);
  }
  if (!norm_rotates(call)) {
    rotate(call, rotated(), rotated_query(), false);
    rotate(call, rotated(), rotated_key(), false);
  }
}

kernels::KeyValueCache AttentionBlock::cache() const {
  return {.keys = workspace_->at(cached_keys_),
          .values = workspace_->at(cached_values_),
          .capacity = cache_capacity_,
          .kv_heads = spec_.kv_heads,
          .head_dim = spec_.head_dim,
          .value_dim = spec_.head_dim};
}

void AttentionBlock::keep_keys(const BlockCall& call) const {
  kernels_->key_value_append(call.stream, {.k = rotated() + rotated_key().column,
                                           .v = values() + values_view().column,
                                           .texts = call.lane.texts,
                                           .positions = call.lane.positions,
                                           .rows = call.lane.rows(),
                                           .k_layout = rotated_key().layout,
                                           .v_layout = values_view().layout,
                                           .cache = cache(),
                                           .dtype = workspace_->dtype()});
}

void AttentionBlock::attend_cached(const BlockCall& call) const {
  kernels_->attention_cached(call.stream, {.q = rotated() + rotated_query().column,
                                           .out = workspace_->at(attended_),
                                           .texts = call.lane.texts,
                                           .positions = call.lane.positions,
                                           .rows = call.lane.rows(),
                                           .heads = spec_.heads,
                                           .sinks = sinks(call),
                                           .window = spec_.window,
                                           .softcap = spec_.softcap,
                                           .q_layout = rotated_query().layout,
                                           .out_layout = {query_dim_, spec_.head_dim},
                                           .cache = cache(),
                                           .scale = scale_,
                                           .dtype = workspace_->dtype()});
}

template <class Params>
Params AttentionBlock::lane_params(const BlockCall& call) const {
  Params params;
  params.q = rotated() + rotated_query().column;
  params.k = rotated() + rotated_key().column;
  params.v = values() + values_view().column;
  params.out = workspace_->at(attended_);
  params.lse = workspace_->floats_at(lse_);
  params.positions = call.lane.positions;
  params.sequences = call.lane.sequences;
  params.seq_len = call.lane.seq_len;
  params.heads = spec_.heads;
  params.head_dim = spec_.head_dim;
  params.kv_heads = spec_.kv_heads;
  params.window = spec_.window;
  params.softcap = spec_.softcap;
  params.q_layout = rotated_query().layout;
  params.k_layout = rotated_key().layout;
  params.v_layout = values_view().layout;
  params.out_layout = {query_dim_, spec_.head_dim};
  params.scale = scale_;
  params.dtype = workspace_->dtype();
  return params;
}

void AttentionBlock::attend_to_lane(const BlockCall& call) const {
  auto params = lane_params<kernels::AttentionForwardParams>(call);
  params.sinks = sinks(call);
  kernels_->attention_forward(call.stream, params);
}

void AttentionBlock::attend(const BlockCall& call) const {
  if (call.lane.cache != CacheUse::none) {
    keep_keys(call);
  }
  if (call.lane.cache == CacheUse::extend) {
    attend_cached(call);
  } else {
    attend_to_lane(call);
  }
  if (spec_.output_gate) {
    const kernels::RowLayout output_layout{query_dim_, spec_.head_dim};
    ConstElements projection = workspace_->at(projection_);
    kernels_->sigmoid_gate_forward(call.stream, {.x = workspace_->at(attended_),
                                                 .gate = projection + gate_.column,
                                                 .y = workspace_->at(gated_),
                                                 .tokens = call.lane.rows(),
                                                 .heads = spec_.heads,
                                                 .head_dim = spec_.head_dim,
                                                 .x_layout = output_layout,
                                                 .gate_layout = gate_.layout,
                                                 .y_layout = output_layout,
                                                 .dtype = workspace_->dtype()});
  }
}

void AttentionBlock::forward_kept(const BlockCall& call, ConstElements x) {
  if (all_projections_) {
    all_projections_->forward(call, x, workspace_->at(projection_), width_);
  }
  for (std::size_t i = 0; !all_projections_ && i < projections_.size(); ++i) {
    projections_[i].forward(call, x, workspace_->at(projection_) + projection_columns_[i], width_);
  }
  normalise_and_rotate(call);
  attend(call);
}

void AttentionBlock::forward_output(const BlockCall& call, Elements branch) {
  output_->forward(call, head_output(), branch, embedding_dim_);
}

void AttentionBlock::attend_backward(const BlockCall& call, ConstElements dattended) const {
  Elements dprojection = workspace_->at(dprojection_);
  auto params = lane_params<kernels::AttentionBackwardParams>(call);
  params.dout = dattended;
  params.delta = workspace_->floats_at(delta_);
  params.dq = dprojection + query_.column;
  params.dk = dprojection + key_.column;
  params.dv = dprojection + value_.column;
  params.dout_layout = params.out_layout;
  params.dq_layout = query_.layout;
  params.dk_layout = key_.layout;
  params.dv_layout = value_.layout;
  kernels_->attention_backward(call.stream, params);
  if (sinks_ && !sinks_->frozen) {
    kernels_->attention_sinks_backward(call.stream, {.sinks = sinks(call),
                                                     .lse = workspace_->floats_at(lse_),
                                                     .delta = workspace_->floats_at(delta_),
                                                     .dsinks = call.gradient + sinks_->gradient,
                                                     .sequences = call.lane.sequences,
                                                     .seq_len = call.lane.seq_len,
                                                     .heads = spec_.heads});
  }
  normalise_backward(call, dprojection);
}

void AttentionBlock::normalise_backward(const BlockCall& call, Elements dprojection) const {
  if (!norm_rotates(call)) {
    rotate(call, dprojection, query_, true);
    rotate(call, dprojection, key_, true);
  }
  if (!has_norms()) {
    return;
  }
  if (clips()) {
    clip_backward(call, dprojection);
  }
  ConstElements projection = workspace_->at(projection_);
  query_norm_->backward(call, projection + query_.column, norm_layout(query_),
                        dprojection + query_.column, dprojection + query_.column, false,
                        rotation(call));
  key_norm_->backward(call, projection + key_.column, norm_layout(key_), dprojection + key_.column,
                      dprojection + key_.column, false, rotation(call));
}

void AttentionBlock::backward(const BlockCall& call, ConstElements x, ConstElements dbranch,
                              Elements dx) {
  const kernels::RowLayout output_layout{query_dim_, spec_.head_dim};
  Elements dattended = workspace_->at(dattended_);
  Elements dprojection = workspace_->at(dprojection_);
  output_->begin_backward(call, dbranch, embedding_dim_);
  output_->backward_weight(call, dbranch, embedding_dim_, head_output());
  output_->backward_input(call, dbranch, embedding_dim_, dattended);
  if (spec_.output_gate) {
    kernels_->sigmoid_gate_backward(call.stream,
                                    {.x = workspace_->at(attended_),
                                     .gate = workspace_->at(projection_) + gate_.column,
                                     .dy = dattended,
                                     .dx = dattended,
                                     .dgate = dprojection + gate_.column,
                                     .tokens = call.lane.rows(),
                                     .heads = spec_.heads,
                                     .head_dim = spec_.head_dim,
                                     .x_layout = output_layout,
                                     .gate_layout = gate_.layout,
                                     .dy_layout = output_layout,
                                     .dx_layout = output_layout,
                                     .dgate_layout = gate_.layout,
                                     .dtype = workspace_->dtype()});
  }
  if (has_norms() && workspace_->lean()) {
    normalise_and_rotate(call);
  }
  attend_backward(call, dattended);
  project_backward(call, x, dprojection, dx);
}

void AttentionBlock::project_backward(const BlockCall& call, ConstElements x,
                                      ConstElements dprojection, Elements dx) const {
  if (all_projections_) {
    all_projections_->backward_weight(call, dprojection, width_, x);
  }
  if (all_projections_ && kernels_->device->joins_products) {
    all_projections_->backward_input(call, dprojection, width_, dx);
    return;
  }
  for (std::size_t i = 0; i < projections_.size(); ++i) {
    ConstElements dy = dprojection + projection_columns_[i];
    projections_[i].begin_backward(call, dy, width_);
    if (!all_projections_) {
      projections_[i].backward_weight(call, dy, width_, x);
    }
    projections_[i].backward_input(call, dy, width_, dx, /*accumulate=*/i > 0);
  }
}

}  // namespace train::engine
