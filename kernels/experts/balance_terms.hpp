#pragma once

#include <cstddef>

#include "kernels/kinds.hpp"

namespace train::kernels {

/// One balancing loss, a term of the training loss as coeff times its value. n: rows of a group or,
/// summed, of the lane; c: choices; P: mean probabilities.
struct BalanceTerm {
  BalanceKind kind = BalanceKind::switch_loss;
  BalanceScope scope = BalanceScope::lane;
  float coeff = 0.0F;
};
inline constexpr std::size_t kMostBalanceTerms = 4;

}  // namespace train::kernels
