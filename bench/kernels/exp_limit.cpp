#include "bench/kernels/exp_limit.hpp"

#include <algorithm>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/kernels/exp_limit.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// exp of x, in its place.
void exps_of(const float* x, float* y, std::int64_t count) {
  const Floats d;
  each_vector(0, count, [&](std::int64_t i, auto part) {
    store(exp_of_negative(d, load(d, x + i, part)), d, y + i, part);
  });
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(exps_of);

/// The function for this processor.
static auto exps_of_best() { return HWY_DYNAMIC_DISPATCH(exps_of); }

}  // namespace train::kernels::cpu

namespace train::bench {

double exps_from_cache(std::int64_t count) {
  constexpr std::int64_t of_call = 2048;  // 8 KB in, 8 KB out.
  static const std::vector<float> x = [] {
    std::vector<float> made(of_call);
    for (std::size_t i = 0; i < made.size(); ++i) {
      made[i] = -static_cast<float>(i % 97) * 0.1F;
    }
    return made;
  }();
  static std::vector<float> y(of_call);
  const auto exps = kernels::cpu::exps_of_best();
  for (std::int64_t done = 0; done < count; done += of_call) {
    exps(x.data(), y.data(), std::min(of_call, count - done));
  }
  return static_cast<double>(y.front()) + static_cast<double>(y.back());
}

}  // namespace train::bench
#endif
