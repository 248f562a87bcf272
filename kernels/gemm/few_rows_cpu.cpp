#include <type_traits>

#include "kernels/cpu_support.hpp"
#include "kernels/gemm/gemm_depth.hpp"
#include "kernels/gemm/matmul.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/few_rows_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/gemm/gemm_tile-inl.hpp"

#ifndef TRAIN_KERNELS_FEW_ROWS_ONCE
#define TRAIN_KERNELS_FEW_ROWS_ONCE
namespace train::kernels::cpu {

/// Columns [column, column + columns) of C = op(A) op(B), for one block of the inner dimension.
struct FewRows {
  const MatmulParams& p;
  std::int64_t column, columns;
  std::int64_t first, depth;

  [[nodiscard]] bool add() const { return p.accumulate || first > 0; }
  [[nodiscard]] const float* a(std::int64_t row) const {
    return static_cast<const float*>(p.a) + row * p.lda + first;
  }
  [[nodiscard]] float* c(std::int64_t row, std::int64_t at) const {
    return static_cast<float*>(p.c) + row * p.ldc + at;
  }
};

}  // namespace train::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Returns sum, or C + sum.
template <class D>
HWY_INLINE void store_sum(D d, hn::Vec<D> sum, float* to, bool add) {
  hn::StoreU(add ? hn::Add(hn::LoadU(d, to), sum) : sum, d, to);
}

/// Computes one element: the remainder after the vectors.
HWY_INLINE void multiply_element(const FewRows& block, std::int64_t row, std::int64_t column) {
  const hn::CappedTag<float, 1> d;
  const MatmulParams& p = block.p;
  const auto* b = static_cast<const float*>(p.b);
  const std::int64_t step = p.transpose_b ? 1 : p.ldb;
  b += p.transpose_b ? column * p.ldb + block.first : block.first * p.ldb + column;
  const float* a = block.a(row);
  auto sum = hn::Zero(d);
  for (std::int64_t i = 0; i < block.depth; ++i) {
    sum = hn::MulAdd(hn::Set(d, a[i]), hn::Set(d, b[i * step]), sum);
  }
  store_sum(d, sum, block.c(row, column), block.add());
}

