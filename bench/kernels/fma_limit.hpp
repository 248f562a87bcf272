#pragma once

namespace train::bench {

/// FLOP/s of `threads` threads that only do fused multiply-adds in registers, with the vector width
/// of the kernels: an upper bound for any product. Best of several tries within `seconds`. Blocks.
[[nodiscard]] double fma_limit(int threads, double seconds);

}  // namespace train::bench
