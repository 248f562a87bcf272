#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <future>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/process/joined_thread.hpp"
#include "kernels/all_params.hpp"
#include "kernels/backend.hpp"
#include "kernels/cpu_support.hpp"
#include "kernels/gemm/bf16_gemm.hpp"

namespace train::kernels {
namespace cpu {

#define TRAIN_ENQUEUE(name, Params)                                                  \
  void name(Stream& stream, const Params& params) {                                  \
    check_cpu_params(params);                                                        \
    stream.enqueue([params, threads = stream.threads()] { name(params, threads); }); \
  }
TRAIN_KERNELS(TRAIN_ENQUEUE)
#undef TRAIN_ENQUEUE

}  // namespace cpu
namespace {

struct ProductShape {
  std::int64_t m, n, k;
  [[nodiscard]] double flops() const { return 2.0 * static_cast<double>(m * n * k); }
};

/// Small to large: the fastest depends on a machine's caches. The last is a model layer, 2048
/// tokens into 3072 of 768.
constexpr std::array<ProductShape, 3> kShapes = {
    {{512, 512, 512}, {1024, 1024, 1024}, {2048, 3072, 768}}};

/// Best of repeated products of several shapes, in turn, on the calling thread's team: the machine
/// may be shared, so one shape at one time says little. A shape that would take longer than the
/// rest of `seconds` is skipped.
double best_gemm_flops(cpu::Product product, int threads, double seconds) {
  const std::vector<float> a(std::size_t{2048} * 1024, 0.5F);
  const std::vector<float> b(std::size_t{1024} * 3072, 0.25F);
  std::vector<float> c(std::size_t{2048} * 3072);
  const auto multiply = [&](const ProductShape& shape) {
    product({.a = a.data(),
             .b = b.data(),
             .c = c.data(),
             .m = shape.m,
             .n = shape.n,
             .k = shape.k,
             .lda = shape.k,
             .ldb = shape.n,
             .ldc = shape.n},
            threads);
  };
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point from) {
    return std::chrono::duration<double>(Clock::now() - from).count();
  };
  multiply(kShapes.front());  // Starts the threads.
  const auto start = Clock::now();
  double best = 0.0;
  bool multiplied = true;
  while (multiplied) {
    multiplied = false;
    for (const ProductShape& shape : kShapes) {
      if (best > 0.0 && since(start) + shape.flops() / best > seconds) {
        continue;
      }
      const auto before = Clock::now();
      multiply(shape);
      best = std::max(best, shape.flops() / since(before));
      multiplied = true;
    }
  }
  return best;
}

}  // namespace

std::string cpu_absence() {
  if ((hwy::SupportedTargets() & (HWY_AVX2 | HWY_AVX3)) != 0) {
    return {};
  }
  return "this processor has no AVX2 and FMA instructions, without which nothing is computed: use "
         "an x86-64 processor of 2015 or later";
}

const KernelTable& cpu_backend() {
  // A kernel that was chosen has asked the processor, which under a hypervisor takes as long as a
  // small kernel.
  TRAIN_CHECK(hwy::GetChosenTarget().IsInitialized() || cpu_absence().empty(), "{}", cpu_absence());
  static const KernelTable table{.name = "cpu",
                                 .device = &cpu_device(),
                                 .kernel_set = kernel_set,
#define TRAIN_KERNEL_OF_CPU(name, Params) .name = cpu::name,
                                 TRAIN_KERNELS(TRAIN_KERNEL_OF_CPU)
#undef TRAIN_KERNEL_OF_CPU
  };
  return table;
}

std::string kernel_set() { return "cpu-fma-2"; }

double measure_gemm_flops(int threads, double seconds, DType operands) {
  cpu::Product product = cpu::matmul;
  if (operands == DType::bf16) {
    product = cpu::matmul_bf16;
  }
  // Runs on its own thread, whose team ends with it.
  std::packaged_task<double()> task([=] { return best_gemm_flops(product, threads, seconds); });
  auto flops = task.get_future();
  JoinedThread(std::move(task)).join();
  return flops.get();
}

}  // namespace train::kernels
