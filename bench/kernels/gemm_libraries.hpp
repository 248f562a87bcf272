#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/steps/step_gemm.hpp"

// GEMM libraries compared by bench_gemm, behind one interface.
namespace train::bench {

/// Product with its operands, row-major and dense as stored.
struct Operands {
  Product product;
  const float* a = nullptr;
  const float* b = nullptr;
  float* c = nullptr;
};

class GemmLibrary {
 public:
  GemmLibrary() = default;
  GemmLibrary(const GemmLibrary&) = delete;
  GemmLibrary& operator=(const GemmLibrary&) = delete;
  virtual ~GemmLibrary() = default;

  [[nodiscard]] virtual std::string name() const = 0;
  /// True if it supports the product; run() requires that.
  [[nodiscard]] virtual bool takes(const Product& /*product*/) const { return true; }
  /// Untimed preparation for these operands: code, packed weights.
  virtual void prepare(const Operands& operands, int threads) = 0;
  /// Runs the prepared product `times` times. Blocks. Throws std::runtime_error.
  virtual void run(int times) = 0;
};

/// The engine's kernel, oneDNN in three ways, and BLIS and OpenBLAS if installed.
[[nodiscard]] std::vector<std::unique_ptr<GemmLibrary>> gemm_libraries();

}  // namespace train::bench
