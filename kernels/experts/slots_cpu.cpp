#include <algorithm>

#include "kernels/cpu_support.hpp"
#include "kernels/experts/experts.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/experts/slots_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

void combine_row(const CombineRowsParams& p, std::int64_t row) {
  const Floats d;
  const auto* parts = static_cast<const float*>(p.parts);
  const std::int32_t* places = p.places + row * p.slots;
  const float* weights = p.weights == nullptr ? nullptr : p.weights + row * p.slots;
  float* y = static_cast<float*>(p.y) + row * p.cols;
  each_vector(0, p.cols, [&](std::int64_t i, auto part) {
    FloatVec sum = hn::Zero(d);
    for (std::int64_t slot = 0; slot < p.slots; ++slot) {
      const FloatVec of_slot = load(d, parts + places[slot] * p.cols + i, part);
      sum = weights == nullptr ? hn::Add(of_slot, sum)
                               : hn::MulAdd(hn::Set(d, weights[slot]), of_slot, sum);
    }
    store(p.accumulate ? hn::Add(load(d, y + i, part), sum) : sum, d, y + i, part);
  });
}

void weigh_place(const SlotWeightsBackwardParams& p, std::int64_t place) {
  const Floats d;
  const std::int32_t slot = p.slot_of[place];
  const FloatVec weight = hn::Set(d, p.weights[slot]);
  float* dh = static_cast<float*>(p.dh) + place * p.cols;
  float* h = static_cast<float*>(p.h) + place * p.cols;
  Floats16 sum(0.0F);
  each_sixteen(0, p.cols, [&](std::int64_t i, auto part, auto which) {
    const FloatVec gradient = load(d, dh + i, part);
    const FloatVec value = load(d, h + i, part);
    sum[which] = hn::MulAdd(gradient, value, sum[which]);
    store(hn::Mul(gradient, weight), d, dh + i, part);
    store(hn::Mul(value, weight), d, h + i, part);
  });
  p.dweights[slot] = sum_of(sum);
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(combine_row);
HWY_EXPORT(weigh_place);

void gather_rows(const GatherRowsParams& p, int threads) {
  const auto* x = static_cast<const float*>(p.x);
  auto* y = static_cast<float*>(p.y);
  each_row(threads, p.count, p.cols, [&](std::int64_t place) {
    std::copy_n(x + p.index[place] * p.cols, p.cols, y + place * p.cols);
  });
}

void combine_rows(const CombineRowsParams& p, int threads) {
  const auto one = HWY_DYNAMIC_DISPATCH(combine_row);
  each_row(threads, p.rows, p.cols * p.slots, [&](std::int64_t row) { one(p, row); });
}

void slot_weights_backward(const SlotWeightsBackwardParams& p, int threads) {
  const auto one = HWY_DYNAMIC_DISPATCH(weigh_place);
  each_row(threads, p.count, p.cols, [&](std::int64_t place) { one(p, place); });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
