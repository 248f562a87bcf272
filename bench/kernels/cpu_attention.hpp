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

/// Compares heads whose keys and values have unlike widths with heads of their mean: equal work
/// forward, and with keys wider than values a little less of it backward.
void bench_value_widths(CpuKernelBench& bench, AttentionCase c);

/// One token of a model with latent attention, whose text has `tokens`.
struct LatentCase {
  std::int64_t tokens, heads;
  std::int64_t latent, rope;   ///< Columns of the latent cache.
  std::int64_t plain, values;  ///< Columns of a head's expanded keys without rotation, and values.

  [[nodiscard]] std::string shape() const {
    return fmt::format("T {}, {} x {}+{}", tokens, heads, latent, rope);
  }
};
/// Compares attention over cached latents with that over the expanded keys and values of the same
/// model; the projections around either are not measured.
void bench_latent_attention(CpuKernelBench& bench, const LatentCase& c);

}  // namespace train::bench
