#include <cublasLt.h>
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/device/cuda_device.hpp"
#include "kernels/device/cuda_stream.hpp"
#include "kernels/device/device_gate.hpp"
#include "kernels/device/repeated_memory.hpp"
#include "kernels/gemm/matmul.hpp"
#include "kernels/gemm/product_choice.hpp"
#include "kernels/gemm/product_trial.hpp"

namespace train::kernels {
namespace {
/// Functions of cuBLASLt, looked up on first use: the program starts without the library and
/// without CUDA.
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

/// Thread-safe. Throws DeviceError, every time, if the library is missing or too old.
const CublasLt& cublas_lt() {
  static const CublasLt table;
  return table;
}

void check_library(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw DeviceError(fmt::format("matmul: {}: {}", what, cublas_lt().status_string(status)));
  }
}

/// Plan of a product, launched repeatedly with one algorithm.
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

/// Properties that may decide the algorithm: shapes, and the alignment shared by all operands. So
/// equal calls have equal bits wherever their operands lie, while the alignment holds.
using Key = std::array<std::int64_t, 8>;

cudaDataType_t library_type(DType dtype) { return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

Key key_of(const MatmulParams& p) {
  const int flags = (p.transpose_a ? 1 : 0) + (p.transpose_b ? 2 : 0) + (p.accumulate ? 4 : 0) +
                    (p.dtype == DType::bf16 ? 8 : 0) + (p.output_dtype == DType::bf16 ? 16 : 0);
  return {p.m, p.n, p.k, p.lda, p.ldb, p.ldc, flags, begin_aligned(p) ? 1 : 0};
}

}  // namespace

/// Library handle and cached plans of one stream, used only on its thread.
class MatmulPlans {
 public:
  MatmulPlans() { check_library(cublas_lt().create(&handle_), "cublasLtCreate"); }
  ~MatmulPlans() {
    plans_.clear();
    cublas_lt().destroy(handle_);
  }
  MatmulPlans(const MatmulPlans&) = delete;
  MatmulPlans& operator=(const MatmulPlans&) = delete;

  /// Largest workspace that Hopper's kernels want; the same on all devices, as it affects the
  /// algorithm.
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20U;

  /// Launches the product. The first launch tries several algorithms on `stream` and waits for
  /// them.
  void multiply(CudaStream& stream, const MatmulParams& p) {
    // The library loads kernels at their first launch, for which the driver may wait for the whole
    // device: no exchange may run meanwhile.
    std::optional<DeviceGate::Call> loads;
    if (!plans_.contains(key_of(p))) {
      loads.emplace();
    }
    const MatmulPlan& plan = of(stream, p);
    launch(stream, plan, plan.algorithm, p);
  }

  /// Launches the product of `plan` with `algorithm`.
  void launch(CudaStream& stream, const MatmulPlan& plan, const cublasLtMatmulAlgo_t& algorithm,
              const MatmulParams& p) const;

 private:
  using Ways = std::vector<cublasLtMatmulHeuristicResult_t>;

  const MatmulPlan& of(CudaStream& stream, const MatmulParams& p) {
    const auto [found, added] = plans_.try_emplace(key_of(p));
    if (added) {
      try {
        found->second = make(stream, p);
      } catch (...) {
        plans_.erase(found);
        throw;
      }
    }
    return found->second;
  }
  [[nodiscard]] MatmulPlan make(CudaStream& stream, const MatmulParams& p) const;
  /// Algorithms proposed by the library's heuristic, best first. Not empty.
  [[nodiscard]] Ways ways_of(const MatmulPlan& plan, const MatmulParams& p) const;

  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, MatmulPlan> plans_;
};

namespace {

/// Column-major layout for the library: a matrix stored as `rows` rows of `cols` is its transpose.
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

/// False for small products, which finish before a better algorithm could repay the trial.
bool worth_a_trial(const MatmulParams& p) {
  constexpr double least_flop = 1e9;
  return 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) >=
         least_flop;
}

/// Elements from the first to the last of a matrix of `rows` rows.
std::int64_t extent(std::int64_t rows, std::int64_t cols, std::int64_t stride) {
  return (rows - 1) * stride + cols;
}

/// Operands of a trial: random operands in the real shapes, with the real result as output unless
/// it is accumulated into, since the product overwrites it anyway. So a trial needs little memory
/// and fits on a nearly full device.
///
/// The destructor frees everything. REQUIRES: a DeviceGate::Call lives until then.
class TrialOperands {
 public:
  /// Starts filling the operands. nullptr if the device has no room.
  static std::unique_ptr<TrialOperands> make(CudaStream& stream, const MatmulParams& p) {
    auto operands = std::unique_ptr<TrialOperands>(new TrialOperands(stream, p));
    if (!operands->there()) {
      return nullptr;
    }
    for (const auto* memory : {operands->a_.get(), operands->b_.get()}) {
      cuda::fill_with_random(stream, memory->data(),
                             static_cast<std::int64_t>(memory->piece_bytes() / size_of(p.dtype)),
                             p.dtype);
    }
    operands->product.a = operands->a_->data();
    operands->product.b = operands->b_->data();
    if (p.accumulate) {
      operands->product.c = operands->c_->data();
    }
    return operands;
  }

