#pragma once

#include <cstdint>

namespace train::bench {

/// Computes the kernels' exp of `count` numbers, which lie in the L1 cache, on the calling thread.
/// Returns a sum of them, so that they are not optimised away.
double exps_from_cache(std::int64_t count);

}  // namespace train::bench
