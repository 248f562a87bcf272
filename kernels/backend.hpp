#pragma once

#include <string>

#include "kernels/device/device.hpp"
#include "kernels/dtype.hpp"
#include "kernels/kernel_list.hpp"

namespace train::kernels {

/// All kernels of one kind of device (kernel_list.hpp). Every kernel only enqueues on its stream
/// and returns; params are copied, and the memory they point to must live until the stream has run
/// the kernel. Every kernel is deterministic; its bits do not depend on the number of threads.
struct KernelTable {
  const char* name;
  const Device* device;         ///< Device that the kernels run on.
  std::string (*kernel_set)();  ///< Name of the kernel set, which determines the bits; recorded in
                                ///< every manifest.

#define TRAIN_KERNEL_MEMBER(name, Params) void (*name)(Stream&, const Params&);
  TRAIN_KERNELS(TRAIN_KERNEL_MEMBER)
#undef TRAIN_KERNEL_MEMBER
};

/// CPU kernels: the fallback without a GPU, the oracle with one. REQUIRES: cpu_absence() is empty.
[[nodiscard]] const KernelTable& cpu_backend();
/// CPU kernels for layers that read bf16 weights (precision.compute): matrix products, the head's
/// included, round their operands to bf16 and sum in fp32 (gemm/bf16_gemm.hpp). Memory and all
/// other kernels are those of cpu_backend(). nullptr if the processor lacks AVX512_BF16: then use
/// cpu_backend() with rounded weights. REQUIRES: cpu_absence() is empty.
[[nodiscard]] const KernelTable* cpu_bf16_backend();
/// Reason why this processor runs no kernels; empty if it does.
[[nodiscard]] std::string cpu_absence();
/// CUDA kernels; nullptr if the build has no CUDA or the machine no device. cuda_absence() gives
/// the reason (device/cuda_device.hpp).
[[nodiscard]] const KernelTable* cuda_backend();

/// Kernel set of cpu_backend(): one for all x86-64 processors with FMA ("cpu-fma-2"), whose bits
/// are equal. That of cpu_bf16_backend() is "cpu-bf16-2". The number at the end, also of the CUDA
/// sets, is raised whenever a change of this program changes bits: of kernels, or of what the host
/// computes for them (initial weights, schedules, rotations).
[[nodiscard]] std::string kernel_set();
/// Measures the peak FLOP/s of `matmul` on this machine with `threads` threads: the best of several
/// shapes, tried for about `seconds`. Blocking; for start-up and benchmarks only. MFU refers to
/// this peak. REQUIRES: cpu_bf16_backend() for bf16 operands.
[[nodiscard]] double measure_gemm_flops(int threads, double seconds, DType operands = DType::f32);
/// Measures the peak FLOP/s of a device's `matmul` of `dtype`, on a stream of its own: square
/// products that grow until one takes long enough. Blocking. Throws DeviceError.
[[nodiscard]] double measure_gemm_flops(const KernelTable& table, DType dtype, double seconds);

}  // namespace train::kernels
