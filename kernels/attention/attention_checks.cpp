#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_cached.hpp"
#include "kernels/attention/shared_keys.hpp"
#include "kernels/checks.hpp"

namespace train::kernels {
namespace {

template <class Params>
void require_prefix(const char* kernel, const Params& params) {
  TRAIN_CHECK(params.prefix >= 0 && (params.prefix == 0 || params.softcap == 0.0F),
              "{}: prefix={} softcap={}", kernel, params.prefix, params.softcap);
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
  require_prefix(kernel, params);
}

void require_cache(const char* kernel, const KeyValueCache& cache) {
  TRAIN_CHECK(cache.capacity >= 1 && cache.kv_heads >= 1 && cache.head_dim >= 1 &&
                  cache.value_dim >= 1 && cache.keys != nullptr && cache.values != nullptr,
              "{}: a cache of {} slots, {} heads of {} and {}", kernel, cache.capacity,
              cache.kv_heads, cache.head_dim, cache.value_dim);
}

void require_cache(const char* kernel, const LatentCache& cache) {
  TRAIN_CHECK(
      cache.capacity >= 1 && cache.latent_dim >= 1 && cache.rope_dim >= 0 && cache.rows != nullptr,
      "{}: a cache of {} slots, {} and {} columns", kernel, cache.capacity, cache.latent_dim,
      cache.rope_dim);
}

template <class Params>
void require_parts(const char* kernel, const Params& params) {
  TRAIN_CHECK(params.heads >= 1 && params.left_dim >= 1 && params.right_dim >= 1,
              "{}: {} heads of {} and {}", kernel, params.heads, params.left_dim, params.right_dim);
}

}  // namespace

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

void check_params(const AttentionSinksBackwardParams& params) {
  TRAIN_CHECK(params.heads >= 1 && params.seq_len >= 1,
              "attention_sinks_backward: seq_len={} heads={}", params.seq_len, params.heads);
  require_pointers("attention_sinks_backward", params.sequences, params.lse, params.delta);
  require_pointers("attention_sinks_backward", params.heads, params.sinks, params.dsinks);
}

void check_params(const AttentionCachedParams& params) {
  require_cache("attention_cached", params.cache);
  TRAIN_CHECK(params.heads >= 1 && params.heads % params.cache.kv_heads == 0,
              "attention_cached: kv_heads={} of heads={}", params.cache.kv_heads, params.heads);
  TRAIN_CHECK(params.scale >= 0.0F && params.window >= 0 && params.softcap >= 0.0F,
              "attention_cached: scale={} window={} softcap={}", params.scale, params.window,
              params.softcap);
  require_prefix("attention_cached", params);
  require_pointers("attention_cached", params.rows, params.q, params.out, params.texts,
                   params.positions);
}

void check_params(const KeyValueAppendParams& params) {
  require_cache("key_value_append", params.cache);
  require_pointers("key_value_append", params.rows, params.k, params.v, params.texts,
                   params.positions);
}

void check_params(const LatentAppendParams& params) {
  require_cache("latent_append", params.cache);
  require_pointers("latent_append", params.rows, params.latent, params.texts, params.positions);
  TRAIN_CHECK(params.rows == 0 || params.cache.rope_dim == 0 || params.key != nullptr,
              "latent_append: no keys for {} columns of the cache", params.cache.rope_dim);
}

void check_params(const LatentCachedParams& params) {
  require_cache("latent_cached", params.cache);
  TRAIN_CHECK(params.heads >= 1 && params.scale >= 0.0F, "latent_cached: heads={} scale={}",
              params.heads, params.scale);
  require_pointers("latent_cached", params.rows, params.q, params.out, params.texts,
                   params.positions);
}

void check_params(const JoinHeadsParams& params) {
  require_parts("join_heads", params);
  require_pointers("join_heads", params.rows, params.left, params.right, params.out);
}

void check_params(const SplitHeadsParams& params) {
  require_parts("split_heads", params);
  require_pointers("split_heads", params.rows, params.x, params.left, params.right);
}

}  // namespace train::kernels
