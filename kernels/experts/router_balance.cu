#include "kernels/experts/experts.hpp"
#include "kernels/launch.cuh"
#include "kernels/reduce.cuh"

// Balancing losses of a layer of experts, in double. Three small kernels: sums over the groups of a
// chunk, by expert; the terms, in one block; factors. With groups of documents, reading their
// [groups, experts] loads and writing as many factors limits it, otherwise the launches do.
namespace train::kernels::cuda {
namespace {

constexpr int kChunkGroups = 64;

/// Sums over groups, in scratch memory, and what the terms make of them.
struct BalanceSums {
  std::int64_t chunks = 0;
  double* counts = nullptr;         ///< [chunks, experts].
  double* probabilities = nullptr;  ///< [chunks, experts].
  double* by_group = nullptr;       ///< [chunks, experts]: sums of count probability / rows.
  double* rows = nullptr;           ///< [chunks].
  double* slopes = nullptr;         ///< [experts]: of all terms but those of sequences, by coeff.
  double* lane = nullptr;           ///< [2]: rows; coeff of all terms of sequences.

  BalanceSums(CudaStream& stream, const BalanceParams& p)
      : chunks(divide_up(p.group_count, kChunkGroups)) {
    const std::int64_t of_groups = chunks * p.experts;
    const std::int64_t count = 3 * of_groups + chunks + p.experts + 2;
    counts = static_cast<double*>(stream.scratch(static_cast<std::size_t>(count) * sizeof(double)));
    probabilities = counts + of_groups;
    by_group = probabilities + of_groups;
    rows = by_group + of_groups;
    slopes = rows + chunks;
    lane = slopes + p.experts;
  }
};

/// Adds the groups of a chunk in order; the loads of groups without rows are not read.
__global__ void __launch_bounds__(kBlockThreads)
    group_sums_kernel(BalanceParams p, BalanceSums sums) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kChunkGroups;
  const std::int64_t end = min(first + kChunkGroups, p.group_count);
  for (std::int64_t e = threadIdx.x; e < p.experts; e += kBlockThreads) {
    double count_sum = 0.0;
    double probability_sum = 0.0;
    double by_group = 0.0;
    for (std::int64_t group = first; group < end && p.counts != nullptr; ++group) {
      const std::int32_t rows = p.group_rows[group];
      if (rows == 0) {
        continue;
      }
      const double count = p.counts[group * p.experts + e];
      count_sum += count;
      if (p.probabilities != nullptr) {
        const auto probability = static_cast<double>(p.probabilities[group * p.experts + e]);
        probability_sum += probability;
        by_group += count * probability / rows;
      }
    }
    const std::int64_t at = blockIdx.x * p.experts + e;
    sums.counts[at] = count_sum;
    sums.probabilities[at] = probability_sum;
    sums.by_group[at] = by_group;
  }
  if (threadIdx.x == 0) {
    double rows = 0.0;
    for (std::int64_t group = first; group < end; ++group) {
      rows += p.group_rows[group];
    }
    sums.rows[blockIdx.x] = rows;
  }
}

/// Sum over the block's threads, on all of them.
__device__ double sum_of_block(double value) {
  __shared__ double values[kBlockThreads];
  values[threadIdx.x] = value;
  fold_block(values, kBlockThreads, Add());
  const double sum = values[0];
  __syncthreads();  // All threads have read it.
  return sum;
}

/// Sum over chunks, in order.
__device__ double sum_of_chunks(const double* data, std::int64_t chunks, std::int64_t stride) {
  double sum = 0.0;
#pragma unroll 8
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    sum += data[chunk * stride];
  }
  return sum;
}

/// Terms of one layer, by all threads of one block; a thread has every kBlockThreads-th expert.
struct BalanceTerms {
  const BalanceParams& p;
  const BalanceSums& sums;
  double rows;  ///< The lane's rows.

  /// Calls with(e) for the thread's experts and returns the block's sum.
  template <class With>
  [[nodiscard]] __device__ double sum_of_experts(const With& with) const {
    double sum = 0.0;
    for (std::int64_t e = threadIdx.x; e < p.experts; e += kBlockThreads) {
      sum += with(e);
    }
    return sum_of_block(sum);
  }
  [[nodiscard]] __device__ double of_lane(const double* data, std::int64_t e) const {
    return sum_of_chunks(data + e, sums.chunks, p.experts);
  }
  [[nodiscard]] __device__ double experts() const { return static_cast<double>(p.experts); }
  [[nodiscard]] __device__ double layers() const { return static_cast<double>(p.layers); }

  /// Value of a term; adds coeff times its slopes.
  [[nodiscard]] __device__ double add(const BalanceTerm& term) const {
    const auto coeff = static_cast<double>(term.coeff);
    if (term.kind == BalanceKind::z) {
      return *p.z_squares / rows;
    }
    if (term.kind == BalanceKind::hf) {
      return pool_layers(coeff);
    }
    if (term.scope == BalanceScope::sequence) {
      return experts() / (static_cast<double>(p.slots) * rows) *
             sum_of_experts([&](std::int64_t e) { return of_lane(sums.by_group, e); });
    }
    return weigh_lane(term, coeff);
  }

 private:
  __device__ double pool_layers(double coeff) const {
    const double all = layers() * rows;
    return sum_of_experts([&](std::int64_t e) {
      double count = 0.0;
      double probability = 0.0;
      for (std::int64_t layer = 0; layer < p.layers; ++layer) {
        count += p.layer_counts[layer * p.layer_stride + e];
        probability += static_cast<double>(p.layer_probabilities[layer * p.layer_stride + e]);
      }
      sums.slopes[e] += coeff * experts() * (count / all) / all;
      return experts() * (count / all) * (probability / all);
    });
  }

