#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/step_gemm.hpp"

// The GEMM libraries that bench_gemm compares, behind one call.
namespace train::bench {

/// A product with its operands, row-major and dense as stored.
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
  /// Whether it takes such a product; run() is for those alone.
  [[nodiscard]] virtual bool takes(const Product& /*product*/) const { return true; }
  /// What comes before the first run of these operands and is not timed: code, packed weights.
  virtual void prepare(const Operands& operands, int threads) = 0;
  /// The product that was prepared last, so many times, one after the other. Blocks. Throws
  /// std::runtime_error.
  virtual void run(int times) = 0;
};

/// The kernel of the engine, oneDNN's three ways, and those of BLIS and OpenBLAS that are
/// installed.
[[nodiscard]] std::vector<std::unique_ptr<GemmLibrary>> gemm_libraries();

}  // namespace train::bench
