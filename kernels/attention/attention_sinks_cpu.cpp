#include "kernels/attention/attention.hpp"
#include "kernels/cpu_support.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_sinks_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Sum of exp(sink - lse) delta over `count` rows. The exponents are not positive: lse includes the
/// sink.
float sink_sum(float sink, const float* lse, const float* delta, std::int64_t count) {
  const Floats d;
  Floats16 sums(0.0F);
  each_sixteen(0, count, [&](std::int64_t i, auto part, auto which) {
    const FloatVec p = exp_of_negative(d, hn::Sub(hn::Set(d, sink), load(d, lse + i, part)));
    // Lanes past the end hold exp(sink), which may be infinite, and infinity times zero is NaN.
    const FloatVec counted = counted_or(p, hn::Zero(d), d, part);
    sums[which] = hn::MulAdd(counted, load(d, delta + i, part), sums[which]);
  });
  return sum_of(sums);
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(sink_sum);

void attention_sinks_backward(const AttentionSinksBackwardParams& p, int threads) {
  const auto sum = HWY_DYNAMIC_DISPATCH(sink_sum);
  parallel_for(threads, p.heads, [&](std::int64_t head, int) {
    float gradient = 0.0F;
    for (std::int64_t sequence = 0; sequence < p.sequences; ++sequence) {
      const std::int64_t row = (sequence * p.heads + head) * p.seq_len;
      gradient -= sum(p.sinks[head], p.lse + row, p.delta + row, p.seq_len);
    }
    p.dsinks[head] = gradient;
  });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
