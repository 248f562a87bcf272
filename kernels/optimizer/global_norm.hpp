#pragma once

#include <cstdint>
#include <vector>

namespace train::kernels {

struct UpdateGuard;

/// row_sums[r] = sum over columns of x[r,c]^2 in double, in a fixed order that depends on cols
/// alone. A row is never split between ranks, so the sums are equal for any sharding.
struct RowSquareSumsParams {
  struct Tensor {
    const float* x = nullptr;
    double* row_sums = nullptr;  ///< [rows].
    std::int64_t rows = 0, cols = 0;
  };
  std::vector<Tensor> tensors = {};
};

/// *out = sum of values[i * stride], i in [0, count), in the canonical binary tree (split at the
/// largest power of two below the count).
struct TreeSumParams {
  struct Sum {
    const double* values = nullptr;
    double* out = nullptr;
    std::int64_t count = 0;
    std::int64_t stride = 1;
  };
  std::vector<Sum> sums = {};  ///< No sum reads another's output.
};

/// Fills the guard from the squared norm and the loss sums of all lanes; sets nonfinite (and never
/// clears it) if the norm or the loss is not finite.
struct ClipScaleParams {
  const double* squared_norm = nullptr;
  const double* cross_entropy = nullptr;  ///< Sum over all lanes.
  const double* z_squared = nullptr;      ///< Sum over all lanes.
  UpdateGuard* guard = nullptr;
  double loss_scale = 1.0;
  double z_scale = 0.0;
  float clip = 0.0F;
};

}  // namespace train::kernels