/// Computes a vector of columns, rows [row, row + rows), for B [n, k]: four elements of every
/// column are transposed in registers.
template <int rows>
HWY_INLINE void multiply_vector_across(const FewRows& block, std::int64_t row,
                                       std::int64_t column) {
  const Floats d;
  const MatmulParams& p = block.p;
  const float* b = static_cast<const float*>(p.b) + column * p.ldb + block.first;
  FloatVec sum[rows];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
    sum[r] = hn::Zero(d);
  }
  std::int64_t i = 0;
  // Prefetches the next vector's columns, a line of each column at a time.
  constexpr std::int64_t line = 16;
  for (; i + kBlock <= block.depth; i += kBlock) {
    if (i % line == 0) {
      const float* next = b + kLanes * p.ldb + i;
      for (std::int64_t j = 0; j < kLanes; ++j) {
        hwy::Prefetch(next + j * p.ldb);
      }
    }
    FloatVec right[kBlock];
    load_four_across(d, b + i, p.ldb, right);
#pragma GCC unroll 4
    for (int step = 0; step < kBlock; ++step) {
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        sum[r] = hn::MulAdd(hn::Set(d, block.a(row + r)[i + step]), right[step], sum[r]);
      }
    }
  }
  for (; i < block.depth; ++i) {
    HWY_ALIGN float elements[kLanes];
    for (std::int64_t j = 0; j < kLanes; ++j) {
      elements[j] = b[j * p.ldb + i];
    }
    for (int r = 0; r < rows; ++r) {
      sum[r] = hn::MulAdd(hn::Set(d, block.a(row + r)[i]), hn::Load(d, elements), sum[r]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
    store_sum(d, sum[r], block.c(row + r, column), block.add());
  }
}

/// Computes `vectors` vectors of columns for B [k, n], whose rows are read as stored.
template <int rows, int vectors>
HWY_INLINE void multiply_vectors_along(const FewRows& block, std::int64_t row,
                                       std::int64_t column) {
  constexpr std::int64_t ahead = 16;  // Prefetch distance for rows of B, which hardware prefetchers
                                      // do not follow.
  const Floats d;
  const MatmulParams& p = block.p;
  const float* b = static_cast<const float*>(p.b) + block.first * p.ldb + column;
  FloatVec sum[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      sum[r][v] = hn::Zero(d);
    }
  }
  for (std::int64_t i = 0; i < block.depth; ++i, b += p.ldb) {
    FloatVec right[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      hwy::Prefetch(b + ahead * p.ldb + v * kLanes);
      right[v] = hn::LoadU(d, b + v * kLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const FloatVec left = hn::Set(d, block.a(row + r)[i]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        sum[r][v] = hn::MulAdd(left, right[v], sum[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      store_sum(d, sum[r][v], block.c(row + r, column + v * kLanes), block.add());
    }
  }
}

/// Calls body(row, rows) for groups of at most `most` rows, a power of two.
template <int most, class Body>
HWY_INLINE void each_row_group(std::int64_t rows, const Body& body) {
  std::int64_t row = 0;
  for (; row + most <= rows; row += most) {
    body(row, std::integral_constant<int, most>());
  }
  if constexpr (most > 1) {
    if (row < rows) {
      each_row_group<most / 2>(rows - row,
                               [&](std::int64_t at, auto count) { body(row + at, count); });
    }
  }
}

void multiply_few_rows(const FewRows& block) {
  constexpr int most_rows = 4;
  constexpr int most_vectors = 2;
  const std::int64_t rows = block.p.m;
  const std::int64_t end = block.column + block.columns;
  std::int64_t column = block.column;
  if (!block.p.transpose_b) {
    for (; column + most_vectors * kLanes <= end; column += most_vectors * kLanes) {
      each_row_group<most_rows>(rows, [&](std::int64_t row, auto count) {
        multiply_vectors_along<count, most_vectors>(block, row, column);
      });
    }
  }
  for (; column + kLanes <= end; column += kLanes) {
    each_row_group<most_rows>(rows, [&](std::int64_t row, auto count) {
      if (block.p.transpose_b) {
        multiply_vector_across<count>(block, row, column);
      } else {
        multiply_vectors_along<count, 1>(block, row, column);
      }
    });
  }
  for (; column < end; ++column) {
    for (std::int64_t row = 0; row < rows; ++row) {
      multiply_element(block, row, column);
    }
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(multiply_few_rows);

bool has_few_rows(const MatmulParams& p) {
  constexpr std::int64_t most = 8;  // With more rows, packing B once is cheaper than this way of
                                    // reading it.
  return p.m <= most && !p.transpose_a;
}

void matmul_few_rows_piece(const MatmulParams& p, const Piece& piece) {
  const std::int64_t depth = gemm_depth(p.k);
  const auto multiply = HWY_DYNAMIC_DISPATCH(multiply_few_rows);
  for (std::int64_t first = 0; first < p.k; first += depth) {
    multiply({.p = p,
              .column = piece.column,
              .columns = piece.columns,
              .first = first,
              .depth = std::min(depth, p.k - first)});
  }
}

void matmul_few_rows(const MatmulParams& p, int threads) {
  constexpr std::int64_t whole = 48;  // Columns: whole vectors of every instruction set.
  const std::int64_t pieces = std::int64_t{8} * threads;
  // A small product stays on its thread: another takes longer to come than the product lasts.
  const std::int64_t least = kElementBlock / std::max<std::int64_t>(p.k, 1);
  const std::int64_t columns = divide_up(std::max(divide_up(p.n, pieces), least), whole) * whole;
  parallel_blocks(threads, p.n, columns, [&](std::int64_t begin, std::int64_t end) {
    matmul_few_rows_piece(p, {.row = 0, .rows = p.m, .column = begin, .columns = end - begin});
  });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
