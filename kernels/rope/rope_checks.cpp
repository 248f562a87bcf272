#include "kernels/rope/rope.hpp"

#include "kernels/checks.hpp"

namespace train::kernels {

void check_params(const RopeTableParams& params) {
  TRAIN_CHECK(params.head_dim >= 0 && params.head_dim % 2 == 0,
              "rope_table: head_dim {} is not even", params.head_dim);
  require_pointers("rope_table", params.seq_len * params.head_dim, params.cos, params.sin);
  TRAIN_CHECK(
      !params.frequencies.given || params.head_dim / 2 <= std::int64_t{RopeFrequencies::kMostPairs},
      "rope_table: frequencies of {} pairs", params.head_dim / 2);
}

void check_params(const RopeParams& params) {
  TRAIN_CHECK(params.head_dim >= 0 && params.head_dim % 2 == 0,
              "rope_apply: head_dim {} is not even", params.head_dim);
  TRAIN_CHECK(params.seq_len >= 1 && params.heads >= 1, "rope_apply: seq_len={} heads={}",
              params.seq_len, params.heads);
  require_pointers("rope_apply", params.tokens * params.head_dim, params.x, params.cos, params.sin);
}

}  // namespace train::kernels
