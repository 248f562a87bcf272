#include "bench/kernels/gemm_libraries.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <omp.h>
#include <dnnl.hpp>

#include <cstdint>
#include <stdexcept>
#include <unordered_map>

#include "kernels/backend.hpp"
#include "kernels/gemm/matmul.hpp"

namespace train::bench {
namespace {

std::int64_t stored_columns(const Product& p, bool left) {
  if (left) {
    return p.transpose_a ? p.m : p.k;
  }
  return p.transpose_b ? p.k : p.n;
}

class OurKernel final : public GemmLibrary {
 public:
  [[nodiscard]] std::string name() const override { return "engine"; }

  void prepare(const Operands& operands, int threads) override {
    const Product& p = operands.product;
    if (!stream_ || stream_->threads() != threads) {
      stream_ = kernels::make_thread_stream("bench", threads);
    }
    params_ = {.a = operands.a,
               .b = operands.b,
               .c = operands.c,
               .m = p.m,
               .n = p.n,
               .k = p.k,
               .lda = stored_columns(p, true),
               .ldb = stored_columns(p, false),
               .ldc = p.n,
               .transpose_a = p.transpose_a,
               .transpose_b = p.transpose_b};
  }
  /// As in a step: the stream has the next product before this one ends.
  void run(int times) override {
    for (int i = 0; i < times; ++i) {
      kernels::cpu_backend().matmul(*stream_, params_);
    }
    stream_->synchronize();
  }

 private:
  std::unique_ptr<kernels::Stream> stream_;
  kernels::MatmulParams params_;
};

class DnnlSgemm final : public GemmLibrary {
 public:
  [[nodiscard]] std::string name() const override { return "oneDNN sgemm"; }

  void prepare(const Operands& operands, int threads) override {
    operands_ = operands;
    omp_set_num_threads(threads);
  }
  void run(int times) override {
    for (int i = 0; i < times; ++i) {
      multiply();
    }
  }

 private:
  void multiply() const {
    const Product& p = operands_.product;
    const dnnl_status_t status = dnnl_sgemm(
        p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.m, p.n, p.k, 1.0F, operands_.a,
        stored_columns(p, true), operands_.b, stored_columns(p, false), 0.0F, operands_.c, p.n);
    if (status != dnnl_success) {
      throw std::runtime_error(fmt::format("dnnl_sgemm: status {}", static_cast<int>(status)));
    }
  }

  Operands operands_;
};

/// Primitive of oneDNN, with the right operand as stored or in the library's preferred layout.
class DnnlPrimitive final : public GemmLibrary {
 public:
  explicit DnnlPrimitive(bool packed) : packed_(packed) {}

  [[nodiscard]] std::string name() const override {
    return packed_ ? "oneDNN packed" : "oneDNN matmul";
  }
  /// Weights are the right operand of all products except the weight gradient.
  [[nodiscard]] bool takes(const Product& product) const override {
    return !packed_ || !product.transpose_a;
  }

  void prepare(const Operands& operands, int threads) override {
    using Desc = dnnl::memory::desc;
    const Product& p = operands.product;
    omp_set_num_threads(threads);
    const auto type = dnnl::memory::data_type::f32;
    const auto desc = [&](std::int64_t rows, std::int64_t columns, bool transposed) {
      return transposed ? Desc({rows, columns}, type, {1, rows})
                        : Desc({rows, columns}, type, {columns, 1});
    };
    const Desc left = desc(p.m, p.k, p.transpose_a);
    const Desc right = desc(p.k, p.n, p.transpose_b);
    const Desc result = desc(p.m, p.n, false);
    const Desc wanted = packed_ ? Desc({p.k, p.n}, type, dnnl::memory::format_tag::any) : right;
    const dnnl::matmul::primitive_desc plan({left, wanted, result}, engine_);
    const auto memory = [&](const Desc& of, const float* data) {
      return dnnl::memory(of, engine_, const_cast<float*>(data));
    };
    dnnl::memory weights = memory(right, operands.b);
    if (plan.weights_desc() != right) {
      dnnl::memory as_liked(plan.weights_desc(), engine_);
      dnnl::reorder(weights, as_liked).execute(stream_, weights, as_liked);
      stream_.wait();
      weights = as_liked;
    }
    matmul_ = dnnl::matmul(plan);
    arguments_ = {{DNNL_ARG_SRC, memory(left, operands.a)},
                  {DNNL_ARG_WEIGHTS, weights},
                  {DNNL_ARG_DST, memory(result, operands.c)}};
  }
  void run(int times) override {
    for (int i = 0; i < times; ++i) {
      matmul_.execute(stream_, arguments_);
    }
    stream_.wait();
  }