  __device__ double weigh_lane(const BalanceTerm& term, double coeff) const {
    const bool of_lane_alone = term.scope == BalanceScope::lane;
    const auto count_of = [&](std::int64_t e) {
      return term.scope == BalanceScope::step            ? p.whole[e]
             : term.scope == BalanceScope::previous_step ? static_cast<double>(p.previous[e])
                                                         : of_lane(sums.counts, e);
    };
    const double all =
        of_lane_alone ? static_cast<double>(p.slots) * rows : sum_of_experts(count_of);
    return sum_of_experts([&](std::int64_t e) {
      const double count = count_of(e);
      const double share = all == 0.0 ? 1.0 / experts() : count / all;
      sums.slopes[e] += coeff * experts() * share / rows / layers();
      return experts() * share * (of_lane(sums.probabilities, e) / rows);
    });
  }
};

/// Writes what is wanted for the whole layer.
__global__ void __launch_bounds__(kBlockThreads)
    balance_terms_kernel(BalanceParams p, BalanceSums sums) {
  const double rows = sum_of_chunks(sums.rows, sums.chunks, 1);
  const BalanceTerms terms{p, sums, rows};
  for (std::int64_t e = threadIdx.x; e < p.experts; e += kBlockThreads) {
    sums.slopes[e] = 0.0;
    const double count = terms.of_lane(sums.counts, e);
    if (p.tally != nullptr) {
      p.tally[e] = static_cast<float>(count);
    }
    if (p.loads != nullptr) {
      p.loads[2 * e] = count;
      p.loads[2 * e + 1] = static_cast<double>(p.slots) * rows / terms.experts();
    }
  }
  double of_z = 0.0;
  double of_sequences = 0.0;
  for (std::int64_t i = 0; i < p.term_count; ++i) {
    const BalanceTerm term = p.terms[i];
    const bool there = rows != 0.0 && (term.kind != BalanceKind::hf || p.layer_counts != nullptr);
    const double value = there ? terms.add(term) : 0.0;
    const bool weighs = term.kind == BalanceKind::switch_loss;
    of_z += term.kind == BalanceKind::z ? static_cast<double>(term.coeff) : 0.0;
    of_sequences +=
        weighs && term.scope == BalanceScope::sequence ? static_cast<double>(term.coeff) : 0.0;
    if (threadIdx.x == 0 && p.values != nullptr) {
      p.values[2 * i] = value;
      p.values[2 * i + 1] = there ? 1.0 : 0.0;
    }
  }
  if (threadIdx.x == 0) {
    sums.lane[0] = rows;
    sums.lane[1] = of_sequences;
    if (p.z_factor != nullptr) {
      const double all = rows * terms.layers();
      *p.z_factor =
          all == 0.0 ? 0.0F : static_cast<float>(static_cast<double>(p.scale) * of_z / all);
    }
  }
}

/// Writes what is wanted of the bias.
__global__ void __launch_bounds__(kBlockThreads) bias_range_kernel(BalanceParams p) {
  __shared__ float lows[kBlockThreads];
  __shared__ float highs[kBlockThreads];
  float low = INFINITY;
  float high = -INFINITY;
  for (std::int64_t e = threadIdx.x; e < p.experts; e += kBlockThreads) {
    low = p.bias[e] < low ? p.bias[e] : low;
    high = p.bias[e] > high ? p.bias[e] : high;
  }
  lows[threadIdx.x] = low;
  highs[threadIdx.x] = high;
  __syncthreads();
  if (threadIdx.x != 0) {
    return;
  }
  for (int thread = 1; thread < kBlockThreads; ++thread) {
    low = lows[thread] < low ? lows[thread] : low;
    high = highs[thread] > high ? highs[thread] : high;
  }
  p.bias_range[0] = low;
  p.bias_range[2] = high;
  p.bias_range[1] = p.bias_range[3] = 1.0;
}

/// factors[group, e], of groups without rows 0.
struct BalanceFactors {
  BalanceParams p;
  BalanceSums sums;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t group = i / p.experts;
    const std::int64_t e = i - group * p.experts;
    const double rows = p.group_rows[group];
    double factor = 0.0;
    if (rows != 0.0) {
      factor = sums.slopes[e];
      const double of_sequences = sums.lane[1];
      if (of_sequences != 0.0) {
        const double share = p.counts[i] / (static_cast<double>(p.slots) * rows);
        factor += of_sequences * static_cast<double>(p.experts) * share / sums.lane[0] /
                  static_cast<double>(p.layers);
      }
    }
    p.factors[i] = static_cast<float>(static_cast<double>(p.scale) * factor);
  }
};

}  // namespace

void router_balance(CudaStream& stream, const BalanceParams& p) {
  const BalanceSums sums(stream, p);
  launch(stream, group_sums_kernel, {.blocks = blocks_of(sums.chunks, 1)}, p, sums);
  launch(stream, balance_terms_kernel, {.blocks = dim3(1)}, p, sums);
  if (p.bias_range != nullptr) {
    launch(stream, bias_range_kernel, {.blocks = dim3(1)}, p);
  }
  if (p.factors != nullptr) {
    launch_each(stream, p.group_count * p.experts, BalanceFactors{p, sums});
  }
}

}  // namespace train::kernels::cuda
