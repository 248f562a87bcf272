#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/instructions.cuh"

// Tensor core instructions that C++ has no syntax for, each behind a function. The emulated device
// has its own file of this name, so this one runs only on a device. Layouts are those of the PTX
// ISA
// (mma.m16n8k16, ldmatrix.m8n8), for the lanes of one warp, with
//   group = lane / 4 and pair = 2 * (lane % 4).
// All lanes of a warp call them together.
namespace train::kernels::cuda {

/// Address in shared memory, in bytes.
using SharedAddress = std::uint32_t;

__device__ inline SharedAddress shared_address(const void* shared) {
  return static_cast<SharedAddress>(__cvta_generic_to_shared(shared));
}

/// Loads four 8 x 8 matrices of bf16. Lane 8 i + r gives the address of row r of matrix i (16
/// bytes, aligned to 16); part[i] belongs to matrix i: row `group`, columns pair and pair + 1 (in
/// the upper half).
__device__ inline void load_matrices(std::uint32_t (&part)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3])
               : "r"(row)
               : "memory");
}

/// Loads four matrices transposed: rows pair and pair + 1 of column `group`.
__device__ inline void load_matrices_transposed(std::uint32_t (&part)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3])
               : "r"(row)
               : "memory");
}

/// c += a b for 16 x 16 and 16 x 8 bf16, in fp32. a[0] row group, columns pair..; a[1] row group +
/// 8; a[2], a[3] the same rows, columns 8 + pair.. b0 rows pair.. of column group; b1 rows 8 +
/// pair... c[0], c[1] row group, columns pair..; c[2], c[3] row group + 8.
__device__ inline void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                    std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Starts copying 16 bytes of device memory, or zeros if not `inside` (`from` is then not read).
/// Both aligned to 16 bytes.
__device__ inline void copy_async(SharedAddress to, const void* from, bool inside) {
  const int size_bytes = inside ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(size_bytes)
               : "memory");
}

/// Ends a group of this thread's copies.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits for all of this thread's copies except those of the `pending` last groups. Copies of other
/// threads are visible after a following barrier.
template <int pending>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace train::kernels::cuda
