#include <hwy/highway.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <future>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/cpu_support.hpp"
#include "kernels/gemm/gemm_cpu.hpp"

namespace train::kernels {
namespace {

/// The best instruction set that was compiled and that this machine has.
std::string instruction_set() {
  const std::int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
  const std::int64_t best = usable & -usable;  // Better sets have lower bits.
  std::string name = hwy::TargetName(best);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name == "avx3" ? "avx512" : name;
}

/// Best of repeated products on the calling thread's team.
double best_gemm_flops(int threads, double seconds) {
  constexpr std::int64_t n = 1024;
  constexpr double work = 2.0 * n * n * n;
  const std::vector<float> a(n * n, 0.5F);
  const std::vector<float> b(n * n, 0.25F);
  std::vector<float> c(n * n);
  const MatmulParams params{.a = a.data(),
                            .b = b.data(),
                            .c = c.data(),
                            .m = n,
                            .n = n,
                            .k = n,
                            .lda = n,
                            .ldb = n,
                            .ldc = n};
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point from) {
    return std::chrono::duration<double>(Clock::now() - from).count();
  };
  cpu::gemm(threads, params);  // Starts the threads.
  const auto start = Clock::now();
  double best_seconds = 0.0;
  do {
    const auto before = Clock::now();
    cpu::gemm(threads, params);
    const double taken = since(before);
    best_seconds = best_seconds == 0.0 ? taken : std::min(best_seconds, taken);
  } while (since(start) < seconds);
  return work / best_seconds;
}

}  // namespace

const KernelTable& cpu_backend() {
  static const KernelTable table{.name = "cpu",
                                 .device = &cpu_device(),
                                 .kernel_set = kernel_set,
#define TRAIN_KERNEL_OF_CPU(name, Params) .name = cpu::name,
                                 TRAIN_KERNELS(TRAIN_KERNEL_OF_CPU)
#undef TRAIN_KERNEL_OF_CPU
  };
  return table;
}

std::string kernel_set() { return "cpu-" + instruction_set(); }

double measure_gemm_flops(int threads, double seconds) {
  // On a thread of its own, whose team ends with it.
  auto flops = std::async(std::launch::async, best_gemm_flops, threads, seconds);
  return flops.get();
}

}  // namespace train::kernels
