#include "engine/model/blocks/latent_attention_block.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/check.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_cached.hpp"
#include "kernels/attention/shared_keys.hpp"
#include "kernels/backend.hpp"

namespace train::engine {

std::unique_ptr<Block> LatentAttentionSpec::make(const BlockContext& context,
                                                 const ModelSpec& model) const {
  return std::make_unique<LatentAttentionBlock>(context, *this, model);
}

std::string LatentAttentionSpec::sizes() const {
  return fmt::format("{} heads of {} and {}, latents of {}", heads, plain_dim + rope_dim, value_dim,
                     query_rank > 0 ? fmt::format("{} and {}", query_rank, key_rank)
                                    : fmt::format("{}", key_rank));
}

std::string LatentAttentionSpec::describe() const {
  std::string text = fmt::format("{}, {} of a key rotated", sizes(), rope_dim);
  text += rope ? fmt::format(", rope {}", *rope) : "";
  text += scale > 0.0F ? fmt::format(", scale {:.6g}", scale) : "";
  text += bias ? ", biases" : "";
  return text;
}

std::string LatentAttentionSpec::mistake() const {
  if (heads < 1 || key_rank < 1 || plain_dim < 1 || rope_dim < 1 || value_dim < 1) {
    return fmt::format(
        "num_attention_heads {}, kv_lora_rank {}, qk_nope_head_dim {}, qk_rope_head_dim {} and "
        "v_head_dim {} must be at least 1",
        heads, key_rank, plain_dim, rope_dim, value_dim);
  }
  if (query_rank < 0) {
    return fmt::format("q_lora_rank {} is negative; null: queries have no latent", query_rank);
  }
  constexpr std::int64_t kWidest = std::int64_t{1} << 32;  // So that products of sizes fit.
  for (const std::int64_t width : {key_rank, plain_dim, rope_dim, value_dim, query_rank}) {
    if (width > kWidest / heads / 2) {
      return fmt::format("{} heads (num_attention_heads) with parts of {} elements are too wide",
                         heads, width);
    }
  }
  return rope_dim % 2 == 0 ? "" : fmt::format("qk_rope_head_dim {} is odd", rope_dim);
}

double LatentAttentionSpec::score_flops(std::int64_t seq_len) const {
  const auto keys = static_cast<double>(seq_len) / 2.0;
  return 2.0 * static_cast<double>(heads * (plain_dim + rope_dim + value_dim)) * keys;
}

std::optional<DecodingState> LatentAttentionSpec::decoding_state(CacheForm form) const {
  const std::int64_t expanded = heads * (plain_dim + rope_dim + value_dim);
  return DecodingState{.of_token = form == CacheForm::latent ? key_rank + rope_dim : expanded};
}

std::vector<TensorRule> LatentAttentionSpec::tensor_rules(const ModelSpec& /*model*/,
                                                          const BranchSpec& branch,
                                                          Dialect dialect) const {
  std::vector<TensorRule> rules;
  if (dialect != Dialect::gguf) {
    return rules;
  }
  rules = {{query_in, "attn_q_a"},
           {query_norm, "attn_q_a_norm"},
           {query, query_rank > 0 ? "attn_q_b" : "attn_q"},
           {key_in, "attn_kv_a_mqa"},
           {key_norm, "attn_kv_a_norm"},
           {output, "attn_output"}};
  const std::int64_t rows = plain_dim + value_dim;
  for (std::int64_t head = 0; head < heads; ++head) {
    rules.push_back({.parameter = key_value + ".weight",
                     .stored = "attn_k_b.weight",
                     .order = TensorOrder::transposed,
                     .slice = {.first = head * rows, .count = plain_dim},
                     .stack = {.place = head, .count = heads}});
    rules.push_back({.parameter = key_value + ".weight",
                     .stored = "attn_v_b.weight",
                     .slice = {.first = head * rows + plain_dim, .count = value_dim},
                     .stack = {.place = head, .count = heads}});
  }
  add_norm_rules(branch, {"attn_norm", "post_attention_norm"}, rules);
  return rules;
}

LatentAttentionBlock::LatentAttentionBlock(const BlockContext& context,
                                           const LatentAttentionSpec& spec, const ModelSpec& model)
    : kernels_(&context.kernels),
      workspace_(&context.workspace),
      spec_(spec),
      embedding_dim_(model.embedding_dim),
      scale_(spec.scale > 0.0F
                 ? spec.scale
                 : 1.0F / std::sqrt(static_cast<float>(spec.plain_dim + spec.rope_dim))),
      rotation_(context, spec.rope, model) {
  TRAIN_CHECK(!model.transposed_linears);
  TRAIN_CHECK(!rotation_.rope() || rotation_.rope()->rotary_dim == spec.rope_dim);
  add_queries(context);
  add_keys(context);
  output_.emplace(context, spec.output,
                  LinearBlock::Options{.inputs = value_width(),
                                       .outputs = embedding_dim_,
                                       .init = InitKind::residual_output,
                                       .bias = spec.bias});
  reserve(context);
}

void LatentAttentionBlock::add_queries(const BlockContext& context) {
  query_latent_.dim = spec_.query_rank;
  if (spec_.query_rank > 0) {
    query_latent_.map.emplace(
        context, spec_.query_in,
        LinearBlock::Options{
            .inputs = embedding_dim_, .outputs = spec_.query_rank, .bias = spec_.bias});
    query_latent_.norm.emplace(
        context, spec_.query_norm,
        HeadNormBlock::Options{
            .kind = kernels::NormKind::rms, .head_dim = spec_.query_rank, .eps = spec_.latent_eps});
  }
  query_.emplace(
      context, spec_.query,
      LinearBlock::Options{.inputs = spec_.query_rank > 0 ? spec_.query_rank : embedding_dim_,
                           .outputs = key_width()});
}

void LatentAttentionBlock::add_keys(const BlockContext& context) {
  key_latent_.dim = spec_.key_rank;
  key_latent_.map.emplace(context, spec_.key_in,
                          LinearBlock::Options{.inputs = embedding_dim_,
                                               .outputs = spec_.key_rank + spec_.rope_dim,
                                               .bias = spec_.bias});
  key_latent_.norm.emplace(
      context, spec_.key_norm,
      HeadNormBlock::Options{
          .kind = kernels::NormKind::rms, .head_dim = spec_.key_rank, .eps = spec_.latent_eps});
  key_value_.emplace(context, spec_.key_value,
                     LinearBlock::Options{.inputs = spec_.key_rank, .outputs = up_width()});
}

void LatentAttentionBlock::reserve(const BlockContext& context) {
  Workspace& w = *workspace_;
  const std::int64_t rows = w.rows();
  const auto kept = [&](const char* name, std::int64_t count) {
    return w.keep(context.prefix, name, rows * count);
  };
  const auto scratch = [&](const char* name, std::int64_t count) {
    return w.scratch_backward(Phase::branch, name, rows * count);
  };
  const auto reserve_latent = [&](Latent& latent, const std::string& name) {
    latent.input = w.keep(context.prefix, name, rows * latent.dim);
    latent.output =
        w.keep_unless_lean(Phase::branch, context.prefix, name + " normalised", rows * latent.dim);
    latent.gradient = w.scratch_backward(Phase::branch, name + " gradient", rows * latent.dim);
  };
  if (query_latent_.map) {
    reserve_latent(query_latent_, "query latent");
  }
  reserve_latent(key_latent_, "key latent");
  expands_again_ = w.expands_again();
  queries_ = w.keep_unless_expanded(context.prefix, "queries", rows * key_width());
  key_input_ = w.scratch(Phase::branch, "key latent and rotated key",
                         rows * (spec_.key_rank + spec_.rope_dim));
  rotated_key_ = kept("rotated key", spec_.rope_dim);
  up_ = w.keep_unless_expanded(context.prefix, "keys and values", rows * up_width());
  keys_ = w.keep_unless_lean(Phase::branch, context.prefix, "keys", rows * key_width());
  attended_ = kept("attended", value_width());
  lse_ = w.keep(context.prefix, "lse", rows * spec_.heads, Content::floats);
  if (w.cached_texts() > 0) {
    reserve_cache(context.prefix);
  }
  dqueries_ = scratch("queries' gradient", key_width());
  dkeys_ = scratch("keys' gradient", key_width());
  dup_ = scratch("keys' and values' gradient", up_width());
  drotated_ = scratch("rotated key's gradient", spec_.rope_dim);
  dkey_input_ = scratch("key latent's gradient", spec_.key_rank + spec_.rope_dim);
  dattended_ = scratch("dattended", value_width());
  delta_ = w.scratch_backward(Phase::branch, "delta", rows * spec_.heads, Content::floats);
}

void LatentAttentionBlock::reserve_cache(const std::string& prefix) {
  Workspace& w = *workspace_;
  const std::int64_t texts = w.cached_texts();
  if (keeps_latents()) {
    cache_capacity_ = w.seq_len();
    cached_latents_ =
        w.keep_for_texts(prefix + "cached latents", texts * cache_capacity_ * latent_width());
    folded_queries_ =
        w.scratch(Phase::branch, "folded queries", texts * spec_.heads * latent_width());
    over_latents_ =
        w.scratch(Phase::branch, "attended latents", texts * spec_.heads * spec_.key_rank);
    return;
  }
  cache_capacity_ = kernels::cache_capacity(w.seq_len(), 0);
  const auto state = [&](const char* name, std::int64_t width) {
    return w.keep_for_texts(prefix + name,
                            texts * width * cache_capacity_ + kernels::KeyValueCache::kSlack);
  };
  cached_keys_ = state("cached keys", key_width());
  cached_values_ = state("cached values", value_width());
}

void LatentAttentionBlock::normalise(const BlockCall& call, const Latent& latent) const {
  latent.norm->forward(call, workspace_->at(latent.input), latent.layout(),
                       workspace_->at(latent.output), latent.layout());
}

void LatentAttentionBlock::project_queries(const BlockCall& call, ConstElements x) const {
  if (query_latent_.map) {
    query_latent_.map->forward(call, x, workspace_->at(query_latent_.input), query_latent_.dim);
    normalise(call, query_latent_);
  }
  expand_queries(call, x);
}

void LatentAttentionBlock::expand_queries(const BlockCall& call, ConstElements x) const {
  Elements queries = workspace_->at(queries_);
  query_->forward(call, query_latent_.map ? ConstElements(workspace_->at(query_latent_.output)) : x,
                  queries, key_width());
  rotation_.apply(call, queries + spec_.plain_dim, key_layout(), spec_.heads, false);
}

void LatentAttentionBlock::project_keys(const BlockCall& call, ConstElements x) const {
  Elements input = workspace_->at(key_input_);
  key_latent_.map->forward(call, x, input, spec_.key_rank + spec_.rope_dim);
  kernels_->split_heads(call.stream, {.x = input,
                                      .left = workspace_->at(key_latent_.input),
                                      .right = workspace_->at(rotated_key_),
                                      .rows = call.lane.rows(),
                                      .heads = 1,
                                      .left_dim = spec_.key_rank,
                                      .right_dim = spec_.rope_dim,
                                      .left_layout = key_latent_.layout(),
                                      .dtype = workspace_->dtype()});
  normalise(call, key_latent_);
  rotation_.apply(call, workspace_->at(rotated_key_), {spec_.rope_dim, spec_.rope_dim}, 1, false);
}

void LatentAttentionBlock::expand(const BlockCall& call) const {
  key_value_->forward(call, workspace_->at(key_latent_.output), workspace_->at(up_), up_width());
  join_keys(call);
}

void LatentAttentionBlock::join_keys(const BlockCall& call) const {
  kernels_->join_heads(call.stream, {.left = workspace_->at(up_),
                                     .right = workspace_->at(rotated_key_),
                                     .out = workspace_->at(keys_),
                                     .rows = call.lane.rows(),
                                     .heads = spec_.heads,
                                     .left_dim = spec_.plain_dim,
                                     .right_dim = spec_.rope_dim,
                                     .left_layout = up_layout(),
                                     .right_layout = {spec_.rope_dim, 0},
                                     .dtype = workspace_->dtype()});
}

kernels::KeyValueCache LatentAttentionBlock::cache() const {
  return {.keys = workspace_->at(cached_keys_),
          .values = workspace_->at(cached_values_),
          .capacity = cache_capacity_,
          .kv_heads = spec_.heads,
          .head_dim = key_dim(),
          .value_dim = spec_.value_dim};
}

kernels::LatentCache LatentAttentionBlock::latent_cache() const {
  return {.rows = workspace_->at(cached_latents_),
          .capacity = cache_capacity_,
          .latent_dim = spec_.key_rank,
          .rope_dim = spec_.rope_dim};
}

void LatentAttentionBlock::append(const BlockCall& call) const {
  const Lane& lane = call.lane;
  if (keeps_latents()) {
    kernels_->latent_append(call.stream, {.latent = workspace_->at(key_latent_.output),
                                          .key = workspace_->at(rotated_key_),
                                          .texts = lane.texts,
                                          .positions = lane.positions,
                                          .rows = lane.rows(),
                                          .latent_layout = key_latent_.layout(),
                                          .key_layout = {spec_.rope_dim, 0},
                                          .cache = latent_cache(),
                                          .dtype = workspace_->dtype()});
    return;
  }
  kernels_->key_value_append(call.stream, {.k = workspace_->at(keys_),
                                           .v = workspace_->at(up_) + spec_.plain_dim,
                                           .texts = lane.texts,
                                           .positions = lane.positions,
                                           .rows = lane.rows(),
                                           .k_layout = key_layout(),
                                           .v_layout = up_layout(),
                                           .cache = cache(),
                                           .dtype = workspace_->dtype()});
}

void LatentAttentionBlock::attend_cached(const BlockCall& call) const {
  const Lane& lane = call.lane;
  kernels_->attention_cached(call.stream, {.q = workspace_->at(queries_),
                                           .out = workspace_->at(attended_),
                                           .texts = lane.texts,
                                           .positions = lane.positions,
                                           .rows = lane.rows(),
                                           .heads = spec_.heads,
                                           .q_layout = key_layout(),
                                           .out_layout = value_layout(),
                                           .cache = cache(),
                                           .scale = scale_,
                                           .dtype = workspace_->dtype()});
}

void LatentAttentionBlock::attend_latents(const BlockCall& call) const {
  const Lane& lane = call.lane;
  TRAIN_CHECK(lane.rows() <= workspace_->cached_texts(), "{} rows of {} texts", lane.rows(),
              workspace_->cached_texts());
  const kernels::RowLayout folded{spec_.heads * latent_width(), latent_width()};
  const kernels::RowLayout latents{spec_.heads * spec_.key_rank, spec_.key_rank};
  Elements queries = workspace_->at(queries_), over_latents = workspace_->at(over_latents_);
  for (std::int64_t head = 0; head < spec_.heads; ++head) {
    const LinearPart keys{.first = head * up_dim(),
                          .count = spec_.plain_dim,
                          .x_stride = key_width(),
                          .y_stride = latents.outer_stride};
    key_value_->part_input(call, keys, queries + head * key_dim(),
                           over_latents + head * spec_.key_rank);
  }
  kernels_->join_heads(call.stream, {.left = over_latents,
                                     .right = queries + spec_.plain_dim,
                                     .out = workspace_->at(folded_queries_),
                                     .rows = lane.rows(),
                                     .heads = spec_.heads,
                                     .left_dim = spec_.key_rank,
                                     .right_dim = spec_.rope_dim,
                                     .left_layout = latents,
                                     .right_layout = key_layout(),
                                     .dtype = workspace_->dtype()});
  kernels_->latent_cached(call.stream, {.q = workspace_->at(folded_queries_),
                                        .out = over_latents,
                                        .texts = lane.texts,
                                        .positions = lane.positions,
                                        .rows = lane.rows(),
                                        .heads = spec_.heads,
                                        .q_layout = folded,
                                        .out_layout = latents,
                                        .cache = latent_cache(),
                                        .scale = scale_,
                                        .dtype = workspace_->dtype()});
  for (std::int64_t head = 0; head < spec_.heads; ++head) {
    const LinearPart values{.first = head * up_dim() + spec_.plain_dim,
                            .count = spec_.value_dim,
                            .x_stride = latents.outer_stride,
                            .y_stride = value_width()};
    key_value_->part_forward(call, values, over_latents + head * spec_.key_rank,
                             workspace_->at(attended_) + head * spec_.value_dim);
  }
}

void LatentAttentionBlock::attend(const BlockCall& call) const {
  const Lane& lane = call.lane;
  kernels_->attention_forward(call.stream, {.q = workspace_->at(queries_),
                                            .k = workspace_->at(keys_),
                                            .v = workspace_->at(up_) + spec_.plain_dim,
                                            .out = workspace_->at(attended_),
                                            .lse = workspace_->floats_at(lse_),
                                            .positions = lane.positions,
                                            .sequences = lane.sequences,
                                            .seq_len = lane.seq_len,
                                            .heads = spec_.heads,
                                            .head_dim = key_dim(),
                                            .value_dim = spec_.value_dim,
                                            .q_layout = key_layout(),
                                            .k_layout = key_layout(),
                                            .v_layout = up_layout(),
                                            .out_layout = value_layout(),
                                            .scale = scale_,
                                            .dtype = workspace_->dtype()});
}

void LatentAttentionBlock::forward_kept(const BlockCall& call, ConstElements x) {
  rotation_.fill_table(call);
  project_queries(call, x);
  project_keys(call, x);
  const bool extends = call.lane.cache == CacheUse::extend;
  if (!extends || !keeps_latents()) {
    expand(call);
  }
  if (call.lane.cache != CacheUse::none) {
    append(call);
  }
  if (!extends) {
    attend(call);
  } else if (keeps_latents()) {
    attend_latents(call);
  } else {
    attend_cached(call);
  }
}

void LatentAttentionBlock::forward_output(const BlockCall& call, Elements branch) {
  output_->forward(call, workspace_->at(attended_), branch, embedding_dim_);
}

void LatentAttentionBlock::attend_backward(const BlockCall& call, ConstElements dattended) const {
  const Lane& lane = call.lane;
  kernels_->attention_backward(call.stream, {.q = workspace_->at(queries_),
                                             .k = workspace_->at(keys_),
                                             .v = workspace_->at(up_) + spec_.plain_dim,
                                             .out = workspace_->at(attended_),
                                             .dout = dattended,
                                             .lse = workspace_->floats_at(lse_),
                                             .positions = lane.positions,
                                             .delta = workspace_->floats_at(delta_),
                                             .dq = workspace_->at(dqueries_),
                                             .dk = workspace_->at(dkeys_),
                                             .dv = workspace_->at(dup_) + spec_.plain_dim,
                                             .sequences = lane.sequences,
                                             .seq_len = lane.seq_len,
                                             .heads = spec_.heads,
                                             .head_dim = key_dim(),
                                             .value_dim = spec_.value_dim,
                                             .q_layout = key_layout(),
                                             .k_layout = key_layout(),
                                             .v_layout = up_layout(),
                                             .out_layout = value_layout(),
                                             .dout_layout = value_layout(),
                                             .dq_layout = key_layout(),
                                             .dk_layout = key_layout(),
                                             .dv_layout = up_layout(),
                                             .scale = scale_,
                                             .dtype = workspace_->dtype()});
}

void LatentAttentionBlock::queries_backward(const BlockCall& call, ConstElements x,
                                            Elements dx) const {
  Elements dqueries = workspace_->at(dqueries_);
  rotation_.apply(call, dqueries + spec_.plain_dim, key_layout(), spec_.heads, true);
  query_->begin_backward(call, dqueries, key_width());
  if (!query_latent_.map) {
    query_->backward_weight(call, dqueries, key_width(), x);
    query_->backward_input(call, dqueries, key_width(), dx);
    return;
  }
  const Latent& latent = query_latent_;
  Elements gradient = workspace_->at(latent.gradient);
  query_->backward_weight(call, dqueries, key_width(), workspace_->at(latent.output));
  query_->backward_input(call, dqueries, key_width(), gradient);
  latent.norm->backward(call, workspace_->at(latent.input), latent.layout(), gradient, gradient,
                        false);
  latent.map->begin_backward(call, gradient, latent.dim);
  latent.map->backward_weight(call, gradient, latent.dim, x);
  latent.map->backward_input(call, gradient, latent.dim, dx);
}

void LatentAttentionBlock::keys_backward(const BlockCall& call, ConstElements x,
                                         Elements dx) const {
  const Latent& latent = key_latent_;
  const kernels::RowLayout rotated{spec_.rope_dim, spec_.rope_dim};
  Elements dup = workspace_->at(dup_), drotated = workspace_->at(drotated_);
  Elements gradient = workspace_->at(latent.gradient), dinput = workspace_->at(dkey_input_);
  kernels_->split_heads(call.stream, {.x = workspace_->at(dkeys_),
                                      .left = dup,
                                      .right = drotated,
                                      .rows = call.lane.rows(),
                                      .heads = spec_.heads,
                                      .left_dim = spec_.plain_dim,
                                      .right_dim = spec_.rope_dim,
                                      .left_layout = up_layout(),
                                      .dtype = workspace_->dtype()});
  rotation_.apply(call, drotated, rotated, 1, true);
  key_value_->begin_backward(call, dup, up_width());
  key_value_->backward_weight(call, dup, up_width(), workspace_->at(latent.output));
  key_value_->backward_input(call, dup, up_width(), gradient);
  latent.norm->backward(call, workspace_->at(latent.input), latent.layout(), gradient, gradient,
                        false);
  kernels_->join_heads(call.stream, {.left = gradient,
                                     .right = drotated,
                                     .out = dinput,
                                     .rows = call.lane.rows(),
                                     .heads = 1,
                                     .left_dim = spec_.key_rank,
                                     .right_dim = spec_.rope_dim,
                                     .left_layout = latent.layout(),
                                     .right_layout = rotated,
                                     .dtype = workspace_->dtype()});
  const std::int64_t width = spec_.key_rank + spec_.rope_dim;
  latent.map->begin_backward(call, dinput, width);
  latent.map->backward_weight(call, dinput, width, x);
  latent.map->backward_input(call, dinput, width, dx, /*accumulate=*/true);
}

void LatentAttentionBlock::backward(const BlockCall& call, ConstElements x, ConstElements dbranch,
                                    Elements dx) {
  Elements dattended = workspace_->at(dattended_);
  output_->begin_backward(call, dbranch, embedding_dim_);
  output_->backward_weight(call, dbranch, embedding_dim_, workspace_->at(attended_));
  output_->backward_input(call, dbranch, embedding_dim_, dattended);
  if (workspace_->lean()) {
    if (query_latent_.map) {
      normalise(call, query_latent_);
    }
    normalise(call, key_latent_);
  }
  if (expands_again_) {
    expand_queries(call, x);
    key_value_->forward(call, workspace_->at(key_latent_.output), workspace_->at(up_), up_width());
  }
  if (workspace_->lean()) {
    join_keys(call);
  }
  attend_backward(call, dattended);
  queries_backward(call, x, dx);
  keys_backward(call, x, dx);
}

}  // namespace train::engine
