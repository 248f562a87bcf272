#pragma once

#include "bench/kernels/attention_rows.hpp"
#include "bench/kernels/cpu_kernel_bench.hpp"

// Attention rows of bench_kernels.
namespace train::bench {

void bench_attention(CpuKernelBench& bench, const AttentionCase& c);

/// Both passes with grouped queries, compared with repeated key and value heads, and with as many
/// key and value heads as query heads, without the copies.
void bench_grouped_attention(CpuKernelBench& bench, AttentionCase c);

/// Both passes with a window, compared with those without one.
void bench_windowed_attention(CpuKernelBench& bench, AttentionCase c);

}  // namespace train::bench
