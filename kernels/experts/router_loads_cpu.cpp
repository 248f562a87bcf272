#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/cpu_support.hpp"
#include "kernels/experts/experts.hpp"
#include "kernels/experts/router_row.hpp"
#include "kernels/head/logit_row.hpp"

namespace train::kernels::cpu {
namespace {

/// Row of the first token of the document that a row belongs to.
std::int64_t document_of(const RouterGroupsParams& p, std::int64_t row) {
  const std::int64_t sequence = row / p.seq_len * p.seq_len;
  return p.positions == nullptr ? sequence
                                : std::max<std::int64_t>(sequence, row - p.positions[row]);
}

/// Neighbouring rows of one group, in a block of rows.
struct Run {
  std::int64_t begin = 0, end = 0;
  std::int64_t group = 0;
};

std::vector<Run> runs_of(const RouterLoadsParams& p) {
  constexpr std::int64_t block = 64;
  std::vector<Run> runs;
  for (std::int64_t row = 0; row < p.rows; ++row) {
    const std::int64_t group = p.groups == nullptr ? 0 : p.groups[row];
    TRAIN_CHECK(group >= -1 && group < p.group_count, "router_loads: row {} in group {} of {}", row,
                group, p.group_count);
    if (group < 0) {
      continue;
    }
    const bool goes_on =
        !runs.empty() && runs.back().end == row && runs.back().group == group && row % block != 0;
    if (goes_on) {
      ++runs.back().end;
    } else {
      runs.push_back({.begin = row, .end = row + 1, .group = group});
    }
  }
  return runs;
}

/// Sums over the rows of a run: [experts] each, and of logsumexp^2.
struct RunSums {
  std::int32_t* counts;
  float* probabilities;
  double* z_square;
};

/// The probabilities that balancing takes from a row, and log sum exp of its logits.
double probabilities_of(RouterKind kind, const float* logits, std::int64_t experts,
                        float* probabilities) {
  if (!is_sigmoid(kind)) {
    return router_probabilities(logits, experts, probabilities);
  }
  router_sigmoids(logits, experts, probabilities);
  router_shares(probabilities, experts, probabilities);
  return exponentiate_row(logits, experts, max_of_row(logits, experts), nullptr).lse;
}

void sum_run(const RouterLoadsParams& p, const Run& run, const RunSums& sums) {
  static thread_local Scratch scratch;
  auto* row_probabilities = scratch.get<float>(p.experts);
  std::fill_n(sums.counts, p.experts, 0);
  std::fill_n(sums.probabilities, p.experts, 0.0F);
  *sums.z_square = 0.0;
  for (std::int64_t row = run.begin; row < run.end; ++row) {
    const double lse =
        probabilities_of(p.kind, p.logits + row * p.experts, p.experts, row_probabilities);
    *sums.z_square += lse * lse;
    for (std::int64_t e = 0; e < p.experts; ++e) {
      sums.probabilities[e] += row_probabilities[e];
    }
    for (std::int64_t i = row * p.slots; i < (row + 1) * p.slots; ++i) {
      ++sums.counts[p.chosen[i]];
    }
  }
}

}  // namespace

void router_groups(const RouterGroupsParams& p, int) {
  const std::int64_t rows = p.sequences * p.seq_len;
  // Documents without a target are those that no target has marked.
  static thread_local Scratch scratch;
  auto* trained = scratch.get<std::uint8_t>(rows);
  std::fill_n(trained, rows, p.targets == nullptr ? 1 : 0);
  for (std::int64_t row = 0; p.targets != nullptr && row < rows; ++row) {
    if (p.targets[row] >= 0) {
      trained[document_of(p, row)] = 1;
    }
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t document = document_of(p, row);
    const std::int64_t group = p.by_document ? document : 0;
    p.groups[row] = static_cast<std::int32_t>(trained[document] != 0 ? group : -1);
  }
}

void router_loads(const RouterLoadsParams& p, int threads) {
  const std::vector<Run> runs = runs_of(p);
  const std::int64_t count = std::ssize(runs);
  static thread_local Scratch scratch;
  auto* z_squares = scratch.get<double>(count * (1 + p.experts));
  auto* probabilities = reinterpret_cast<float*>(z_squares + count);
  auto* counts = reinterpret_cast<std::int32_t*>(probabilities + count * p.experts);
  parallel_shares(threads, count, [&](std::int64_t i, int) {
    sum_run(p, runs[static_cast<std::size_t>(i)],
            {.counts = counts + i * p.experts,
             .probabilities = probabilities + i * p.experts,
             .z_square = z_squares + i});
  });
  std::fill_n(p.counts, p.group_count * p.experts, 0);
  std::fill_n(p.probabilities, p.group_count * p.experts, 0.0F);
  std::fill_n(p.group_rows, p.group_count, 0);
  *p.z_squares = 0.0;
  for (std::int64_t i = 0; i < count; ++i) {
    const Run& run = runs[static_cast<std::size_t>(i)];
    for (std::int64_t e = 0; e < p.experts; ++e) {
      p.counts[run.group * p.experts + e] += counts[i * p.experts + e];
      p.probabilities[run.group * p.experts + e] += probabilities[i * p.experts + e];
    }
    p.group_rows[run.group] += static_cast<std::int32_t>(run.end - run.begin);
    *p.z_squares += z_squares[i];
  }
}

}  // namespace train::kernels::cpu
