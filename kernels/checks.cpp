#include "kernels/kernel_list.hpp"

#include "base/check.hpp"

namespace train::kernels {
namespace {

/// Checks that a kernel with work to do has all of its pointers.
template <class... Pointers>
void require_pointers(const char* kernel, std::int64_t count, const Pointers*... pointers) {
  TRAIN_CHECK(count >= 0, "{}: negative size {}", kernel, count);
  TRAIN_CHECK(count == 0 || (... && (pointers != nullptr)), "{}: null pointer", kernel);
}

void require_rotation(const char* kernel, const RowRotation& rotation, std::int64_t cols) {
  TRAIN_CHECK((rotation.cos == nullptr) == (rotation.sin == nullptr), "{}: half a rotation",
              kernel);
  TRAIN_CHECK(rotation.cos == nullptr || (cols % 2 == 0 && rotation.seq_len >= 1),
              "{}: rotation of cols={} at seq_len={}", kernel, cols, rotation.seq_len);
}

template <class Params>
void require_heads(const char* kernel, const Params& params) {
  TRAIN_CHECK(params.seq_len >= 1 && params.heads >= 1 && params.head_dim >= 1,
              "{}: seq_len={} heads={} head_dim={}", kernel, params.seq_len, params.heads,
              params.head_dim);
  TRAIN_CHECK(params.scale >= 0.0F, "{}: scale {} is negative", kernel, params.scale);
  TRAIN_CHECK(params.kv_heads == 0 || (params.kv_heads > 0 && params.heads % params.kv_heads == 0),
              "{}: kv_heads={} of heads={}", kernel, params.kv_heads, params.heads);
  TRAIN_CHECK(params.window >= 0 && params.softcap >= 0.0F && params.value_dim >= 0,
              "{}: window={} softcap={} value_dim={}", kernel, params.window, params.softcap,
              params.value_dim);
}

void require_cache(const char* kernel, const KeyValueCache& cache) {
  TRAIN_CHECK(cache.capacity >= 1 && cache.kv_heads >= 1 && cache.head_dim >= 1 &&
                  cache.value_dim >= 1 && cache.keys != nullptr && cache.values != nullptr,
              "{}: a cache of {} slots, {} heads of {} and {}", kernel, cache.capacity,
              cache.kv_heads, cache.head_dim, cache.value_dim);
}

void require_update(const char* kernel, const UpdateGuard* guard, std::int64_t step = 1) {
  TRAIN_CHECK(guard != nullptr, "{}: no guard", kernel);
  TRAIN_CHECK(step >= 1, "{}: steps count from 1, not {}", kernel, step);
}

void require_logit_shape(const char* kernel, float scale, float softcap) {
  TRAIN_CHECK(scale > 0.0F && softcap >= 0.0F, "{}: logit_scale={} softcap={}", kernel, scale,
              softcap);
}

template <class Params>
void require_log_probs(const char* kernel, const Params& params) {
  const LogProbResults& results = params.results;
  require_logit_shape(kernel, params.logit_scale, params.softcap);
  TRAIN_CHECK(params.targets != nullptr || results.log_probs == nullptr || params.rows == 0,
              "{}: log_probs of no targets", kernel);
  TRAIN_CHECK(results.top_k >= 1 || (results.top_lse == nullptr && results.top_mean == nullptr),
              "{}: top_k={}", kernel, results.top_k);
}

}  // namespace

void check_params(const MatmulParams& params) {
  TRAIN_CHECK(params.m >= 0 && params.n >= 0 && params.k >= 0, "matmul: m={} n={} k={}", params.m,
              params.n, params.k);
  require_pointers("matmul", params.m * params.n * params.k, params.a, params.b);
  require_pointers("matmul", params.m * params.n, params.c);
  TRAIN_CHECK(params.lda >= (params.transpose_a ? params.m : params.k), "matmul: lda={} m={} k={}",
              params.lda, params.m, params.k);
  TRAIN_CHECK(params.ldb >= (params.transpose_b ? params.k : params.n), "matmul: ldb={} k={} n={}",
              params.ldb, params.k, params.n);
  TRAIN_CHECK(params.ldc >= params.n, "matmul: ldc={} n={}", params.ldc, params.n);
}

void check_params(const EmbeddingForwardParams& params) {
  require_pointers("embedding_forward", params.rows * params.cols, params.tokens, params.weight,
                   params.out);
}

void check_params(const EmbeddingBackwardParams& params) {
  require_pointers("embedding_backward", params.rows * params.cols, params.tokens, params.dout);
  require_pointers("embedding_backward", params.vocab * params.cols, params.dweight);
}

void check_params(const NormForwardParams& params) {
  const std::int64_t rows = params.outer * params.inner;
  require_pointers("norm_forward", rows, params.x, params.weight, params.y, params.rstd);
  TRAIN_CHECK(params.inner >= 1 && params.cols >= 1, "norm_forward: inner={} cols={}", params.inner,
              params.cols);
  TRAIN_CHECK(rows == 0 || params.kind != NormKind::layer || params.mean != nullptr,
              "norm_forward: nowhere to put the means");
  require_rotation("norm_forward", params.rotation, params.cols);
  TRAIN_CHECK(params.residual.branch == nullptr ||
                  (params.residual.base != nullptr && params.residual.sum == params.x),
              "norm_forward: the residual's sum is not what is normalised");
}

void check_params(const NormBackwardParams& params) {
  const std::int64_t rows = params.outer * params.inner;
  require_pointers("norm_backward", rows, params.x, params.weight, params.rstd, params.dy,
                   params.dx);
  TRAIN_CHECK(params.inner >= 1 && params.cols >= 1, "norm_backward: inner={} cols={}",
              params.inner, params.cols);
  TRAIN_CHECK(rows == 0 || params.kind != NormKind::layer || params.mean != nullptr,
              "norm_backward: no means");
  TRAIN_CHECK(!params.accumulate_dx || params.dx != params.dy,
              "norm_backward: dx cannot be dy and be added to");
  require_rotation("norm_backward", params.rotation, params.cols);
  TRAIN_CHECK(params.rotation.cos == nullptr || params.dx == params.dy,
              "norm_backward: dy is rotated back in its place, which has to be dx");
}

void check_params(const RopeTableParams& params) {
  TRAIN_CHECK(params.head_dim >= 0 && params.head_dim % 2 == 0,
              "rope_table: head_dim {} is not even", params.head_dim);
  require_pointers("rope_table", params.seq_len * params.head_dim, params.cos, params.sin);
  TRAIN_CHECK(
      !params.frequencies.given || params.head_dim / 2 <= std::int64_t{RopeFrequencies::most_pairs},
      "rope_table: frequencies of {} pairs", params.head_dim / 2);
}

void check_params(const RopeParams& params) {
  TRAIN_CHECK(params.head_dim >= 0 && params.head_dim % 2 == 0,
              "rope_apply: head_dim {} is not even", params.head_dim);
  TRAIN_CHECK(params.seq_len >= 1 && params.heads >= 1, "rope_apply: seq_len={} heads={}",
              params.seq_len, params.heads);
  require_pointers("rope_apply", params.tokens * params.head_dim, params.x, params.cos, params.sin);
}

void check_params(const AttentionForwardParams& params) {
  require_heads("attention_forward", params);
  require_pointers("attention_forward", params.sequences, params.q, params.k, params.v, params.out,
                   params.lse);
}

void check_params(const AttentionBackwardParams& params) {
  require_heads("attention_backward", params);
  require_pointers("attention_backward", params.sequences, params.q, params.k, params.v, params.out,
                   params.dout, params.lse, params.delta, params.dq, params.dk, params.dv);
}

void check_params(const AttentionCachedParams& params) {
  require_cache("attention_cached", params.cache);
  TRAIN_CHECK(params.heads >= 1 && params.heads % params.cache.kv_heads == 0,
              "attention_cached: kv_heads={} of heads={}", params.cache.kv_heads, params.heads);
  TRAIN_CHECK(params.scale >= 0.0F && params.window >= 0 && params.softcap >= 0.0F,
              "attention_cached: scale={} window={} softcap={}", params.scale, params.window,
              params.softcap);
  require_pointers("attention_cached", params.rows, params.q, params.out, params.texts,
                   params.positions);
}

void check_params(const KeyValueAppendParams& params) {
  require_cache("key_value_append", params.cache);
  require_pointers("key_value_append", params.rows, params.k, params.v, params.texts,
                   params.positions);
}

void check_params(const GeluForwardParams& params) {
  require_pointers("gelu_forward", params.count, params.x, params.y);
}

void check_params(const GeluBackwardParams& params) {
  require_pointers("gelu_backward", params.count, params.x, params.dy, params.dx);
}

void check_params(const SwigluForwardParams& params) {
  require_pointers("swiglu_forward", params.count, params.gate, params.up, params.y);
}

void check_params(const SwigluBackwardParams& params) {
  require_pointers("swiglu_backward", params.count, params.gate, params.up, params.dy, params.dgate,
                   params.dup);
}

void check_params(const SigmoidGateForwardParams& params) {
  TRAIN_CHECK(params.heads >= 1 && params.head_dim >= 0, "sigmoid_gate_forward: heads={} of {}",
              params.heads, params.head_dim);
  require_pointers("sigmoid_gate_forward", params.tokens, params.x, params.gate, params.y);
}

void check_params(const SigmoidGateBackwardParams& params) {
  TRAIN_CHECK(params.heads >= 1 && params.head_dim >= 0, "sigmoid_gate_backward: heads={} of {}",
              params.heads, params.head_dim);
  require_pointers("sigmoid_gate_backward", params.tokens, params.x, params.gate, params.dy,
                   params.dx, params.dgate);
}

void check_params(const ActivationForwardParams& params) {
  require_pointers("activation_forward", params.rows * params.cols, params.x, params.y);
  TRAIN_CHECK(params.x_stride >= params.cols && params.y_stride >= params.cols,
              "activation_forward: cols={} x_stride={} y_stride={}", params.cols, params.x_stride,
              params.y_stride);
}

void check_params(const ActivationBackwardParams& params) {
  require_pointers("activation_backward", params.rows * params.cols, params.x, params.dy, params.dx,
                   params.y);
  TRAIN_CHECK((params.up == nullptr) == (params.dup == nullptr),
              "activation_backward: up and dup come together");
  TRAIN_CHECK(params.x_stride >= params.cols && params.dy_stride >= params.cols &&
                  params.dx_stride >= params.cols,
              "activation_backward: cols={} x_stride={} dy_stride={} dx_stride={}", params.cols,
              params.x_stride, params.dy_stride, params.dx_stride);
}

void check_params(const BiasAddParams& params) {
  require_pointers("bias_add", params.rows * params.cols, params.y, params.bias);
  TRAIN_CHECK(params.period >= 1 && params.stride >= params.cols,
              "bias_add: period={} stride={} cols={}", params.period, params.stride, params.cols);
}

void check_params(const BiasGradientParams& params) {
  require_pointers("bias_gradient", params.rows * params.cols, params.dy);
  require_pointers("bias_gradient", params.cols, params.dbias);
  TRAIN_CHECK(params.period >= 1 && params.stride >= params.cols,
              "bias_gradient: period={} stride={} cols={}", params.period, params.stride,
              params.cols);
}

void check_params(const HeadLossParams& params) {
  TRAIN_CHECK(params.vocab >= 1 && params.cols >= 1 && params.chunk_rows >= 1,
              "head_loss: vocab={} cols={} chunk_rows={}", params.vocab, params.cols,
              params.chunk_rows);
  require_pointers("head_loss", params.rows, params.x, params.weight, params.targets, params.logits,
                   params.row_terms);
  TRAIN_CHECK(params.sums != nullptr, "head_loss: nowhere to put the sums");
  TRAIN_CHECK(params.dx != nullptr || params.dweight == nullptr,
              "head_loss: dweight comes with dx alone");
  require_logit_shape("head_loss", params.logit_scale, params.softcap);
  TRAIN_CHECK(params.label_smoothing >= 0.0F && params.label_smoothing <= 1.0F,
              "head_loss: label_smoothing={}", params.label_smoothing);
  if (params.row_loss == RowLoss::cross_entropy) {
    return;
  }
  TRAIN_CHECK(params.label_smoothing == 0.0F && params.z_scale == 0.0F,
              "head_loss: label smoothing and z-loss come with cross-entropy alone");
  if (params.row_loss == RowLoss::divergence) {
    require_pointers("head_loss", params.rows, params.reference_x, params.reference_logits);
  } else {
    TRAIN_CHECK(params.top_k >= 1, "head_loss: top_k={}", params.top_k);
  }
}

void check_params(const TokenLogProbsParams& params) {
  TRAIN_CHECK(params.vocab >= 1 && params.cols >= 1 && params.chunk_rows >= 1,
              "token_log_probs: vocab={} cols={} chunk_rows={}", params.vocab, params.cols,
              params.chunk_rows);
  require_pointers("token_log_probs", params.rows, params.x, params.weight, params.logits);
  require_log_probs("token_log_probs", params);
}

void check_params(const RowDistanceParams& params) {
  require_pointers("row_distance", params.rows * params.cols, params.x, params.reference);
  require_pointers("row_distance", params.rows, params.targets, params.row_terms);
  TRAIN_CHECK(params.sums != nullptr, "row_distance: nowhere to put the sums");
}

void check_params(const LogitsLogProbsParams& params) {
  TRAIN_CHECK(params.vocab >= 1, "logits_log_probs: vocab={}", params.vocab);
  require_pointers("logits_log_probs", params.rows, params.logits);
  require_log_probs("logits_log_probs", params);
}

void check_params(const ResidualAddParams& params) {
  require_pointers("residual_add", params.count, params.x, params.branch, params.out);
}

void check_params(const TreeAddParams& params) {
  require_pointers("tree_add", params.count, params.left, params.right, params.out);
}

void check_params(const ScaleParams& params) {
  require_pointers("scale", params.count, params.x, params.y);
}

void check_params(const MaskSignParams& params) {
  require_pointers("mask_sign", params.count, params.g, params.other);
}

void check_params(const FillParams& params) { require_pointers("fill", params.count, params.out); }

void check_params(const CopyParams& params) {
  require_pointers("copy", params.size_bytes, params.in, params.out);
}

void check_params(const CountNonfiniteParams& params) {
  require_pointers("count_nonfinite", params.count, params.x);
  TRAIN_CHECK(params.nonfinite != nullptr, "count_nonfinite: nowhere to put the count");
}

void check_params(const CountNonzeroParams& params) {
  require_pointers("count_nonzero", params.count, params.x);
  TRAIN_CHECK(params.nonzero != nullptr, "count_nonzero: nowhere to put the count");
}

void check_params(const PackBf16Params& params) {
  require_pointers("pack_bf16", params.count, params.in, params.out);
}

void check_params(const UnpackBf16Params& params) {
  require_pointers("unpack_bf16", params.count, params.in, params.out);
}

void check_params(const RowSquareSumsParams& params) {
  for (const RowSquareSumsParams::Tensor& tensor : params.tensors) {
    require_pointers("row_square_sums", tensor.rows * tensor.cols, tensor.x);
    require_pointers("row_square_sums", tensor.rows, tensor.row_sums);
  }
}

void check_params(const TreeSumParams& params) {
  for (const TreeSumParams::Sum& sum : params.sums) {
    require_pointers("tree_sum", sum.count, sum.values);
    TRAIN_CHECK(sum.out != nullptr, "tree_sum: nowhere to put the sum");
  }
}

void check_params(const ClipScaleParams& params) {
  require_pointers("clip_scale", 1, params.squared_norm, params.cross_entropy, params.z_squared,
                   params.guard);
}

void check_params(const AdamwParams& params) {
  for (const AdamwParams::Tensor& tensor : params.tensors) {
    require_pointers("adamw_update", tensor.count, tensor.p, tensor.g, tensor.m, tensor.v);
  }
  require_update("adamw_update", params.guard, params.step);
}

void check_params(const AdemamixParams& params) {
  for (const AdemamixParams::Tensor& tensor : params.tensors) {
    require_pointers("ademamix_update", tensor.count, tensor.p, tensor.g, tensor.fast, tensor.slow,
                     tensor.v);
  }
  require_update("ademamix_update", params.guard, params.step);
}

void check_params(const DanaParams& params) {
  for (const DanaParams::Tensor& tensor : params.tensors) {
    require_pointers("dana_update", tensor.rows * tensor.cols, tensor.p, tensor.g, tensor.m,
                     tensor.v);
  }
  require_update("dana_update", params.guard, params.step);
}

void check_params(const AverageParams& params) {
  for (const AverageParams::Tensor& tensor : params.tensors) {
    require_pointers("average_update", tensor.count, tensor.average, tensor.p);
  }
}

void check_params(const MuonMomentumParams& params) {
  require_pointers("muon_momentum", params.count, params.g, params.m, params.x);
  require_update("muon_momentum", params.guard);
}

void check_params(const MuonNormaliseParams& params) {
  require_pointers("muon_normalise", params.count, params.x);
  TRAIN_CHECK(params.squared_norm != nullptr, "muon_normalise: no norm");
}

void check_params(const BlendBf16Params& params) {
  require_pointers("blend_bf16", params.count, params.x, params.y, params.out);
}

void check_params(const MuonApplyParams& params) {
  require_pointers("muon_apply", params.count, params.p, params.x);
  require_update("muon_apply", params.guard);
}

}  // namespace train::kernels
