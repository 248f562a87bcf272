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

/// C is cut into panels of whole rows or whole columns, along its longer side. Number and borders
/// depend on the shape alone and each panel is one single-threaded call of the library: so the bits
/// cannot depend on the number of threads, whatever the library does inside.
struct Panels {
  bool by_rows = true;
  std::int64_t count = 1;
  std::int64_t extent = 0;  // Rows or columns of a panel; the last one may have fewer.
};

Panels cut(const MatmulParams& p) {
  constexpr std::int64_t max_panels = 16;
  constexpr std::int64_t min_extent = 64;
  constexpr std::int64_t min_multiply_adds = std::int64_t{1} << 23;  // Worth waking a thread for.
  constexpr std::int64_t align = 16;                                 // A whole vector.
  const bool by_rows = p.m >= p.n;
  const std::int64_t side = by_rows ? p.m : p.n;
  const std::int64_t wanted = std::clamp<std::int64_t>(
      std::min(side / min_extent, p.m * p.n * p.k / min_multiply_adds), 1, max_panels);
  // A power of two shares out evenly more often.
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(wanted)));
  const std::int64_t extent = divide_up(divide_up(side, power), align) * align;
  return {.by_rows = by_rows, .count = divide_up(side, extent), .extent = extent};
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
  const std::int64_t first = index * panels.extent;
  const std::int64_t extent = std::min(panels.extent, (panels.by_rows ? p.m : p.n) - first);
  const auto* a = static_cast<const float*>(p.a);
  const auto* b = static_cast<const float*>(p.b);
  auto* c = static_cast<float*>(p.c);
  if (panels.by_rows) {
    a += p.transpose_a ? first : first * p.lda;
    c += first * p.ldc;
  } else {
    b += p.transpose_b ? first * p.ldb : first;
    c += first;
  }
  const LibraryOnOneThread one;
  return dnnl_sgemm(p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N',
                    panels.by_rows ? extent : p.m, panels.by_rows ? p.n : extent, p.k, 1.0F, a,
                    p.lda, b, p.ldb, p.accumulate ? 1.0F : 0.0F, c, p.ldc);
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
  parallel_for(threads, panels.count, [&](std::int64_t i, int) {
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
  check_params(params);
  stream.enqueue([params, threads = stream.threads()] { gemm(threads, params); });
}

}  // namespace train::kernels::cpu
