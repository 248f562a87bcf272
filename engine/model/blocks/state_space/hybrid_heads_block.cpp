#include "engine/model/blocks/state_space/hybrid_heads_block.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "engine/model/blocks/copy_rows.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/backend.hpp"

namespace train::engine {
namespace {

/// Names under which a layer publishes what later ones read.
std::string keys_name(const std::string& layer) { return layer + "keys and values"; }
std::string cached_keys_name(const std::string& layer) { return layer + "cached keys"; }
std::string cached_values_name(const std::string& layer) { return layer + "cached values"; }

}  // namespace

std::unique_ptr<Block> HybridHeadsSpec::make(const BlockContext& context,
                                             const ModelSpec& model) const {
  return std::make_unique<HybridHeadsBlock>(context, *this, model);
}

std::string HybridHeadsSpec::sizes() const {
  return fmt::format("{} heads of {} beside {}", heads, head_dim, scan.sizes());
}

std::string HybridHeadsSpec::describe() const {
  std::string text = fmt::format("{} heads of {}, values of {}, {} of keys and values", heads,
                                 head_dim, value_dim, kv_heads);
  text += window > 0 ? fmt::format(", window {}", window) : "";
  text += window > 0 && prefix > 0 ? fmt::format(" and the first {}", prefix) : "";
  text += rope ? fmt::format(", rope {}", *rope) : "";
  text += makes_keys() ? "" : ", keys of an earlier layer";
  return fmt::format("{}; beside {}", text, scan.describe());
}

std::string HybridHeadsSpec::mistake() const {
  if (heads % kv_heads != 0) {
    return fmt::format("num_attention_heads {} is not a multiple of num_key_value_heads {}", heads,
                       kv_heads);
  }
  return scan.mistake();
}

double HybridHeadsSpec::score_flops(std::int64_t seq_len) const {
  const auto all = static_cast<double>(seq_len);
  const auto seen = static_cast<double>(window);
  const double mean =
      window == 0 || window >= seq_len
          ? all / 2.0
          : std::min(all / 2.0, seen - seen * seen / (2.0 * all) + static_cast<double>(prefix));
  return 2.0 * static_cast<double>(heads * (head_dim + value_dim)) * mean +
         scan.score_flops(seq_len);
}

std::optional<DecodingState> HybridHeadsSpec::decoding_state(CacheForm form) const {
  if (form != CacheForm::expanded) {
    return std::nullopt;
  }
  const std::int64_t of_token = makes_keys() ? kv_heads * (head_dim + value_dim) : 0;
  return DecodingState{.of_token = of_token, .tokens = prefix > 0 ? 0 : window};
}

HybridHeadsBlock::HybridHeadsBlock(const BlockContext& context, const HybridHeadsSpec& spec,
                                   const ModelSpec& model)
    : kernels_(&context.kernels),
      workspace_(&context.workspace),
      spec_(spec),
      rotation_(context, spec.rope, model),
      embedding_dim_(model.embedding_dim),
      width_(query_dim() + (spec.makes_keys() ? kv_dim() : 0) + 2 * spec.scan.inner),
      scale_(1.0F / std::sqrt(static_cast<float>(spec.head_dim))) {
  TRAIN_CHECK(spec.heads % spec.kv_heads == 0 && spec.heads * spec.value_dim == spec.scan.inner &&
              !model.transposed_linears);
  reserve(context);
  const std::int64_t channels = width_ - 2 * inner();
  scan_.emplace(context, spec.scan,
                MambaScan::Inputs{.slot = projection_,
                                  .gradient = dprojection_,
                                  .channels = channels,
                                  .gate = channels + inner(),
                                  .stride = width_});
  in_.emplace(
      context, spec.scan.in,
      LinearBlock::Options{.inputs = embedding_dim_, .outputs = width_, .bias = spec.scan.bias});
  scan_->add_maps(context);
  attention_norm_.emplace(context, spec.attention_norm.name,
                          row_norm(spec.attention_norm, inner()));
  scan_norm_.emplace(context, spec.scan_norm.name, row_norm(spec.scan_norm, inner()));
  out_.emplace(context, spec.scan.out,
               LinearBlock::Options{.inputs = inner(),
                                    .outputs = embedding_dim_,
                                    .init = InitKind::residual_output,
                                    .bias = spec.scan.bias});
}

void HybridHeadsBlock::reserve(const BlockContext& context) {
  Workspace& w = *workspace_;
  const std::int64_t rows = w.rows();
  const auto scratch = [&](const char* name, std::int64_t width) {
    return w.scratch_backward(Phase::branch, name, rows * width);
  };
  projection_ = w.keep(context.prefix, "projection", rows * width_);
  reserve_keys(context);
  attended_ = w.keep(context.prefix, "attended", rows * inner());
  lse_ = w.keep(context.prefix, "lse", rows * spec_.heads, Content::floats);
  scanned_ = w.keep(context.prefix, "scanned", rows * inner());
  mixed_ = w.scratch(Phase::branch, "mixed", rows * inner());
  normed_ = w.scratch(Phase::branch, "normed", rows * inner());
  dprojection_ = scratch("dprojection", width_);
  dmixed_ = scratch("dmixed", inner());
  dattended_ = scratch("dattended", inner());
  dkeys_ = scratch("gradient of keys and values", kv_dim());
  delta_ = w.scratch_backward(Phase::branch, "delta", rows * spec_.heads, Content::floats);
}

void HybridHeadsBlock::reserve_keys(const BlockContext& context) {
  Workspace& w = *workspace_;
  const std::int64_t count = w.rows() * kv_dim();
  const std::int64_t texts = w.cached_texts();
  if (spec_.readers > 0 || !spec_.makes_keys()) {
    read_gradient_ = w.share_backward("gradient of keys that others read", count);
  }
  // With its prefix a text keeps all its keys.
  cache_capacity_ = kernels::cache_capacity(w.seq_len(), spec_.prefix > 0 ? 0 : spec_.window);
  if (!spec_.makes_keys()) {
    keys_ = w.published(keys_name(spec_.keys_of));
    if (texts > 0) {
      cached_keys_ = w.published(cached_keys_name(spec_.keys_of));
      cached_values_ = w.published(cached_values_name(spec_.keys_of));
    }
    return;
  }
  keys_ = spec_.readers > 0
              ? w.keep_always(context.prefix, "keys and values", count, Content::elements)
              : w.keep(context.prefix, "keys and values", count);
  w.publish(keys_name(context.prefix), keys_);
  if (texts > 0) {
    const auto cached = [&](const std::string& name, std::int64_t width) {
      const Workspace::Slot slot = w.keep_for_texts(
          name, texts * spec_.kv_heads * width * cache_capacity_ + kernels::KeyValueCache::kSlack);
      w.publish(name, slot);
      return slot;
    };
    cached_keys_ = cached(cached_keys_name(context.prefix), spec_.head_dim);
    cached_values_ = cached(cached_values_name(context.prefix), spec_.value_dim);
  }
}

kernels::KeyValueCache HybridHeadsBlock::cache() const {
  return {.keys = workspace_->at(cached_keys_),
          .values = workspace_->at(cached_values_),
          .capacity = cache_capacity_,
          .kv_heads = spec_.kv_heads,
          .head_dim = spec_.head_dim,
          .value_dim = spec_.value_dim};
}

void HybridHeadsBlock::rotate(const BlockCall& call) const {
  const Elements projection = workspace_->at(projection_);
  rotation_.fill_table(call);
  rotation_.apply(call, projection, query_layout(), spec_.heads, /*inverse=*/false);
  if (spec_.makes_keys()) {
    copy_rows(
        *kernels_, call.stream, projection + query_dim(), keys(),
        {.rows = call.lane.rows(), .cols = kv_dim(), .from_stride = width_, .to_stride = kv_dim()});
    rotation_.apply(call, keys(), key_layout(), spec_.kv_heads, /*inverse=*/false);
  }
}

template <class Params>
Params HybridHeadsBlock::lane_params(const BlockCall& call) const {
  Params params;
  params.q = workspace_->at(projection_);
  params.k = keys();
  params.v = values();
  params.out = workspace_->at(attended_);
  params.lse = workspace_->floats_at(lse_);
  params.positions = call.lane.positions;
  params.sequences = call.lane.sequences;
  params.seq_len = call.lane.seq_len;
  params.heads = spec_.heads;
  params.head_dim = spec_.head_dim;
  params.value_dim = spec_.value_dim;
  params.kv_heads = spec_.kv_heads;
  params.window = spec_.window;
  params.prefix = spec_.prefix;
  params.q_layout = query_layout();
  params.k_layout = key_layout();
  params.v_layout = value_layout();
  params.out_layout = output_layout();
  params.scale = scale_;
  params.dtype = workspace_->dtype();
  return params;
}

void HybridHeadsBlock::attend_to_lane(const BlockCall& call) const {
  kernels_->attention_forward(call.stream, lane_params<kernels::AttentionForwardParams>(call));
}

void HybridHeadsBlock::attend_cached(const BlockCall& call) const {
  kernels_->attention_cached(call.stream, {.q = workspace_->at(projection_),
                                           .out = workspace_->at(attended_),
                                           .texts = call.lane.texts,
                                           .positions = call.lane.positions,
                                           .rows = call.lane.rows(),
                                           .heads = spec_.heads,
                                           .window = spec_.window,
                                           .prefix = spec_.prefix,
                                           .q_layout = query_layout(),
                                           .out_layout = output_layout(),
                                           .cache = cache(),
                                           .scale = scale_,
                                           .dtype = workspace_->dtype()});
}

void HybridHeadsBlock::attend(const BlockCall& call) const {
  if (call.lane.cache != CacheUse::none && spec_.makes_keys()) {
    kernels_->key_value_append(call.stream, {.k = keys(),
                                             .v = values(),
                                             .texts = call.lane.texts,
                                             .positions = call.lane.positions,
                                             .rows = call.lane.rows(),
                                             .k_layout = key_layout(),
                                             .v_layout = value_layout(),
                                             .cache = cache(),
                                             .dtype = workspace_->dtype()});
  }
  if (call.lane.cache == CacheUse::extend) {
    attend_cached(call);
  } else {
    attend_to_lane(call);
  }
}

void HybridHeadsBlock::add(const BlockCall& call, ConstElements x, ConstElements y, Elements out,
                           std::int64_t width) const {
  kernels_->residual_add(
      call.stream,
      {.x = x, .branch = y, .out = out, .count = call.lane.rows() * width, .dtype = out.dtype});
}

void HybridHeadsBlock::halve(const BlockCall& call, Elements x) const {
  kernels_->scale(
      call.stream,
      {.x = x, .y = x, .scale = 0.5F, .count = call.lane.rows() * inner(), .dtype = x.dtype});
}

void HybridHeadsBlock::mix(const BlockCall& call) const {
  const kernels::RowLayout layout{inner(), 0};
  const Elements mixed = workspace_->at(mixed_);
  const Elements normed = workspace_->at(normed_);
  attention_norm_->forward(call, workspace_->at(attended_), layout, mixed, layout);
  scan_norm_->forward(call, workspace_->at(scanned_), layout, normed, layout);
  add(call, mixed, normed, mixed, inner());
  halve(call, mixed);
}

void HybridHeadsBlock::forward_kept(const BlockCall& call, ConstElements x) {
  if (spec_.readers > 0 && !call.again && workspace_->with_gradient()) {
    clear_read_gradient(call);
  }
  in_->forward(call, x, workspace_->at(projection_), width_);
  rotate(call);
  attend(call);
  scan_->forward(call, workspace_->at(scanned_));
}

void HybridHeadsBlock::forward_output(const BlockCall& call, Elements branch) {
  mix(call);
  out_->forward(call, workspace_->at(mixed_), branch, embedding_dim_);
}

void HybridHeadsBlock::attend_backward(const BlockCall& call, ConstElements dattended) const {
  const Elements dkeys = workspace_->at(dkeys_);
  const Elements dprojection = workspace_->at(dprojection_);
  auto params = lane_params<kernels::AttentionBackwardParams>(call);
  params.dout = dattended;
  params.delta = workspace_->floats_at(delta_);
  params.dq = dprojection;
  params.dk = dkeys;
  params.dv = dkeys + key_dim();
  params.dout_layout = output_layout();
  params.dq_layout = query_layout();
  params.dk_layout = key_layout();
  params.dv_layout = value_layout();
  kernels_->attention_backward(call.stream, params);
  rotation_.apply(call, dprojection, query_layout(), spec_.heads, /*inverse=*/true);
  hand_on_keys(call);
}

// The order of the sum is that of the backward pass: from the last layer that reads the keys down.
void HybridHeadsBlock::hand_on_keys(const BlockCall& call) const {
  const Elements dkeys = workspace_->at(dkeys_);
  if (!spec_.makes_keys()) {
    const Elements sum = workspace_->at(read_gradient_);
    add(call, sum, dkeys, sum, kv_dim());
    return;
  }
  if (spec_.readers > 0) {
    add(call, workspace_->at(read_gradient_), dkeys, dkeys, kv_dim());
    clear_read_gradient(call);
  }
  rotation_.apply(call, dkeys, key_layout(), spec_.kv_heads, /*inverse=*/true);
  copy_rows(
      *kernels_, call.stream, dkeys, workspace_->at(dprojection_) + query_dim(),
      {.rows = call.lane.rows(), .cols = kv_dim(), .from_stride = kv_dim(), .to_stride = width_});
}

void HybridHeadsBlock::clear_read_gradient(const BlockCall& call) const {
  const Elements gradient = workspace_->at(read_gradient_);
  const std::int64_t bytes =
      call.lane.rows() * kv_dim() * static_cast<std::int64_t>(kernels::size_of(gradient.dtype));
  kernels_->fill(call.stream, {.out = reinterpret_cast<float*>(gradient.data),
                               .count = bytes / static_cast<std::int64_t>(sizeof(float))});
}

void HybridHeadsBlock::backward(const BlockCall& call, ConstElements x, ConstElements dbranch,
                                Elements dx) {
  const kernels::RowLayout layout{inner(), 0};
  const Elements mixed = workspace_->at(mixed_);
  const Elements dmixed = workspace_->at(dmixed_);
  const Elements dattended = workspace_->at(dattended_);
  const Elements dprojection = workspace_->at(dprojection_);
  scan_->again_where_lean(call);
  mix(call);
  out_->begin_backward(call, dbranch, embedding_dim_);
  out_->backward_weight(call, dbranch, embedding_dim_, mixed);
  out_->backward_input(call, dbranch, embedding_dim_, dmixed);
  halve(call, dmixed);
  attention_norm_->backward(call, workspace_->at(attended_), layout, dmixed, dattended,
                            /*accumulate=*/false);
  scan_norm_->backward(call, workspace_->at(scanned_), layout, dmixed, dmixed,
                       /*accumulate=*/false);
  attend_backward(call, dattended);
  scan_->backward_scan(call, dmixed);
  scan_->backward_inputs(call);
  in_->begin_backward(call, dprojection, width_);
  in_->backward_weight(call, dprojection, width_, x);
  in_->backward_input(call, dprojection, width_, dx);
}

}  // namespace train::engine
