#include <dnnl.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "kernels/cpu_support.hpp"
#include "kernels/device/device_error.hpp"
#include "kernels/gemm_cpu.hpp"
#include "kernels/matmul.hpp"

namespace train::kernels::cpu {
namespace {

/// C is cut into a grid of panels. Their borders depend on the shape alone and each panel is one
/// single-threaded call of the library: so the bits cannot depend on the number of threads,
/// whatever the library does inside.
struct Panels {
  std::int64_t down = 1, across = 1;
  std::int64_t rows = 0, columns = 0;  // Of a panel; the last ones may have fewer.
  [[nodiscard]] std::int64_t count() const { return down * across; }
};

/// Elements that the library rearranges for a grid, in units of what a plain operand costs: each
/// call does it anew, A for every column of panels and B for every row of them.
std::int64_t rearranged(const MatmulParams& p, std::int64_t down, std::int64_t across) {
  constexpr std::int64_t transposed = 3;  // Measured, on average: its elements lie apart.
  return across * p.m * p.k * (p.transpose_a ? transposed : 1) +
         down * p.k * p.n * (p.transpose_b ? transposed : 1);
}

/// Number of panels down and across.
struct Grid {
  std::int64_t down = 1, across = 1;
};

/// Of a product whose operands stay in the caches: slices of the longer side, thin ones too, for
/// what a thread waits for the others' last slice is what counts.
Grid thin_slices(const MatmulParams& p, std::int64_t wanted) {
  constexpr std::int64_t min_extent = 64;
  const std::int64_t side = std::max(p.m, p.n);
  const auto limit =
      static_cast<std::uint64_t>(std::clamp<std::int64_t>(side / min_extent, 1, wanted));
  const auto slices = static_cast<std::int64_t>(std::bit_floor(limit));
  return p.m >= p.n ? Grid{slices, 1} : Grid{1, slices};
}

/// As many panels as are wanted and not too thin, of the shape that rearranges least.
Grid cheapest_grid(const MatmulParams& p, std::int64_t wanted) {
  constexpr std::int64_t min_rows = 128;  // With fewer the library takes a slower way.
  constexpr std::int64_t min_columns = 192;
  Grid best;
  for (std::int64_t i = 1; i <= wanted && (i == 1 || p.m >= i * min_rows); i *= 2) {
    for (std::int64_t j = 1; i * j <= wanted && (j == 1 || p.n >= j * min_columns); j *= 2) {
      const std::int64_t most = best.down * best.across;
      if (i * j > most ||
          (i * j == most && rearranged(p, i, j) < rearranged(p, best.down, best.across))) {
        best = {i, j};
      }
    }
  }
  return best;
}

/// Powers of two share out evenly more often.
Panels cut(const MatmulParams& p) {
  constexpr std::int64_t max_panels = 16;
  constexpr std::int64_t min_multiply_adds = std::int64_t{1} << 23;  // Worth waking a thread for.
  constexpr std::int64_t small_multiply_adds = std::int64_t{1} << 27;
  constexpr std::int64_t align = 16;  // A whole vector.
  const std::int64_t multiply_adds = p.m * p.n * p.k;
  const std::int64_t wanted =
      std::clamp<std::int64_t>(multiply_adds / min_multiply_adds, 1, max_panels);
  const Grid grid =
      multiply_adds < small_multiply_adds ? thin_slices(p, wanted) : cheapest_grid(p, wanted);
  const std::int64_t rows = divide_up(divide_up(p.m, grid.down), align) * align;
  const std::int64_t columns = divide_up(divide_up(p.n, grid.across), align) * align;
  return {.down = divide_up(p.m, rows),
          .across = divide_up(p.n, columns),
          .rows = rows,
          .columns = columns};
}

/// The library would start an OpenMP team of its own; the limit is the calling thread's alone.
class LibraryOnOneThread {
 public:
  LibraryOnOneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~LibraryOnOneThread() { omp_set_num_threads(before_); }
  LibraryOnOneThread(const LibraryOnOneThread&) = delete;
  LibraryOnOneThread& operator=(const LibraryOnOneThread&) = delete;

 private:
  int before_;
};

dnnl_status_t multiply_panel(const MatmulParams& p, const Panels& panels, std::int64_t index) {
  const std::int64_t row = index / panels.across * panels.rows;
  const std::int64_t column = index % panels.across * panels.columns;
  const LibraryOnOneThread one;
  return dnnl_sgemm(
      p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', std::min(panels.rows, p.m - row),
      std::min(panels.columns, p.n - column), p.k, 1.0F,
      static_cast<const float*>(p.a) + (p.transpose_a ? row : row * p.lda), p.lda,
      static_cast<const float*>(p.b) + (p.transpose_b ? column * p.ldb : column), p.ldb,
      p.accumulate ? 1.0F : 0.0F, static_cast<float*>(p.c) + row * p.ldc + column, p.ldc);
}

}  // namespace

void gemm(int threads, const MatmulParams& p) {
  if (p.m == 0 || p.n == 0 || (p.k == 0 && p.accumulate)) {
    return;
  }
  if (p.k == 0) {
    for (std::int64_t row = 0; row < p.m; ++row) {
      std::fill_n(static_cast<float*>(p.c) + row * p.ldc, p.n, 0.0F);
    }
    return;
  }
  const Panels panels = cut(p);
  std::atomic<int> failed = dnnl_success;
  parallel_for(threads, panels.count(), [&](std::int64_t i, int) {
    if (const dnnl_status_t status = multiply_panel(p, panels, i); status != dnnl_success) {
      failed = status;
    }
  });
  if (failed != dnnl_success) {
    throw DeviceError(
        fmt::format("matmul: dnnl_sgemm m={} n={} k={}: status {}", p.m, p.n, p.k, failed.load()));
  }
}

void matmul(Stream& stream, const MatmulParams& params) {
  check_cpu_params(params);
  stream.enqueue([params, threads = stream.threads()] { gemm(threads, params); });
}

}  // namespace train::kernels::cpu
