#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "bench/kernels/fma_limit.hpp"
#include "kernels/backend.hpp"

// Parts shared by the rows of bench_kernels.
namespace train::bench {

/// Allocator of whole cache lines, as the engine's buffers have them: where a vector begins must
/// not decide how fast the kernels are.
template <class T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};

  LineAllocator() = default;
  template <class Other>
  explicit LineAllocator(const LineAllocator<Other>& /*other*/) {}
  [[nodiscard]] T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), kLine));
  }
  void deallocate(T* memory, std::size_t /*count*/) { ::operator delete(memory, kLine); }
  bool operator==(const LineAllocator&) const = default;
};

using Floats = std::vector<float, LineAllocator<float>>;
using Work = std::function<void(kernels::Stream&)>;

inline Floats values(std::int64_t count) {
  Floats result(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = static_cast<float>(i * 2654435761U % 1000) * 1e-3F - 0.5F;
  }
  return result;
}

/// Runs CPU kernels and prints a table line for each.
class CpuKernelBench {
 public:
  explicit CpuKernelBench(int threads)
      : threads_(threads),
        stream_(kernels::make_thread_stream("bench", threads)),
        peak_(kernels::measure_gemm_flops(threads, 1.0)) {
    fmt::print(
        "{}, {} threads, peak {:.0f} GFLOP/s (best of repeated 1024^3 products); the limit "
        "of the FMA units: {:.0f}\n\n",
        kernels::kernel_set(), threads, peak_ * 1e-9, fma_limit(threads, 0.2) * 1e-9);
    fmt::print("{:<44} {:>10} {:>10} {:>8} {:>8}\n", "kernel", "time/us", "GFLOP/s", "% peak",
               "GB/s");
  }

  [[nodiscard]] int threads() const { return threads_; }
  [[nodiscard]] const kernels::KernelTable& kernels() const { return kernels::cpu_backend(); }

  /// Median over batches of runs; a batch is queued at once and long enough to hide the stream's
  /// wake-up. `flop` and `bytes`: work of one run, 0 if the rate is meaningless. Returns the
  /// median, in seconds.
  double row(const std::string& name, double flop, double bytes, const Work& work) {
    constexpr double batch_seconds = 5e-3;
    constexpr int batches = 40;
    constexpr double max_seconds = 0.6;
    batch(work, 1);  // Warm-up: generates code, touches memory.
    const int runs = static_cast<int>(std::clamp(batch_seconds / batch(work, 1), 1.0, 1000.0));
    std::vector<double> seconds;
    double total = 0.0;
    while (std::ssize(seconds) < 3 || (std::ssize(seconds) < batches && total < max_seconds)) {
      total += seconds.emplace_back(batch(work, runs));
    }
    std::sort(seconds.begin(), seconds.end());
    const double median = seconds[seconds.size() / 2] / runs;
    const auto rate = [](double amount, double scale) {
      return amount == 0.0 ? std::string("-") : fmt::format("{:.1f}", amount * scale);
    };
    fmt::print("{:<44} {:>10.1f} {:>10} {:>8} {:>8}\n", name, median * 1e6,
               rate(flop / median, 1e-9), rate(flop / median / peak_, 100.0),
               rate(bytes / median, 1e-9));
    return median;
  }

  /// Ratio of the second work's time to the first's: median over turns that run both one after the
  /// other, with the range.
  void compare(const std::string& name, double target, const std::pair<Work, Work>& works) {
    constexpr int turns = 15;
    std::vector<double> ratios;
    for (int turn = -1; turn < turns; ++turn) {
      const double first = batch(works.first, 1);
      const double second = batch(works.second, 1);
      if (turn >= 0) {  // The first turn is the warm-up.
        ratios.push_back(second / first);
      }
    }
    std::sort(ratios.begin(), ratios.end());
    fmt::print("{:<60} {:>6.2f} ({:.2f} to {:.2f}), wanted {:.2g}\n", name, ratios[turns / 2],
               ratios.front(), ratios.back(), target);
  }

 private:
  double batch(const Work& work, int runs) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < runs; ++i) {
      work(*stream_);
    }
    stream_->synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  int threads_;
  std::unique_ptr<kernels::Stream> stream_;
  double peak_;
};

}  // namespace train::bench
