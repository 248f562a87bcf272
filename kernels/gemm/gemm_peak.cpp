#include <algorithm>
#include <chrono>

#include "kernels/backend.hpp"
#include "kernels/device/buffer.hpp"

namespace train::kernels {
namespace {

using Clock = std::chrono::steady_clock;

/// Of so many products of `size` x `size`, handed over at once.
double seconds_of(const KernelTable& table, Stream& stream, MatmulParams product, int times) {
  const auto begin = Clock::now();
  for (int i = 0; i < times; ++i) {
    table.matmul(stream, product);
  }
  stream.synchronize();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double flops_at(const KernelTable& table, Stream& stream, DType dtype, std::int64_t size,
                double seconds) {
  const std::size_t bytes = static_cast<std::size_t>(size * size) * size_of(dtype);
  const MemoryKind kind = table.device->memory;
  const Buffer a(bytes, "left of the measured product", kind);
  const Buffer b(bytes, "right of the measured product", kind);
  const Buffer c(bytes, "the measured product", kind);
  const MatmulParams product{.a = a.data(),
                             .b = b.data(),
                             .c = c.data(),
                             .m = size,
                             .n = size,
                             .k = size,
                             .lda = size,
                             .ldb = size,
                             .ldc = size,
                             .transpose_b = true,
                             .dtype = dtype,
                             .output_dtype = dtype};
  constexpr int together = 4;
  seconds_of(table, stream, product, 1);  // Chooses an algorithm.
  double best = seconds_of(table, stream, product, together);
  const auto begin = Clock::now();
  while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds) {
    best = std::min(best, seconds_of(table, stream, product, together));
  }
  const auto edge = static_cast<double>(size);
  return 2.0 * edge * edge * edge * together / best;
}

}  // namespace

double measure_gemm_flops(const KernelTable& table, DType dtype, double seconds) {
  constexpr std::int64_t largest = 8192;
  const auto stream = table.device->make_stream("peak", 1);
  double best = 0.0;
  for (std::int64_t size = 64; size <= largest; size *= 2) {
    const auto begin = Clock::now();
    best = std::max(best, flops_at(table, *stream, dtype, size, size == largest ? seconds : 0.0));
    if (std::chrono::duration<double>(Clock::now() - begin).count() > seconds) {
      break;  // A slow device is busy enough with this one.
    }
  }
  return best;
}

}  // namespace train::kernels
