#pragma once

#include <cstdint>

namespace train::kernels::cuda {

/// The widest head that attention is compiled for.
constexpr std::int64_t max_head_dim = 256;

/// Calls with<dim>() for the smallest compiled `dim` that holds `head_dim` columns. REQUIRES:
/// head_dim <= max_head_dim.
template <class With>
void for_head_columns(std::int64_t head_dim, const With& with) {
  if (head_dim <= 64) {
    with.template operator()<64>();
  } else if (head_dim <= 128) {
    with.template operator()<128>();
  } else {
    with.template operator()<256>();
  }
}

}  // namespace train::kernels::cuda
