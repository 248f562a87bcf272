#include <cuda_runtime.h>
#include <dlfcn.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/math/float_mode.hpp"
#include "kernels/device/cuda_device.hpp"
#include "kernels/device/stream.hpp"

// Separate from device_cuda.cpp: NCCL needs this also where a test replaces the device.
namespace train::kernels {

std::string cuda_reason(int status) {
  const auto error = static_cast<cudaError_t>(status);
  return fmt::format("{} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
}

void check_cuda(int status, const char* statement, const std::source_location& where) {
  if (status != cudaSuccess) {
    cudaGetLastError();
    throw DeviceError(fmt::format("{} ({}:{}): {}", statement, where.file_name(), where.line(),
                                  cuda_reason(status)));
  }
}

namespace {

/// Toolkit directories: the loaded environment module's, the one of the build, and the default.
std::vector<std::string> library_directories() {
  std::vector<std::string> directories;
  for (const char* const variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* const home = std::getenv(variable); home != nullptr && *home != '\0') {
      directories.push_back(std::string(home) + "/lib64");
    }
  }
  directories.insert(directories.end(), {ACTORTRAIN_CUDA_LIBRARY_DIR, "/usr/local/cuda/lib64"});
  return directories;
}

/// Undoes changes that loading a library makes to the floating-point mode.
void* open_library(const std::string& name) {
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  set_float_mode();
  return library;
}

}  // namespace

CudaLibrary::CudaLibrary(const std::string& name, std::string what) : what_(std::move(what)) {
  library_ = open_library(name);
  if (library_ != nullptr) {
    return;
  }
  const std::string reason = dlerror();
  const std::vector<std::string> directories = library_directories();
  for (const std::string& directory : directories) {
    library_ = open_library(fmt::format("{}/{}", directory, name));
    if (library_ != nullptr) {
      return;
    }
  }
  throw DeviceError(fmt::format("{}: {}; nor is it in {} (LD_LIBRARY_PATH can name the place)",
                                what_, reason, fmt::join(directories, ", ")));
}

CudaLibrary::Symbol CudaLibrary::operator[](const char* name) const {
  void* address = dlsym(library_, name);
  if (address == nullptr) {
    throw DeviceError(fmt::format("{}: it has no {}", what_, name));
  }
  return {address};
}

}  // namespace train::kernels
