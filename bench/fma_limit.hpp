#pragma once

namespace train::bench {

/// FLOP/s of `threads` threads that do nothing but fused multiply-adds in registers, with the
/// vectors that kernels have now: what no product can exceed. Best of a few tries within `seconds`.
/// Blocks.
[[nodiscard]] double fma_limit(int threads, double seconds);

}  // namespace train::bench
