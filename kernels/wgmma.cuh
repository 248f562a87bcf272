#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/mma.cuh"

// Products of whole warpgroups (four consecutive warps, the first a multiple of four) on tensor
// cores of compute capability 9.0, each behind a function. The emulated device has its own file of
// this name, so this one runs only on a device; layouts are those of the PTX ISA
// (wgmma.mma_async.m64nNk16). All threads of a warpgroup call them together.
//
// A product is asynchronous: until it is waited for, its sums and its operands in registers and
// shared memory must not be touched.
namespace train::kernels::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool kCompiledForWarpgroups = true;
#else
constexpr bool kCompiledForWarpgroups = false;
#endif

/// Descriptor of a matrix in shared memory, as the ISA defines it (attention_panels.cuh).
using WarpgroupOperand = std::uint64_t;

/// Call before the first product, and after writing registers of one: orders that before products.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Ends a group of products.
__device__ inline void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits for all groups except the `pending` last ones.
template <int pending>
__device__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

/// Makes this thread's writes to shared memory, and copies it has waited for, visible to products
/// after the next barrier, which access memory through another proxy.
__device__ inline void publish_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Keeps the compiler from moving uses of these sums across this line.
template <int columns>
__device__ void hold_sums(float (&c)[columns][4]) {
#pragma unroll
  for (int n = 0; n < columns; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      asm volatile("" : "+f"(c[n][i])::"memory");
    }
  }
}

// multiply_warpgroup(): starts c = a b, or with `add` c += a b, for 64 x 16 and 16 x 64 or 16 x 128
// bf16, in fp32. Warp w of the four has rows 16 w to 16 w + 15; c[n] holds columns 8 n to 8 n + 7,
// laid out as in multiply_add(). `a` is in shared memory, each row along k, or in registers, laid
// out as in multiply_add(). `by_columns`: rows of b in shared memory run along the columns;
// otherwise columns run along k.

#define TRAIN_EIGHT_SUMS(n)                                                      \
  "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3]), "+f"(c[n + 1][0]), \
      "+f"(c[n + 1][1]), "+f"(c[n + 1][2]), "+f"(c[n + 1][3])

template <int by_columns>
__device__ void multiply_warpgroup(float (&c)[8][4], WarpgroupOperand a, WarpgroupOperand b,
                                   bool add) {
  asm volatile(
      "{ .reg .pred more; setp.ne.b32 more, %34, 0; "
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, more, 1, 1, 0, %35; }"
      : TRAIN_EIGHT_SUMS(0), TRAIN_EIGHT_SUMS(2), TRAIN_EIGHT_SUMS(4), TRAIN_EIGHT_SUMS(6)
      : "l"(a), "l"(b), "r"(add ? 1 : 0), "n"(by_columns));
}

template <int by_columns>
__device__ void multiply_warpgroup(float (&c)[8][4], const std::uint32_t (&a)[4],
                                   WarpgroupOperand b, bool add) {
  asm volatile(
      "{ .reg .pred more; setp.ne.b32 more, %37, 0; "
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, more, 1, 1, %38; }"
      : TRAIN_EIGHT_SUMS(0), TRAIN_EIGHT_SUMS(2), TRAIN_EIGHT_SUMS(4), TRAIN_EIGHT_SUMS(6)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add ? 1 : 0), "n"(by_columns));
}

template <int by_columns>
__device__ void multiply_warpgroup(float (&c)[16][4], WarpgroupOperand a, WarpgroupOperand b,
                                   bool add) {
  asm volatile(
      "{ .reg .pred more; setp.ne.b32 more, %66, 0; "
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, more, 1, 1, 0, %67; }"
      : TRAIN_EIGHT_SUMS(0), TRAIN_EIGHT_SUMS(2), TRAIN_EIGHT_SUMS(4), TRAIN_EIGHT_SUMS(6),
        TRAIN_EIGHT_SUMS(8), TRAIN_EIGHT_SUMS(10), TRAIN_EIGHT_SUMS(12), TRAIN_EIGHT_SUMS(14)
      : "l"(a), "l"(b), "r"(add ? 1 : 0), "n"(by_columns));
}

template <int by_columns>
__device__ void multiply_warpgroup(float (&c)[16][4], const std::uint32_t (&a)[4],
                                   WarpgroupOperand b, bool add) {
  asm volatile(
      "{ .reg .pred more; setp.ne.b32 more, %69, 0; "
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, more, 1, 1, %70; }"
      : TRAIN_EIGHT_SUMS(0), TRAIN_EIGHT_SUMS(2), TRAIN_EIGHT_SUMS(4), TRAIN_EIGHT_SUMS(6),
        TRAIN_EIGHT_SUMS(8), TRAIN_EIGHT_SUMS(10), TRAIN_EIGHT_SUMS(12), TRAIN_EIGHT_SUMS(14)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add ? 1 : 0), "n"(by_columns));
}

#undef TRAIN_EIGHT_SUMS

}  // namespace train::kernels::cuda