  /// Waits for their last use. Errors up to here were reported by the launches.
  ~TrialOperands() { cudaStreamSynchronize(stream_.native()); }
  TrialOperands(const TrialOperands&) = delete;
  TrialOperands& operator=(const TrialOperands&) = delete;

  MatmulParams product;

  [[nodiscard]] cuda::TrialMatrix result() const {
    return {.data = product.c,
            .rows = product.m,
            .cols = product.n,
            .stride = product.ldc,
            .dtype = product.output_dtype};
  }
  [[nodiscard]] unsigned long long* fold() const {
    return static_cast<unsigned long long*>(fold_->data());
  }

 private:
  /// Larger than a device's caches (50 MiB), so that operands come from memory. The two sizes are
  /// coprime to each other and to row lengths: no pair of rows repeats within a sum, and the parts
  /// of a split sum differ.
  static constexpr std::size_t kAPieceBytes = std::size_t{2 * 31} << 20U;
  static constexpr std::size_t kBPieceBytes = std::size_t{2 * 37} << 20U;
  static constexpr std::size_t kWhole = std::numeric_limits<std::size_t>::max();

  TrialOperands(CudaStream& stream, const MatmulParams& p)
      : product(p),
        stream_(stream),
        a_(memory(p.transpose_a ? extent(p.k, p.m, p.lda) : extent(p.m, p.k, p.lda), p.dtype,
                  kAPieceBytes)),
        b_(memory(p.transpose_b ? extent(p.n, p.k, p.ldb) : extent(p.k, p.n, p.ldb), p.dtype,
                  kBPieceBytes)),
        c_(p.accumulate ? memory(extent(p.m, p.n, p.ldc), p.output_dtype, kWhole) : nullptr),
        fold_(RepeatedMemory::make(sizeof(unsigned long long), kWhole)) {}

  static std::unique_ptr<RepeatedMemory> memory(std::int64_t elements, DType dtype,
                                                std::size_t piece) {
    return RepeatedMemory::make(static_cast<std::size_t>(elements) * size_of(dtype), piece);
  }
  [[nodiscard]] bool there() const {
    return a_ != nullptr && b_ != nullptr && fold_ != nullptr &&
           (c_ != nullptr || !product.accumulate);
  }

  CudaStream& stream_;
  std::unique_ptr<RepeatedMemory> a_, b_, c_, fold_;
};

/// Tries the library's algorithms for one product on the device.
class Trial {
 public:
  Trial(const MatmulPlans& plans, CudaStream& stream, const MatmulPlan& plan,
        std::span<const cublasLtMatmulHeuristicResult_t> ways, const TrialOperands& operands)
      : plans_(plans),
        stream_(stream),
        plan_(plan),
        ways_(ways),
        operands_(operands),
        expected_(bits_of(0)) {}

  [[nodiscard]] std::size_t best() const {
    return choose_product(ways_.size(),
                          {.same_bits = [this](std::size_t way) { return same_bits(way); },
                           .seconds = [this](std::size_t way) { return seconds(way); }});
  }

 private:
  void launch(std::size_t way) const {
    plans_.launch(stream_, plan_, ways_[way].algo, operands_.product);
  }

  /// Hash of the result of an algorithm. Throws DeviceError.
  [[nodiscard]] unsigned long long bits_of(std::size_t way) const {
    unsigned long long fold = 0;
    // Refills the result: it is accumulated into, and elements an algorithm skips must not come
    // from another.
    cuda::fill_with_random(stream_, operands_.result());
    launch(way);
    TRAIN_CUDA_CHECK(cudaMemsetAsync(operands_.fold(), 0, sizeof(fold), stream_.native()));
    cuda::fold_bits(stream_, operands_.result(), operands_.fold());
    TRAIN_CUDA_CHECK(cudaMemcpyAsync(&fold, operands_.fold(), sizeof(fold), cudaMemcpyDefault,
                                     stream_.native()));
    TRAIN_CUDA_CHECK(cudaStreamSynchronize(stream_.native()));
    return fold;
  }

