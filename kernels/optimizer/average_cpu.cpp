#include "kernels/cpu_support.hpp"
#include "kernels/optimizer/average.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizer/average_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

void average_range(const AverageParams::Tensor& tensor, float share, std::int64_t begin,
                   std::int64_t end) {
  const Floats d;
  const FloatVec of_weights = hn::Set(d, share);
  each_vector(begin, end, [&](std::int64_t i, auto part) {
    const FloatVec average = load(d, tensor.average + i, part);
    const FloatVec kept = hn::NegMulAdd(of_weights, average, average);
    store(hn::MulAdd(of_weights, load(d, tensor.p + i, part), kept), d, tensor.average + i, part);
  });
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(average_range);

void average_update(const AverageParams& p, int threads) {
  const auto range = HWY_DYNAMIC_DISPATCH(average_range);
  for (const AverageParams::Tensor& tensor : p.tensors) {
    each_block(threads, tensor.count, range, tensor, p.share);
  }
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
