#include <dlfcn.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/device/cuda_library.hpp"
#include "kernels/device/device_error.hpp"

namespace train::kernels {
namespace {

/// Where toolkits are: as modules of clusters name the one that is loaded, the one that this was
/// built with, and the usual place.
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

}  // namespace

void* open_cuda_library(const std::string& name, const std::string& what) {
  if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL); library != nullptr) {
    return library;
  }
  const std::string reason = dlerror();
  const std::vector<std::string> directories = library_directories();
  for (const std::string& directory : directories) {
    const std::string full = directory + "/" + name;
    if (void* library = dlopen(full.c_str(), RTLD_NOW | RTLD_LOCAL); library != nullptr) {
      return library;
    }
  }
  throw DeviceError(fmt::format("{}: {}; nor is it in {} (LD_LIBRARY_PATH can name the place)",
                                what, reason, fmt::join(directories, ", ")));
}

void* find_in_library(void* library, const char* name, const std::string& what) {
  void* address = dlsym(library, name);
  if (address == nullptr) {
    throw DeviceError(fmt::format("{}: it has no {}", what, name));
  }
  return address;
}

}  // namespace train::kernels
