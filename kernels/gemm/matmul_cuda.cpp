#include <cublasLt.h>
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>

#include "kernels/device/cuda_device.hpp"
#include "kernels/device/cuda_stream.hpp"
#include "kernels/gemm/product_gelu.hpp"
#include "kernels/kernel_list.hpp"

namespace train::kernels {
namespace {
/// The functions of cuBLASLt that are used, found when first asked for: the program starts without
/// the library, and without CUDA.
struct CublasLt {
  CudaLibrary library{fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR), "cuBLASLt"};
  decltype(&cublasLtCreate) create = library["cublasLtCreate"];
  decltype(&cublasLtDestroy) destroy = library["cublasLtDestroy"];
  decltype(&cublasLtGetVersion) version = library["cublasLtGetVersion"];
  decltype(&cublasLtGetStatusString) status_string = library["cublasLtGetStatusString"];
  decltype(&cublasLtMatmul) matmul = library["cublasLtMatmul"];
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = library["cublasLtMatmulAlgoGetHeuristic"];
  decltype(&cublasLtMatmulDescCreate) desc_create = library["cublasLtMatmulDescCreate"];
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = library["cublasLtMatmulDescDestroy"];
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = library["cublasLtMatmulDescSetAttribute"];
  decltype(&cublasLtMatrixLayoutCreate) layout_create = library["cublasLtMatrixLayoutCreate"];
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = library["cublasLtMatrixLayoutDestroy"];
  decltype(&cublasLtMatmulPreferenceCreate) preference_create =
      library["cublasLtMatmulPreferenceCreate"];
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy =
      library["cublasLtMatmulPreferenceDestroy"];
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set =
      library["cublasLtMatmulPreferenceSetAttribute"];
};

/// Thread-safe. Throws DeviceError, every time, where the library cannot be found or is too old.
const CublasLt& cublas_lt() {
  static const CublasLt table;
  return table;
}

void check_library(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw DeviceError(fmt::format("matmul: {}: {}", what, cublas_lt().status_string(status)));
  }
}

/// One product, ready to be launched again and again with the same algorithm.
struct MatmulPlan {
  using Desc = std::unique_ptr<cublasLtMatmulDescOpaque_t, decltype(&cublasLtMatmulDescDestroy)>;
  using Layout =
      std::unique_ptr<cublasLtMatrixLayoutOpaque_t, decltype(&cublasLtMatrixLayoutDestroy)>;
  Desc desc{nullptr, cublas_lt().desc_destroy};
  Layout left{nullptr, cublas_lt().layout_destroy};
  Layout right{nullptr, cublas_lt().layout_destroy};
  Layout result{nullptr, cublas_lt().layout_destroy};
  cublasLtMatmulAlgo_t algorithm{};
};

/// What an algorithm may depend on: the shapes, and whether all pointers and rows are whole
/// vectors. So the same call has the same bits wherever in memory its operands lie, as long as that
/// holds.
using Key = std::array<std::int64_t, 8>;

bool is_aligned(const MatmulParams& p) {
  constexpr std::size_t vector_bytes = 16;
  const auto whole = [](const void* data, std::int64_t stride, DType dtype) {
    return reinterpret_cast<std::uintptr_t>(data) % vector_bytes == 0 &&
           static_cast<std::size_t>(stride) * size_of(dtype) % vector_bytes == 0;
  };
  return whole(p.a, p.lda, p.dtype) && whole(p.b, p.ldb, p.dtype) &&
         whole(p.c, p.ldc, p.output_dtype);
}

cudaDataType_t library_type(DType dtype) { return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

Key key_of(const MatmulParams& p) {
  const int flags = (p.transpose_a ? 1 : 0) + (p.transpose_b ? 2 : 0) + (p.accumulate ? 4 : 0) +
                    (p.dtype == DType::bf16 ? 8 : 0) + (p.output_dtype == DType::bf16 ? 16 : 0);
  return {p.m, p.n, p.k, p.lda, p.ldb, p.ldc, flags, is_aligned(p) ? 1 : 0};
}

}  // namespace

/// The library's handle and the plans made so far; of one stream, and used on its thread alone.
class MatmulPlans {
 public:
  MatmulPlans() { check_library(cublas_lt().create(&handle_), "cublasLtCreate"); }
  ~MatmulPlans() {
    plans_.clear();
    cublas_lt().destroy(handle_);
  }
  MatmulPlans(const MatmulPlans&) = delete;
  MatmulPlans& operator=(const MatmulPlans&) = delete;

  /// What Hopper's kernels want at most; the same everywhere, for it decides the algorithm.
  static constexpr std::size_t workspace_bytes = std::size_t{32} << 20U;

  [[nodiscard]] cublasLtHandle_t handle() const { return handle_; }
  const MatmulPlan& of(const MatmulParams& p) {
    const auto [found, added] = plans_.try_emplace(key_of(p));
    if (added) {
      try {
        found->second = make(p);
      } catch (...) {
        plans_.erase(found);
        throw;
      }
    }
    return found->second;
  }

