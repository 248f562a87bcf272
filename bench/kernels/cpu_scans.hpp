#pragma once

#include "bench/kernels/cpu_kernel_bench.hpp"

// Rows of state spaces of bench_kernels.
namespace train::bench {

/// Convolution and scans of a layer of mamba-130m's and mamba2-130m's shape, each pass.
/// FLOPs are those that `describe` counts.
void bench_scans(CpuKernelBench& bench, std::int64_t rows);

}  // namespace train::bench
