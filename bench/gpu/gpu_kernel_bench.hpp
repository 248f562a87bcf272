#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/gpu/gpu_site.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/device/buffer.hpp"

namespace train::bench {

inline constexpr std::size_t kHalf = sizeof(std::uint16_t);

/// Device memory for one kernel's arguments, and its timing.
class KernelBench {
 public:
  explicit KernelBench(const GpuSite& site)
      : site_(site), stream_(site.kernels().device->make_stream("bench", 1)) {}

  [[nodiscard]] const kernels::KernelTable& kernels() const { return site_.kernels(); }
  [[nodiscard]] bool tiny() const { return site_.tiny(); }

  /// Random values of either sign in [0.5, 1), bf16 or fp32: all-zero operands take less power,
  /// which makes a device run faster.
  std::byte* bf16(std::int64_t count) {
    return filled(static_cast<std::size_t>(count) * kHalf, 0x807F807FU, 0x3F003F00U);
  }
  float* fp32(std::int64_t count) {
    return reinterpret_cast<float*>(
        filled(static_cast<std::size_t>(count) * sizeof(float), 0x807FFFFFU, 0x3F000000U));
  }
  /// Small positive fp32, for moments and statistics.
  float* positive(std::int64_t count) {
    return reinterpret_cast<float*>(
        filled(static_cast<std::size_t>(count) * sizeof(float), 0x007FFFFFU, 0x3F000000U));
  }
  /// Ids with about the frequencies of a text's tokens: the k-th with 1 / k.
  struct Ids {
    std::int32_t* data = nullptr;
    std::int64_t distinct = 0;
  };
  Ids ids(std::int64_t count, std::int64_t vocabulary) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    for (std::int32_t& value : values) {
      const double uniform = static_cast<double>(random()) / 4294967296.0;
      value =
          static_cast<std::int32_t>(std::pow(static_cast<double>(vocabulary + 1), uniform) - 1.0);
    }
    Ids ids{.data = empty<std::int32_t>(values.size() * sizeof(std::int32_t))};
    kernels().device->copy(ids.data, values.data(), values.size() * sizeof(std::int32_t));
    std::sort(values.begin(), values.end());
    ids.distinct = std::unique(values.begin(), values.end()) - values.begin();
    return ids;
  }
  template <class T = std::byte>
  T* empty(std::size_t size_bytes) {
    buffers_.emplace_back(size_bytes, "bench", kernels().device->memory);
    return buffers_.back().template as<T>();
  }
  /// Frees the memory requested so far.
  void forget() { buffers_.clear(); }

  /// Measures products and copies as limits for the following rows: data sheets promise more.
  void measure_limits() {
    limits_.bf16_flops =
        measure_gemm_flops(kernels(), train::kernels::DType::bf16, tiny() ? 0.0 : 0.5);
    const std::int64_t size_bytes = tiny() ? 1 << 16 : std::int64_t{1} << 30U;
    const std::byte* from = bf16(size_bytes / 2);
    auto* to = empty<std::byte>(static_cast<std::size_t>(size_bytes));
    const auto copy = [&](kernels::Stream& stream) {
      kernels().copy(stream, {.out = to, .in = from, .size_bytes = size_bytes});
    };
    batch(copy, 1);
    limits_.bytes_per_second = 2.0 * static_cast<double>(size_bytes) * 10 / batch(copy, 10);
    forget();
    const DeviceLimits stated = site_.limits();
    print_result("measured limits of products and copies",
                 fmt::format("{:.1f} TFLOP/s, {:.0f} GB/s (stated {:.0f}, {:.0f})",
                             limits_.bf16_flops * 1e-12, limits_.bytes_per_second * 1e-9,
                             stated.bf16_flops * 1e-12, stated.bytes_per_second * 1e-9));
  }

  /// Prints and returns the median over batches, in seconds; batches are queued at once and long
  /// enough to hide their start. `flop` and `bytes`: of one call; 0 if it is not limited by that.
  double row(const std::string& name, double flop, double bytes,
             const std::function<void(kernels::Stream&)>& work) {
    batch(work, 1);
    const double one = batch(work, 1);
    const int runs = tiny() ? 1 : static_cast<int>(std::clamp(0.02 / one, 2.0, 400.0));
    Values seconds;
    for (int i = 0; i < (tiny() ? 1 : 5); ++i) {
      seconds.add(batch(work, runs) / runs);
    }
    const DeviceLimits& limits = limits_;
    std::string text = time_text(seconds.median());
    if (flop > 0.0) {
      text += rate_text(flop / seconds.median(), 1e-12, "TFLOP/s", limits.bf16_flops);
    }
    if (bytes > 0.0) {
      text += rate_text(bytes / seconds.median(), 1e-9, "GB/s", limits.bytes_per_second);
    }
    print_result(name, text);
    return seconds.median();
  }
  /// Limits found by measure_limits().
  [[nodiscard]] const DeviceLimits& limits() const { return limits_; }

 private:
  using Clock = std::chrono::steady_clock;

  double batch(const std::function<void(kernels::Stream&)>& work, int runs) {
    const auto begin = Clock::now();
    for (int i = 0; i < runs; ++i) {
      work(*stream_);
    }
    stream_->synchronize();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  std::uint32_t random() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::uint32_t>(state_ >> 32U);
  }

  std::byte* filled(std::size_t size_bytes, std::uint32_t mask, std::uint32_t bits) {
    constexpr std::size_t block_bytes = std::size_t{1} << 22U;
    std::vector<std::uint32_t> block(block_bytes / sizeof(std::uint32_t));
    for (std::uint32_t& word : block) {
      word = (random() & mask) | bits;
    }
    auto* data = empty<std::byte>(size_bytes);
    for (std::size_t at = 0; at < size_bytes; at += block_bytes) {
      kernels().device->copy(data + at, block.data(), std::min(block_bytes, size_bytes - at));
    }
    return data;
  }

  const GpuSite& site_;
  DeviceLimits limits_;
  std::unique_ptr<kernels::Stream> stream_;
  std::vector<kernels::Buffer> buffers_;
  std::uint64_t state_ = 12345;
};

/// Prints both passes of the engine, on the output of a fused projection.
AttentionTimes measure_attention(KernelBench& bench, const AttentionCase& c);

/// A layer of gated experts: `slots` of `experts`, each `width` -> `hidden` -> `width`.
struct ExpertsCase {
  std::int64_t rows, experts, slots, width, hidden;

  [[nodiscard]] std::string shape() const {
    return fmt::format("{} rows, {} of {}", rows, slots, experts);
  }
};
/// Prints its kernels.
void measure_experts(KernelBench& bench, const ExpertsCase& c);

}  // namespace train::bench
