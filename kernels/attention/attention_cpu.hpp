#pragma once

#include <cstdint>

#include "kernels/cpu_support.hpp"

namespace train::kernels::cpu {

/// Sizes that both passes of attention share. Scratch rows are padded to whole vectors of the
/// widest instruction set, so that the layout is the same for all. Rows as long as the sequence
/// take an odd number of cache lines: at a power of two all rows of a tile would fall into the same
/// few sets of the cache (measured at 1024: a quarter of the speed).
struct AttentionSizes {
  static constexpr std::int64_t query_block = 64;  ///< Query rows whose scores exist at a time.
  static constexpr std::int64_t vector = 16;

  std::int64_t seq_len, head_dim;
  std::int64_t padded_len, padded_dim;
};

[[nodiscard]] constexpr AttentionSizes attention_sizes(std::int64_t seq_len,
                                                       std::int64_t head_dim) {
  constexpr std::int64_t vector = AttentionSizes::vector;
  return {.seq_len = seq_len,
          .head_dim = head_dim,
          .padded_len = divide_up(seq_len, 2 * vector) * 2 * vector + vector,
          .padded_dim = divide_up(head_dim, vector) * vector};
}

}  // namespace train::kernels::cpu