  [[nodiscard]] bool same_bits(std::size_t way) const {
    try {
      return bits_of(way) == expected_;
    } catch (const DeviceError&) {
      return false;  // The algorithm was proposed, but does not run.
    }
  }

  /// Fastest of a few runs.
  [[nodiscard]] double seconds(std::size_t way) const {
    using Clock = std::chrono::steady_clock;
    constexpr int times = 4;
    double least_s = std::numeric_limits<double>::infinity();
    for (int i = 0; i < times; ++i) {
      TRAIN_CUDA_CHECK(cudaStreamSynchronize(stream_.native()));
      const auto begin = Clock::now();
      launch(way);
      TRAIN_CUDA_CHECK(cudaStreamSynchronize(stream_.native()));
      least_s = std::min(least_s, std::chrono::duration<double>(Clock::now() - begin).count());
    }
    return least_s;
  }

  const MatmulPlans& plans_;
  CudaStream& stream_;
  const MatmulPlan& plan_;
  std::span<const cublasLtMatmulHeuristicResult_t> ways_;
  const TrialOperands& operands_;
  unsigned long long expected_;
};

}  // namespace

/// C = A B in rows is C = B A in columns, so the operands are swapped.
MatmulPlan MatmulPlans::make(CudaStream& stream, const MatmulParams& p) const {
  MatmulPlan plan;
  cublasLtMatmulDesc_t desc = nullptr;
  // No TF32: products of fp32 differ from the CPU's only in the order of sums. Products of bf16 are
  // exact, and summed in fp32.
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
  const Ways ways = ways_of(plan, p);
  plan.algorithm = ways.front().algo;
  if (ways.size() > 1 && worth_a_trial(p)) {
    const auto operands = TrialOperands::make(stream, p);
    if (operands != nullptr) {
      const Trial trial(*this, stream, plan, ways, *operands);
      plan.algorithm = ways[trial.best()].algo;
    }
  }
  return plan;
}

MatmulPlans::Ways MatmulPlans::ways_of(const MatmulPlan& plan, const MatmulParams& p) const {
  cublasLtMatmulPreference_t made = nullptr;
  check_library(cublas_lt().preference_create(&made), "cublasLtMatmulPreferenceCreate");
  const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t,
                        decltype(&cublasLtMatmulPreferenceDestroy)>
      preference(made, cublas_lt().preference_destroy);
  set(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  // Partial sums of a split k must be added in one order, from the workspace.
  set(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const ProductAlignment alignment = alignment_of(p);
  // The library's left operand is B.
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment.b_bytes);
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment.a_bytes);
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment.c_bytes);
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment.c_bytes);
  constexpr int most_ways = 8;
  Ways ways(most_ways);
  int found = 0;
  check_library(cublas_lt().heuristic(handle_, plan.desc.get(), plan.left.get(), plan.right.get(),
                                      plan.result.get(), plan.result.get(), made, most_ways,
                                      ways.data(), &found),
                "cublasLtMatmulAlgoGetHeuristic");
  ways.resize(static_cast<std::size_t>(found));
  std::erase_if(ways, [](const auto& way) { return way.state != CUBLAS_STATUS_SUCCESS; });
  if (ways.empty()) {
    throw DeviceError(
        fmt::format("matmul: cuBLASLt knows no way for m={} n={} k={}", p.m, p.n, p.k));
  }
  return ways;
}

void MatmulPlans::launch(CudaStream& stream, const MatmulPlan& plan,
                         const cublasLtMatmulAlgo_t& algorithm, const MatmulParams& p) const {
  const float one = 1.0F;
  const float old = p.accumulate ? 1.0F : 0.0F;
  check_library(cublas_lt().matmul(handle_, plan.desc.get(), &one, p.b, plan.left.get(), p.a,
                                   plan.right.get(), &old, p.c, plan.result.get(), p.c,
                                   plan.result.get(), &algorithm, stream.scratch(kWorkspaceBytes),
                                   kWorkspaceBytes, stream.native()),
                "cublasLtMatmul");
}

namespace cuda {

std::string gemm_library() {
  const std::size_t version = cublas_lt().version();
  return fmt::format("cublaslt-{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

void matmul(CudaStream& stream, const MatmulParams& p) {
  if (p.m == 0 || p.n == 0 || (p.k == 0 && p.accumulate)) {
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
  stream.plans()->multiply(stream, p);
}

}  // namespace cuda
}  // namespace train::kernels
