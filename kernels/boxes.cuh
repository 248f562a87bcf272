#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "kernels/dtype.hpp"
#include "kernels/mma.cuh"
#include "kernels/row_layout.hpp"

// Features of compute capability 9.0: boxes of a tensor that one thread copies to shared memory,
// barriers that tell their arrival, and registers moved between warpgroups (PTX ISA: mbarrier,
// cp.async.bulk.tensor, setmaxnreg). The emulated device has its own file of this name, so this one
// runs only on a device.
namespace train::kernels::cuda {

/// Barrier of 8 bytes in shared memory. A phase ends when the barrier's number of threads have
/// arrived and all announced bytes are there; the first phase has parity 0.
using Barrier = SharedAddress;
constexpr int kBarrierBytes = 8;

__device__ inline void make_barrier(Barrier barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// Call after the last make_barrier() and before __syncthreads().
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void arrive(Barrier barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Arrives, and announces the bytes that copies will bring in this phase.
__device__ inline void arrive_and_expect(Barrier barrier, int size_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
               "r"(size_bytes)
               : "memory");
}
/// Waits until the phase of this parity is over. For a barrier in its first phase, the phase of
/// parity 1 counts as over.
__device__ inline void await(Barrier barrier, unsigned parity) {
  asm volatile(
      "{ .reg .pred over; "
      "again: mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1; "
      "@over bra done; bra again; done: }" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

constexpr int kBoxColumns = 64;

/// Map of bf16 heads, divided into boxes of 64 columns and `rows` rows. Passed to a kernel as
/// `const __grid_constant__`.
struct BoxMap {
  CUtensorMap map;
};

/// Makes the map of `columns` columns of `tokens` rows of each head of each sequence. REQUIRES:
/// data and strides aligned to 16 bytes. Throws DeviceError.
inline BoxMap box_map(const void* data, std::int64_t columns, std::int64_t tokens,
                      std::int64_t heads, std::int64_t sequences, const RowLayout& layout,
                      int rows) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const auto encode = [] {
    constexpr unsigned version = 12000;
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    TRAIN_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, version,
                                                      cudaEnableDefault, &found));
    return reinterpret_cast<Encode>(function);
  }();
  const auto bytes = [](std::int64_t elements) { return static_cast<cuuint64_t>(elements) * 2; };
  const cuuint64_t sizes[4] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(tokens),
                               static_cast<cuuint64_t>(heads), static_cast<cuuint64_t>(sequences)};
  const cuuint64_t strides[3] = {bytes(layout.outer_stride), bytes(layout.inner_stride),
                                 bytes(layout.outer_stride * tokens)};
  const cuuint32_t box[4] = {kBoxColumns, static_cast<cuuint32_t>(rows), 1, 1};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  BoxMap made{};
  const CUresult status =
      encode == nullptr
          ? CUDA_ERROR_NOT_SUPPORTED
          : encode(&made.map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<void*>(data), sizes,
                   strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw DeviceError("cuTensorMapEncodeTiled: error " + std::to_string(static_cast<int>(status)));
  }
  return made;
}

/// Starts copying the box whose first element is (column, row) of a head to `to`, aligned to 1024
/// bytes: 16-byte chunk c of row r goes to place c ^ (r % 8). Elements outside the tensor, also
/// before it, become zeros. Its bytes count for `barrier`.
__device__ inline void copy_box(SharedAddress to, const BoxMap& from, Barrier barrier, int column,
                                int row, int head, int sequence) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(&from.map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(sequence)
      : "memory");
}

/// Sets the registers of each of the warpgroup's threads to `count`, more or fewer than before. A
/// multiple of 8.
template <int count>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
__device__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}

/// Waits for `count` threads of the block that call it with this id, 1 to 15.
__device__ inline void sync_threads(int id, int count) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory");
}

/// `value` of the warp's first lane, so that dependent values are computed once per warp.
__device__ inline int of_warp(int value) { return __shfl_sync(0xffffffffU, value, 0); }

/// Forces x to be computed here: the compiler would move arithmetic meant to overlap with a product
/// behind the wait for it. `place`: 4 bytes of this thread.
__device__ inline void compute_here(float x, SharedAddress place) {
  asm volatile("st.volatile.shared.f32 [%0], %1;" ::"r"(place), "f"(x) : "memory");
}

}  // namespace train::kernels::cuda
