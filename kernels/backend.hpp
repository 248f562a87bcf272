#pragma once

#include <string>

#include "kernels/device/device.hpp"
#include "kernels/kernel_list.hpp"

namespace train::kernels {

/// All kernels of one kind of device (kernel_list.hpp). Every kernel only enqueues on its stream
/// and returns; the params are copied, the memory they point to must live until the stream has
/// passed. Every kernel is deterministic, and its bits do not depend on the number of threads.
struct KernelTable {
  const char* name;
  const Device* device;         ///< What they run on.
  std::string (*kernel_set)();  ///< What decides their bits, by name; recorded in every manifest.

#define TRAIN_KERNEL_MEMBER(name, Params) void (*name)(Stream&, const Params&);
  TRAIN_KERNELS(TRAIN_KERNEL_MEMBER)
#undef TRAIN_KERNEL_MEMBER
};

/// Always there: the fallback without a GPU, the oracle with one. REQUIRES: cpu_absence() is empty.
[[nodiscard]] const KernelTable& cpu_backend();
/// The same where layers read bf16 weights (precision.compute): matrix products, also those of the
/// head, take operands that are rounded to bf16, with fp32 sums (gemm/bf16_gemm.hpp). Memory and
/// all other kernels are those of cpu_backend(). nullptr where the processor has no AVX512_BF16:
/// there cpu_backend() computes, with weights that are rounded. REQUIRES: as cpu_backend().
[[nodiscard]] const KernelTable* cpu_bf16_backend();
/// Why this processor runs no kernels; empty if it does.
[[nodiscard]] std::string cpu_absence();
/// nullptr where the build has no CUDA, or the machine no device; cuda_absence() says why
/// (device/cuda_device.hpp).
[[nodiscard]] const KernelTable* cuda_backend();

/// The kernel set of cpu_backend(), one for all x86-64 processors with FMA ("cpu-fma-2"): they have
/// the same bits. That of cpu_bf16_backend() is "cpu-bf16-2". The number at the end of these and of
/// those of CUDA is raised whenever a change of this program changes bits of the set, or those that
/// the host computes for it: initial weights, schedules, rotations.
[[nodiscard]] std::string kernel_set();
/// FLOP/s of `matmul` on this machine with `threads` threads, the best of several shapes measured
/// in turn for about `seconds` (blocking; start-up and benches only): the peak that MFU refers to.
/// REQUIRES: for bf16 operands, cpu_bf16_backend().
[[nodiscard]] double measure_gemm_flops(int threads, double seconds, DType operands = DType::f32);
/// The same of a device's `matmul` of `dtype`, in a stream of its own: square products that grow
/// until one is long enough. Throws DeviceError.
[[nodiscard]] double measure_gemm_flops(const KernelTable& table, DType dtype, double seconds);

}  // namespace train::kernels
