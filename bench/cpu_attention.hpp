#pragma once

#include "bench/attention_rows.hpp"
#include "bench/cpu_kernel_bench.hpp"

// Rows of bench_kernels on attention.
namespace train::bench {

void bench_attention(CpuKernelBench& bench, const AttentionCase& c);

/// Both passes with grouped queries, against heads of keys and values that are repeated, and
/// against as many as there are of queries without the copies.
void bench_grouped_attention(CpuKernelBench& bench, AttentionCase c);

/// Both passes with a window, against those without one.
void bench_windowed_attention(CpuKernelBench& bench, AttentionCase c);

}  // namespace train::bench
