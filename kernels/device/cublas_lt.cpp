#include "kernels/device/cublas_lt.hpp"

#include <dlfcn.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <string>
#include <vector>

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

/// The name by itself follows LD_LIBRARY_PATH and the system's list. Never closed: what it gave out
/// must stay valid.
void* open_library() {
  const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
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
  throw DeviceError(
      fmt::format("cuBLASLt: {}; nor is it in {} (LD_LIBRARY_PATH can name the place)", reason,
                  fmt::join(directories, ", ")));
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  void* address = dlsym(library, name);
  if (address == nullptr) {
    throw DeviceError(fmt::format("cuBLASLt: it has no {}", name));
  }
  function = reinterpret_cast<Function>(address);
}

CublasLt load() {
  void* library = open_library();
  CublasLt table{};
  find(library, "cublasLtCreate", table.create);
  find(library, "cublasLtDestroy", table.destroy);
  find(library, "cublasLtGetVersion", table.version);
  find(library, "cublasLtGetStatusString", table.status_string);
  find(library, "cublasLtMatmul", table.matmul);
  find(library, "cublasLtMatmulAlgoGetHeuristic", table.heuristic);
  find(library, "cublasLtMatmulDescCreate", table.desc_create);
  find(library, "cublasLtMatmulDescDestroy", table.desc_destroy);
  find(library, "cublasLtMatmulDescSetAttribute", table.desc_set);
  find(library, "cublasLtMatrixLayoutCreate", table.layout_create);
  find(library, "cublasLtMatrixLayoutDestroy", table.layout_destroy);
  find(library, "cublasLtMatmulPreferenceCreate", table.preference_create);
  find(library, "cublasLtMatmulPreferenceDestroy", table.preference_destroy);
  find(library, "cublasLtMatmulPreferenceSetAttribute", table.preference_set);
  return table;
}

}  // namespace

const CublasLt& cublas_lt() {
  static const CublasLt table = load();
  return table;
}

}  // namespace train::kernels
