#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model/model.hpp"
#include "kernels/backend.hpp"
#include "kernels/device/buffer.hpp"

namespace train::engine {

/// Squared norm of one unit's gradient: sums of rows, a canonical tree over the rows of a
/// parameter, then over its parameters. A row is never split, so the value is the same at any
/// sharding. Ownership: owns scratch. Threading: one owner; calls only enqueue.
class UnitSquaredNorm {
 public:
  UnitSquaredNorm(const kernels::KernelTable& kernels, const UnitParameters& unit);
  /// Enqueues *out = squared norm of `gradient` (flat).
  void compute(kernels::Stream& stream, const float* gradient, double* out);

 private:
  const kernels::KernelTable* kernels_;
  std::vector<Parameter> parameters_;
  kernels::Buffer row_sums_, parameter_sums_;
};

/// Bytes of scratch that a UnitSquaredNorm of `unit` owns.
[[nodiscard]] std::size_t squared_norm_bytes(const UnitParameters& unit);

}  // namespace train::engine
