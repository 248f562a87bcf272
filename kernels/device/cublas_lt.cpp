#include "kernels/device/cublas_lt.hpp"

#include <fmt/format.h>

#include "kernels/device/cuda_library.hpp"

namespace train::kernels {
namespace {

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(find_in_library(library, name, "cuBLASLt"));
}

CublasLt load() {
  void* library = open_cuda_library(fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR), "cuBLASLt");
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
