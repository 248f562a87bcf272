#include <algorithm>
#include <cmath>
#include <limits>

#include "base/math/fixed_math.hpp"
#include "kernels/cpu_support.hpp"
#include "kernels/head/logit_row.hpp"

namespace train::kernels::cpu {
namespace {

float slope_of(const RowLossRow& row, std::int64_t column) {
  return row.slopes == nullptr ? 1.0F : row.slopes[column];
}

}  // namespace

RowLossTerms divergence_of_row(const RowLossRow& row, const float* reference,
                               float largest_of_reference) {
  static thread_local Scratch scratch;
  auto* expected = scratch.get<float>(row.count);
  const RowExponentials of_reference =
      exponentiate_row(reference, row.count, largest_of_reference, expected);
  double above = 0.0;
  for (std::int64_t v = 0; v < row.count; ++v) {
    // An impossible token has -Inf in both.
    above += expected[v] > 0.0F
                 ? static_cast<double>(expected[v]) *
                       (static_cast<double>(reference[v]) - static_cast<double>(row.logits[v]))
                 : 0.0;
  }
  const RowExponentials own =
      exponentiate_row(row.logits, row.count, row.largest, row.gradient ? row.logits : nullptr);
  const auto scale = static_cast<double>(row.scale);
  const auto factor = static_cast<float>(scale / own.sum);
  const auto factor_of_reference = static_cast<float>(scale / of_reference.sum);
  for (std::int64_t v = 0; row.gradient && v < row.count; ++v) {
    row.logits[v] = (factor * row.logits[v] - factor_of_reference * expected[v]) * slope_of(row, v);
  }
  // Equal rows give exactly 0: the first term is 0, and both logarithms have the same bits.
  return {.loss = above / of_reference.sum + (own.lse - of_reference.lse), .lse = own.lse};
}

RowLossTerms top_entropy_of_row(const RowLossRow& row, std::int64_t top) {
  static thread_local Scratch scratch;
  auto* exponentials = scratch.get<float>(row.count);
  const RowExponentials all = exponentiate_row(row.logits, row.count, row.largest, exponentials);
  if (std::isnan(all.lse)) {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    if (row.gradient) {
      std::fill_n(row.logits, row.count, std::numeric_limits<float>::quiet_NaN());
    }
    return {.loss = nan, .lse = nan};
  }
  const TopLogits found = top_of_row(row.logits, row.count, top);
  // In vocabulary order: the exponentials have the same bits on every processor.
  const auto each_of_top = [&](const auto& visit) {
    std::int64_t equal = found.equal;
    for (std::int64_t v = 0; v < row.count; ++v) {
      const bool chosen =
          row.logits[v] > found.least || (row.logits[v] == found.least && equal-- > 0);
      visit(v, chosen);
    }
  };
  double sum = 0.0;
  double below = 0.0;
  each_of_top([&](std::int64_t v, bool chosen) {
    sum += chosen ? static_cast<double>(exponentials[v]) : 0.0;
    below += chosen ? static_cast<double>(row.logits[v]) - static_cast<double>(row.largest) : 0.0;
  });
  if (row.gradient) {
    const auto factor = static_cast<float>(static_cast<double>(row.scale) / sum);
    const float uniform = row.scale / static_cast<float>(top);
    each_of_top([&](std::int64_t v, bool chosen) {
      row.logits[v] = chosen ? (factor * exponentials[v] - uniform) * slope_of(row, v) : 0.0F;
    });
  }
  return {.loss = fixed::log(sum) - below / static_cast<double>(top), .lse = all.lse};
}

}  // namespace train::kernels::cpu
