#include "kernels/experts/router_row.hpp"

#include <limits>

#include "kernels/head/logit_row.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/experts/router_row_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

void divide_row(const float* x, std::int64_t count, float by, float* y) {
  const Floats d;
  const FloatVec divisor = hn::Set(d, by);
  each_vector(0, count, [&](std::int64_t i, auto part) {
    store(hn::Div(load(d, x + i, part), divisor), d, y + i, part);
  });
}

void sigmoids_of_row(const float* logits, std::int64_t count, float* sigmoids, float* complements) {
  const Floats d;
  each_vector(0, count, [&](std::int64_t i, auto part) {
    const FloatVec x = load(d, logits + i, part);
    store(sigmoid(d, x), d, sigmoids + i, part);
    if (complements != nullptr) {
      store(sigmoid(d, hn::Neg(x)), d, complements + i, part);
    }
  });
}

void choice_scores_of_row(const float* scores, const float* bias, std::int64_t count, float* keys) {
  const Floats d;
  const FloatVec lowest = hn::Set(d, kLowest);
  each_vector(0, count, [&](std::int64_t i, auto part) {
    FloatVec key = load(d, scores + i, part);
    if (bias != nullptr) {
      key = hn::Add(key, load(d, bias + i, part));
    }
    store(hn::IfThenElse(hn::IsNaN(key), lowest, key), d, keys + i, part);
  });
}

/// The second largest is the largest again, if several have its value.
float two_largest_of_row(const float* keys, std::int64_t count) {
  const Floats d;
  const FloatVec lowest = hn::Set(d, kLowest);
  FloatVec maxima = lowest;
  each_vector(0, count, [&](std::int64_t i, auto part) {
    maxima = hn::Max(maxima, counted_or(load(d, keys + i, part), lowest, d, part));
  });
  const FloatVec largest = hn::MaxOfLanes(d, maxima);
  FloatVec others = lowest;
  std::size_t equal = 0;
  each_vector(0, count, [&](std::int64_t i, auto part) {
    // Elements that do not count equal no largest but -Inf, whose sum is the same with any others.
    const FloatVec key = counted_or(load(d, keys + i, part), lowest, d, part);
    const auto is_largest = hn::Eq(key, largest);
    equal += hn::CountTrue(d, is_largest);
    others = hn::Max(others, hn::IfThenElse(is_largest, lowest, key));
  });
  const FloatVec second = equal > 1 ? largest : hn::MaxOfLanes(d, others);
  const float sum = hn::GetLane(hn::Add(largest, second));
  return sum == sum ? sum : kLowest;
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(divide_row);
HWY_EXPORT(sigmoids_of_row);
HWY_EXPORT(choice_scores_of_row);
HWY_EXPORT(two_largest_of_row);

double router_probabilities(const float* logits, std::int64_t experts, float* probabilities) {
  const RowExponentials row =
      exponentiate_row(logits, experts, max_of_row(logits, experts), probabilities);
  const auto divide = HWY_DYNAMIC_DISPATCH(divide_row);
  divide(probabilities, experts, static_cast<float>(row.sum), probabilities);
  return row.lse;
}

void router_sigmoids(const float* logits, std::int64_t experts, float* sigmoids,
                     float* complements) {
  HWY_DYNAMIC_DISPATCH(sigmoids_of_row)(logits, experts, sigmoids, complements);
}

void router_shares(const float* sigmoids, std::int64_t experts, float* shares) {
  const auto sum = static_cast<float>(sum_of_row(sigmoids, experts));
  HWY_DYNAMIC_DISPATCH(divide_row)(sigmoids, experts, sum, shares);
}

void router_choice_scores(const float* scores, const float* bias, std::int64_t experts,
                          float* choice_scores) {
  HWY_DYNAMIC_DISPATCH(choice_scores_of_row)(scores, bias, experts, choice_scores);
}

float router_group_score(const float* choice_scores, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(two_largest_of_row)(choice_scores, count);
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
