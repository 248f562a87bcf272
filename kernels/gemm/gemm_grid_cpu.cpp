#include "kernels/gemm/gemm_grid.hpp"
#include "kernels/gemm/matmul.hpp"

namespace train::kernels::cpu {
namespace {

Grid grid_of(const MatmulParams& p, const PieceCosts& costs, std::int64_t down,
             std::int64_t across) {
  const auto whole = [](std::int64_t size, std::int64_t parts, std::int64_t unit) {
    return divide_up(divide_up(size, parts), unit) * unit;
  };
  const std::int64_t rows = whole(p.m, down, costs.whole_rows);
  const std::int64_t columns = whole(p.n, across, costs.whole_columns);
  return {.rows = rows,
          .columns = columns,
          .down = divide_up(p.m, rows),
          .across = divide_up(p.n, columns)};
}

/// Extra cost factor of an element of A if A is larger than a product's share of L3: each column of
/// pieces then reads all of A from memory again.
double way_of_a(const MatmulParams& p) {
  constexpr std::int64_t cached_bytes = 16'777'216;
  return p.m * p.k * static_cast<std::int64_t>(sizeof(float)) > cached_bytes ? 2.0 : 1.0;
}

/// Cost of a product with this grid, in multiply-adds of one thread. Each piece packs its rows of A
/// once, and its columns of B once per pass of A's rows.
double cost(const MatmulParams& p, const PieceCosts& costs, const Grid& grid, int threads) {
  constexpr double idle = 0.12;  // Average idle share at a piece's end.
  const auto rows = static_cast<double>(std::min(grid.rows, p.m));
  const auto columns = static_cast<double>(std::min(grid.columns, p.n));
  const double passes = grid.columns > costs.most_columns
                            ? static_cast<double>(divide_up(grid.rows, costs.most_rows))
                            : 1.0;
  const double piece =
      static_cast<double>(p.k) *
          (rows * columns + costs.rearranged * (way_of_a(p) * rows + passes * columns)) +
      costs.started;
  const auto rounds = static_cast<double>(divide_up(grid.count(), threads));
  return piece * (rounds + (threads > 1 ? idle : 0.0));
}

}  // namespace

Grid cheapest_grid(const MatmulParams& p, const PieceCosts& costs, int threads) {
  const std::int64_t most = std::int64_t{8} * threads;
  Grid best = grid_of(p, costs, 1, 1);
  double least = cost(p, costs, best, threads);
  for (std::int64_t down = 1; threads > 1 && down <= most; ++down) {
    for (std::int64_t across = 1; down * across <= most; ++across) {
      const Grid grid = grid_of(p, costs, down, across);
      if (grid.down != down || grid.across != across) {
        continue;
      }
      if (const double taken = cost(p, costs, grid, threads); taken < least) {
        best = grid;
        least = taken;
      }
    }
  }
  return best;
}

bool is_done_without_terms(const MatmulParams& p) {
  if (p.m == 0 || p.n == 0) {
    return true;
  }
  if (p.k == 0 && !p.accumulate) {
    for (std::int64_t row = 0; row < p.m; ++row) {
      std::fill_n(static_cast<float*>(p.c) + row * p.ldc, p.n, 0.0F);
    }
  }
  return p.k == 0;
}

}  // namespace train::kernels::cpu
