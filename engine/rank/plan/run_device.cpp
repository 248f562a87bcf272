#include "engine/rank/plan/run_device.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "base/check.hpp"
#include "base/text/log.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/backend.hpp"
#include "kernels/device/cuda_device.hpp"
#include "kernels/device/nccl.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {
namespace {

/// The device does not depend on the precision.
const kernels::Device& device_of(const std::string& device) {
  return *kernels_of(device, "fp32").device;
}

}  // namespace

Status check_processor() {
  if (const std::string absence = kernels::cpu_absence(); !absence.empty()) {
    return user_error(absence);
  }
  return {};
}

Status check_device(const std::string& device, const ModelSpec& model, std::string_view fix) {
  if (device == "cpu") {
    return {};
  }
  const auto refused = [&device, fix](std::string_view reason) {
    return user_error(fmt::format("runtime.device = \"{}\": {}; {}", device, reason, fix));
  };
  if (kernels::cuda_backend() == nullptr) {
    return refused(kernels::cuda_absence());
  }
  if (model.widest_head() > kernels::cuda::kMaxHeadDim) {
    return refused(fmt::format("its heads are at most {} wide, model.head_dim is {}",
                               kernels::cuda::kMaxHeadDim, model.widest_head()));
  }
  try {
    (void)kernel_set_name(device, "fp32");
  } catch (const kernels::DeviceError& error) {
    return refused(error.what());
  }
  return {};
}

Status check_device_ranks(const std::string& device, const std::string& transport,
                          std::int64_t ranks) {
  if (device == "cpu") {
    return {};
  }
  const auto count_devices = device_of(device).count;
  const std::int64_t devices = count_devices == nullptr ? 1 : count_devices();
  if (devices < ranks) {
    return user_error(
        fmt::format("parallel.ranks: {} ranks would run on this machine, each on its own device, "
                    "but there {} {}; set parallel.ranks to that for each node, or "
                    "parallel.transport to \"inproc\", with which all share one",
                    ranks, devices == 1 ? "is" : "are", devices));
  }
  if (transport == "nccl" && !kernels::nccl_absence().empty()) {
    return user_error(fmt::format(
        "parallel.transport = \"nccl\": {}; or set it to \"tcp\", which goes by way of the "
        "host's memory",
        kernels::nccl_absence()));
  }
  return {};
}

void take_device(std::int64_t local) {
  constexpr const char* variable = "CUDA_VISIBLE_DEVICES";
  const char* const visible = std::getenv(variable);
  std::string_view list = visible == nullptr ? "" : visible;
  for (std::int64_t i = 0; i < local && !list.empty(); ++i) {
    const std::size_t comma = list.find(',');
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
  }
  const std::string own =
      visible == nullptr ? std::to_string(local) : std::string(list.substr(0, list.find(',')));
  ::setenv(variable, own.c_str(), /*overwrite=*/1);
  // A kernel that is loaded when it is first launched may wait for all that the device does, and an
  // exchange of one rank for that launch of another: so all are loaded at the start.
  ::setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
}

bool knows_bf16(const std::string& device) {
  const kernels::KernelTable* cuda = kernels::cuda_backend();
  return device != "cpu" && (cuda == nullptr || cuda->device->knows_bf16);
}

const kernels::KernelTable& kernels_of(const std::string& device, const std::string& compute) {
  if (device == "cpu") {
    const kernels::KernelTable* bf16 = compute == "bf16" ? kernels::cpu_bf16_backend() : nullptr;
    return bf16 == nullptr ? kernels::cpu_backend() : *bf16;
  }
  const kernels::KernelTable* kernels = kernels::cuda_backend();
  TRAIN_CHECK(kernels != nullptr, "no device {}", device);
  return *kernels;
}

std::string kernel_set_name(const std::string& device, const std::string& compute) {
  return kernels_of(device, compute).kernel_set();
}

double measure_peak_flops(const std::string& device, const std::string& compute, int threads,
                          double seconds) {
  if (device == "cpu") {
    const bool bf16 = compute == "bf16" && kernels::cpu_bf16_backend() != nullptr;
    return kernels::measure_gemm_flops(threads, seconds,
                                       bf16 ? kernels::DType::bf16 : kernels::DType::f32);
  }
  const auto dtype =
      compute == "bf16" && knows_bf16(device) ? kernels::DType::bf16 : kernels::DType::f32;
  try {
    return kernels::measure_gemm_flops(kernels_of(device, compute), dtype, seconds);
  } catch (const kernels::DeviceError& error) {
    log_warning(fmt::format("no_mfu peak of the device not measured: {}", error.what()));
    return 0.0;
  }
}

void release_device(const std::string& device) {
  if (const auto release = device_of(device).release; release != nullptr) {
    release();
  }
}

}  // namespace train::engine
