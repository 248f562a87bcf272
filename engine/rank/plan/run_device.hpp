#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "engine/model/spec.hpp"

namespace train::kernels {

struct KernelTable;

}  // namespace train::kernels

namespace train::engine {

/// Errors (user), in one line: this processor lacks what every kernel of the CPU needs. Nothing
/// else here may be asked before.
[[nodiscard]] Status check_processor();

/// Errors (user), in one line: this build or machine has no device of that name (runtime.device) or
/// lacks a library for it; a head of the model is wider than its kernels take. `fix`: how to choose
/// another.
[[nodiscard]] Status check_device(const std::string& device, const ModelSpec& model,
                                  std::string_view fix = "set runtime.device = \"cpu\"");

/// Checks that this machine can run `ranks` processes with a device each, joined by `transport`
/// (parallel.transport). Errors (user), in one line: there are fewer devices; no NCCL.
/// REQUIRES: as kernels_of().
[[nodiscard]] Status check_device_ranks(const std::string& device, const std::string& transport,
                                        std::int64_t ranks);

/// Leaves this process one of the devices that CUDA_VISIBLE_DEVICES lists, or of all: the
/// `local`-th, from 0. Before anything asks the driver. Not thread-safe (setenv).
void take_device(std::int64_t local);

/// True if that device's kernels compute in bf16 (RankOptions::knows_bf16), even if this machine
/// has no such device.
[[nodiscard]] bool knows_bf16(const std::string& device);

/// The kernels of the device named by runtime.device that compute in `compute` (precision.compute).
/// REQUIRES: check_device() accepts it.
[[nodiscard]] const kernels::KernelTable& kernels_of(const std::string& device,
                                                     const std::string& compute);

/// Name of the kernel set, which decides the bits of its results. REQUIRES: as kernels_of().
[[nodiscard]] std::string kernel_set_name(const std::string& device, const std::string& compute);

/// kernels::measure_gemm_flops() of that device, for folders that may not include kernels;
/// `compute` is precision.compute. 0 where the device does not let it be measured. REQUIRES: as
/// kernels_of().
[[nodiscard]] double measure_peak_flops(const std::string& device, const std::string& compute,
                                        int threads, double seconds);

/// Gives back what this process holds of the device. REQUIRES: as kernels::Device::release.
void release_device(const std::string& device);

}  // namespace train::engine
