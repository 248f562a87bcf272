#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/device/buffer.hpp"
#include "kernels/gemm/matmul.hpp"

namespace train::kernels {
namespace {

using Clock = std::chrono::steady_clock;

/// Time of so many products of `size` x `size`, submitted at once.
double seconds_of(const KernelTable& table, Stream& stream, MatmulParams product, int times) {
  const auto begin = Clock::now();
  for (int i = 0; i < times; ++i) {
    table.matmul(stream, product);
  }
  stream.synchronize();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Random values of either sign in [0.5, 1): all-zero operands take less power, which makes a
/// device run faster.
Buffer random_operand(const Device& device, std::int64_t count, DType dtype) {
  const std::size_t size_bytes = static_cast<std::size_t>(count) * size_of(dtype);
  constexpr std::size_t block_bytes = std::size_t{1} << 20U;
  std::vector<std::uint32_t> block(std::min(block_bytes, size_bytes) / sizeof(std::uint32_t) + 1);
  std::uint64_t state = 12345;
  const std::uint32_t random_bits = dtype == DType::f32 ? 0x807FFFFFU : 0x807F807FU;
  const std::uint32_t exponents = dtype == DType::f32 ? 0x3F000000U : 0x3F003F00U;
  for (std::uint32_t& word : block) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    word = (static_cast<std::uint32_t>(state >> 32U) & random_bits) | exponents;
  }
  Buffer operand(size_bytes, "operand of the measured product", device.memory);
  auto* data = operand.as<std::byte>();
  for (std::size_t at = 0; at < size_bytes; at += block_bytes) {
    device.copy(data + at, block.data(), std::min(block_bytes, size_bytes - at));
  }
  return operand;
}

struct Measured {
  double flops = 0.0;
  double seconds = 0.0;  ///< Time of a batch.
};

/// Best of the batches that fit in `seconds`; at least one.
Measured measure_at(const KernelTable& table, Stream& stream, DType dtype, std::int64_t size,
                    double seconds) {
  const Buffer a = random_operand(*table.device, size * size, dtype);
  const Buffer b = random_operand(*table.device, size * size, dtype);
  const Buffer c(a.size_bytes(), "the measured product", table.device->memory);
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
  seconds_of(table, stream, product, 1);  // Loads the library and chooses an algorithm.
  Measured best{.seconds = seconds_of(table, stream, product, together)};
  const auto begin = Clock::now();
  while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds) {
    best.seconds = std::min(best.seconds, seconds_of(table, stream, product, together));
  }
  const auto edge = static_cast<double>(size);
  best.flops = 2.0 * edge * edge * edge * together / best.seconds;
  return best;
}

}  // namespace

double measure_gemm_flops(const KernelTable& table, DType dtype, double seconds) {
  constexpr std::int64_t largest = 8192;
  const auto stream = table.device->make_stream("peak", 1);
  double best = 0.0;
  for (std::int64_t size = 64; size <= largest; size *= 2) {
    const Measured measured =
        measure_at(table, *stream, dtype, size, size == largest ? seconds : 0.0);
    best = std::max(best, measured.flops);
    if (measured.seconds * 2 > seconds) {
      break;  // This size is enough to saturate a slow device.
    }
  }
  return best;
}

}  // namespace train::kernels
