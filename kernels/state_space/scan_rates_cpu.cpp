#include "kernels/state_space/scan_rates.hpp"

#include <algorithm>

#include "kernels/state_space/selective_scan.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/state_space/scan_rates_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Rates of one block of channels, state by state.
void rates_of_block(const float* a_log, std::int64_t channels, std::int64_t states, float* rates) {
  alignas(64) float row[kMostScanStates];
  const Floats d;
  std::fill_n(rates, states * kScanChannels, 0.0F);
  for (std::int64_t c = 0; c < channels; ++c) {
    each_vector(0, states, [&](std::int64_t n, auto part) {
      store(hn::Neg(exp_of(d, load(d, a_log + c * states + n, part))), d, row + n, part);
    });
    for (std::int64_t n = 0; n < states; ++n) {
      rates[n * kScanChannels + c] = row[n];
    }
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(rates_of_block);

const float* scan_rates(const float* a_log, std::int64_t channels, std::int64_t states, int threads,
                        Scratch& scratch) {
  const std::int64_t blocks = divide_up(channels, kScanChannels);
  auto* rates = scratch.get<float>(blocks * states * kScanChannels);
  const auto one = HWY_DYNAMIC_DISPATCH(rates_of_block);
  parallel_for(threads, blocks, [&](std::int64_t block, int) {
    const std::int64_t first = block * kScanChannels;
    one(a_log + first * states, std::min(kScanChannels, channels - first), states,
        rates + first * states);
  });
  return rates;
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
