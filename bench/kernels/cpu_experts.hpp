#pragma once

#include "bench/kernels/cpu_kernel_bench.hpp"

// Rows of experts of bench_kernels.
namespace train::bench {

/// Layer of experts: `slots` of `experts` gated MLPs d -> hidden -> d for each row.
struct ExpertsCase {
  std::int64_t rows = 0, d = 0, hidden = 0, experts = 0, slots = 0;
};

/// Both passes of the experts as a share of the speed of a gated MLP with as many FLOPs of a row:
/// the products alone, and all kernels of the layer. The targets are of these two.
void bench_experts(CpuKernelBench& bench, const ExpertsCase& c, double products, double whole);

/// Routers of every kind, plain and with DeepSeek-V3's bias and groups: the time of a pass, and the
/// speed of each as a share of that of a softmax over as many experts. The target is that of the
/// choice by groups.
void bench_routers(CpuKernelBench& bench, std::int64_t rows);

}  // namespace train::bench
