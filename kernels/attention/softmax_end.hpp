#pragma once

#include <algorithm>

#include "base/math/fixed_math.hpp"

namespace train::kernels::cpu {

/// The end of a row's softmax.
struct SoftmaxEnd {
  float
      factor;  ///< Of the sums of values, which exponentials relative to the largest score weight.
  float lse;
};

/// From the largest score and the sum of exponentials relative to it. `sink`: one more score, or
/// nullptr.
inline SoftmaxEnd softmax_end(float largest, float sum, const float* sink) {
  if (sink == nullptr) {
    return {.factor = 1.0F / sum,
            .lse = static_cast<float>(static_cast<double>(largest) +
                                      fixed::log(static_cast<double>(sum)))};
  }
  const auto score = static_cast<double>(*sink);
  const double above = std::max(static_cast<double>(largest), score);
  const double kept = fixed::exp(static_cast<double>(largest) - above);
  const double total = kept * static_cast<double>(sum) + fixed::exp(score - above);
  return {.factor = static_cast<float>(kept / total),
          .lse = static_cast<float>(above + fixed::log(total))};
}

}  // namespace train::kernels::cpu