 private:
  [[nodiscard]] MatmulPlan make(const MatmulParams& p) const;
  void choose(MatmulPlan& plan, const MatmulParams& p) const;

  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, MatmulPlan> plans_;
};

namespace {

/// A matrix as the library has it, by columns: what is stored as `rows` rows of `cols` is its
/// transpose.
cublasLtMatrixLayout_t stored_layout(DType dtype, std::int64_t rows, std::int64_t cols,
                                     std::int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_library(
      cublas_lt().layout_create(&layout, library_type(dtype), static_cast<std::uint64_t>(cols),
                                static_cast<std::uint64_t>(rows), stride),
      "cublasLtMatrixLayoutCreate");
  return layout;
}

template <class Value>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         Value value) {
  check_library(cublas_lt().preference_set(preference, attribute, &value, sizeof(value)),
                "cublasLtMatmulPreferenceSetAttribute");
}

void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, bool transpose) {
  const cublasOperation_t operation = transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
  check_library(cublas_lt().desc_set(desc, attribute, &operation, sizeof(operation)),
                "cublasLtMatmulDescSetAttribute");
}

}  // namespace

/// Row by row C = A B is column by column C = B A, so the operands change places.
MatmulPlan MatmulPlans::make(const MatmulParams& p) const {
  MatmulPlan plan;
  cublasLtMatmulDesc_t desc = nullptr;
  // Without TF32: products of fp32 are those of the CPU but for the order of the sums. Those of
  // bf16 are exact, and added up in fp32.
  check_library(cublas_lt().desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                "cublasLtMatmulDescCreate");
  plan.desc.reset(desc);
  set(desc, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b);
  set(desc, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a);
  plan.left.reset(
      stored_layout(p.dtype, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.ldb));
  plan.right.reset(
      stored_layout(p.dtype, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.lda));
  plan.result.reset(stored_layout(p.output_dtype, p.m, p.n, p.ldc));
  choose(plan, p);
  return plan;
}

void MatmulPlans::choose(MatmulPlan& plan, const MatmulParams& p) const {
  cublasLtMatmulPreference_t made = nullptr;
  check_library(cublas_lt().preference_create(&made), "cublasLtMatmulPreferenceCreate");
  const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t,
                        decltype(&cublasLtMatmulPreferenceDestroy)>
      preference(made, cublas_lt().preference_destroy);
  set(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
  // Sums of a split k are to be added in one order, from the workspace.
  set(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const auto element =
      static_cast<std::uint32_t>(std::min(size_of(p.dtype), size_of(p.output_dtype)));
  const std::uint32_t alignment = is_aligned(p) ? 16 : element;
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(made, attribute, alignment);
  }
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  check_library(cublas_lt().heuristic(handle_, plan.desc.get(), plan.left.get(), plan.right.get(),
                                      plan.result.get(), plan.result.get(), made, 1, &best, &found),
                "cublasLtMatmulAlgoGetHeuristic");
  if (found == 0) {
    throw DeviceError(
        fmt::format("matmul: cuBLASLt knows no way for m={} n={} k={}", p.m, p.n, p.k));
  }
  plan.algorithm = best.algo;
}

namespace cuda {

std::string gemm_library() {
  const std::size_t version = cublas_lt().version();
  return fmt::format("cublaslt-{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

namespace {

void multiply(CudaStream& stream, const MatmulParams& p) {
  if (p.k == 0 && p.accumulate) {
    return;
  }
  if (p.k == 0) {
    const std::size_t size = size_of(p.output_dtype);
    TRAIN_CUDA_CHECK(cudaMemset2DAsync(p.c, static_cast<std::size_t>(p.ldc) * size, 0,
                                       static_cast<std::size_t>(p.n) * size,
                                       static_cast<std::size_t>(p.m), stream.native()));
    return;
  }
  if (!stream.plans()) {
    stream.plans() = std::make_shared<MatmulPlans>();
  }
  const MatmulPlan& plan = stream.plans()->of(p);
  const float one = 1.0F;
  const float old = p.accumulate ? 1.0F : 0.0F;
  check_library(
      cublas_lt().matmul(stream.plans()->handle(), plan.desc.get(), &one, p.b, plan.left.get(), p.a,
                         plan.right.get(), &old, p.c, plan.result.get(), p.c, plan.result.get(),
                         &plan.algorithm, stream.scratch(MatmulPlans::workspace_bytes),
                         MatmulPlans::workspace_bytes, stream.native()),
      "cublasLtMatmul");
}

}  // namespace

void matmul(CudaStream& stream, const MatmulParams& p) {
  if (p.m == 0 || p.n == 0) {
    return;
  }
  multiply(stream, p);
  gelu_of_product(stream, p);
}

}  // namespace cuda
}  // namespace train::kernels
