#pragma once

#include <cstdint>

#include "kernels/dtype.hpp"
#include "kernels/row_layout.hpp"

namespace train::kernels {

/// Key-value cache of generation, so that a new token computes only its own row. Position p of a
/// text is stored at slot p % capacity: a sliding window's cache is a ring. Both buffers must be
/// readable for KeyValueCache::kSlack elements past their ends.
struct KeyValueCache {
  static constexpr std::int64_t kSlack = 16;
  void* keys = nullptr;    ///< [texts, kv_heads, head_dim, capacity]: slots are columns.
  void* values = nullptr;  ///< [texts, kv_heads, capacity, value_dim].
  std::int64_t capacity = 0;
  std::int64_t kv_heads = 0, head_dim = 0, value_dim = 0;
};

/// Slots needed for texts of `length` tokens added one at a time; with a window at most the window.
/// Rounded up to the vector width, so that rows of keys are aligned.
[[nodiscard]] constexpr std::int64_t cache_capacity(std::int64_t length, std::int64_t window) {
  constexpr std::int64_t vector = 16;
  const std::int64_t needed = window == 0 || window > length ? length : window;
  return (needed + vector - 1) / vector * vector;
}

/// Appends keys and values to the cache: row r is the token at positions[r] of text texts[r]. Rows
/// of a text come in ascending order of position; if two share a slot, the later one stays.
struct KeyValueAppendParams {
  const void* k = nullptr;
  const void* v = nullptr;
  const std::int32_t* texts = nullptr;      ///< [rows].
  const std::int32_t* positions = nullptr;  ///< [rows].
  std::int64_t rows = 0;
  RowLayout k_layout, v_layout;
  KeyValueCache cache;
  DType dtype = DType::f32;
};

/// Attention of single rows over the cache, which includes their own keys and values: row r is the
/// query at positions[r] of text texts[r] and sees positions 0 to its own, or the last `window` of
/// them and the first `prefix`. On the CPU bitwise equal to attention_forward for that query.
/// REQUIRES: capacity holds all keys that a query sees.
struct AttentionCachedParams {
  const void* q = nullptr;
  void* out = nullptr;
  const std::int32_t* texts = nullptr;
  const std::int32_t* positions = nullptr;
  std::int64_t rows = 0, heads = 0;
  const float* sinks = nullptr;  ///< As in AttentionForwardParams, like window, softcap and scale.
  std::int64_t window = 0;
  std::int64_t prefix = 0;  ///< Likewise.
  float softcap = 0.0F;
  RowLayout q_layout, out_layout;
  KeyValueCache cache;
  float scale = 1.0F;
  DType dtype = DType::f32;

  [[nodiscard]] std::int64_t group() const { return heads / cache.kv_heads; }
};

/// Cache of latent attention (DeepSeek-AI 2024, https://arxiv.org/abs/2405.04434): what all heads
/// of a token share, its normalised latent and its rotated key, side by side.
struct LatentCache {
  void* rows = nullptr;  ///< [texts, capacity, latent_dim + rope_dim].
  std::int64_t capacity = 0;
  std::int64_t latent_dim = 0, rope_dim = 0;
};

/// Appends to the cache: row r is the token at positions[r] of text texts[r].
struct LatentAppendParams {
  const void* latent = nullptr;             ///< [rows, latent_dim].
  const void* key = nullptr;                ///< [rows, rope_dim].
  const std::int32_t* texts = nullptr;      ///< [rows].
  const std::int32_t* positions = nullptr;  ///< [rows].
  std::int64_t rows = 0;
  RowLayout latent_layout, key_layout;  ///< One head each.
  LatentCache cache;
  DType dtype = DType::f32;
};

/// Attention over latents themselves, for queries that the key's up-projection has been folded
/// into:
///   out[r, h] = softmax(scale q[r, h] C^T) C[:, :latent_dim], C the cached rows of its text,
/// positions 0 to its own. The maths of attention over expanded keys and values, in another
/// rounding. A row's bits depend on its text alone.
struct LatentCachedParams {
  const void* q = nullptr;  ///< [rows, heads, latent_dim + rope_dim].
  void* out = nullptr;      ///< [rows, heads, latent_dim].
  const std::int32_t* texts = nullptr;
  const std::int32_t* positions = nullptr;
  std::int64_t rows = 0, heads = 0;
  RowLayout q_layout, out_layout;
  LatentCache cache;
  float scale = 1.0F;
  DType dtype = DType::f32;
};

}  // namespace train::kernels