 private:
  bool packed_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::matmul matmul_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

/// Library with the interface of Fortran's BLAS, column-major: C^T = op(B)^T op(A)^T.
class FortranBlas final : public GemmLibrary {
 public:
  using Sgemm = void (*)(const char*, const char*, const int*, const int*, const int*, const float*,
                         const float*, const int*, const float*, const int*, const float*, float*,
                         const int*);
  using SetThreads = void (*)(std::intptr_t);

  FortranBlas(std::string name, Sgemm sgemm, SetThreads set_threads)
      : name_(std::move(name)), sgemm_(sgemm), set_threads_(set_threads) {}

  [[nodiscard]] std::string name() const override { return name_; }
  void prepare(const Operands& operands, int threads) override {
    operands_ = operands;
    omp_set_num_threads(threads);
    set_threads_(threads);
  }
  void run(int times) override {
    const Product& p = operands_.product;
    const auto m = static_cast<int>(p.m);
    const auto n = static_cast<int>(p.n);
    const auto k = static_cast<int>(p.k);
    const auto lda = static_cast<int>(stored_columns(p, true));
    const auto ldb = static_cast<int>(stored_columns(p, false));
    const float one = 1.0F;
    const float zero = 0.0F;
    for (int i = 0; i < times; ++i) {
      sgemm_(p.transpose_b ? "T" : "N", p.transpose_a ? "T" : "N", &n, &m, &k, &one, operands_.b,
             &ldb, operands_.a, &lda, &zero, operands_.c, &n);
    }
  }

 private:
  std::string name_;
  Sgemm sgemm_;
  SetThreads set_threads_;
  Operands operands_;
};

/// Adds the library, if it is installed.
void add_installed(std::vector<std::unique_ptr<GemmLibrary>>& libraries, const char* name,
                   const char* file, const char* threads) {
  void* library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  void* sgemm = library == nullptr ? nullptr : ::dlsym(library, "sgemm_");
  void* set_threads = library == nullptr ? nullptr : ::dlsym(library, threads);
  if (sgemm == nullptr || set_threads == nullptr) {
    fmt::print("{}: not installed\n", name);
    return;
  }
  libraries.push_back(
      std::make_unique<FortranBlas>(name, reinterpret_cast<FortranBlas::Sgemm>(sgemm),
                                    reinterpret_cast<FortranBlas::SetThreads>(set_threads)));
}

}  // namespace

std::vector<std::unique_ptr<GemmLibrary>> gemm_libraries() {
  std::vector<std::unique_ptr<GemmLibrary>> libraries;
  libraries.push_back(std::make_unique<OurKernel>());
  libraries.push_back(std::make_unique<DnnlSgemm>());
  libraries.push_back(std::make_unique<DnnlPrimitive>(false));
  libraries.push_back(std::make_unique<DnnlPrimitive>(true));
  add_installed(libraries, "BLIS", "libblis.so.4", "bli_thread_set_num_threads");
  add_installed(libraries, "OpenBLAS", "libopenblas.so.0", "openblas_set_num_threads");
  return libraries;
}

}  // namespace train::bench
