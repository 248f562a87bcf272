#pragma once

#include <cstdint>

#include "kernels/device/stream.hpp"
#include "kernels/dtype.hpp"
#include "kernels/norm/norm.hpp"

namespace train::kernels {

/// Keys and values that a model that writes text has computed already, so that a new token costs
/// its own row alone. Of position p of a text is kept what lies at slot p % capacity: a window's
/// cache is a ring.
/// Both buffers are readable for KeyValueCache::slack elements past their ends.
struct KeyValueCache {
  static constexpr std::int64_t slack = 16;
  void* keys = nullptr;    ///< [texts, kv_heads, head_dim, capacity]: a slot is a column.
  void* values = nullptr;  ///< [texts, kv_heads, capacity, value_dim].
  std::int64_t capacity = 0;
  std::int64_t kv_heads = 0, head_dim = 0, value_dim = 0;
};

/// Slots for texts of `length` tokens whose rows come one at a time: of a window no more than it
/// sees. A multiple of a vector, so that rows of keys begin on one.
[[nodiscard]] constexpr std::int64_t cache_capacity(std::int64_t length, std::int64_t window) {
  constexpr std::int64_t vector = 16;
  const std::int64_t needed = window == 0 || window > length ? length : window;
  return (needed + vector - 1) / vector * vector;
}

/// Puts the keys and values of rows into the cache: row r is the token at positions[r] of text
/// texts[r]. Rows in ascending order of position within a text; of two rows of one slot the later
/// one stays.
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

/// Attention of single rows with what the cache holds, their own keys and values among it: row r is
/// the query at positions[r] of text texts[r], and sees positions 0 to its own, or the `window`
/// last of them. On the CPU the bits of attention_forward for that query.
/// REQUIRES: capacity holds all that a query sees.
struct AttentionCachedParams {
  const void* q = nullptr;
  void* out = nullptr;
  const std::int32_t* texts = nullptr;
  const std::int32_t* positions = nullptr;
  std::int64_t rows = 0, heads = 0;
  std::int64_t window = 0;  ///< As in AttentionForwardParams, softcap and scale too.
  float softcap = 0.0F;
  RowLayout q_layout, out_layout;
  KeyValueCache cache;
  float scale = 1.0F;
  DType dtype = DType::f32;

  [[nodiscard]] std::int64_t group() const { return heads / cache.kv_heads; }
};

}  // namespace train::kernels
