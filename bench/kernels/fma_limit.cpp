#include "bench/kernels/fma_limit.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/kernels/fma_limit.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace train::bench::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Runs `times` operations on enough independent chains to hide the latency; returns the number of
/// floating-point operations. Stores the result in *to, so that it is not optimised away.
double chains(std::int64_t times, float* to) {
  constexpr int count = 12;
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.5F);
  const auto term = hn::Set(d, 1.0F);
  hn::Vec<hn::ScalableTag<float>> sums[count];
#pragma GCC unroll 12
  for (int i = 0; i < count; ++i) {
    sums[i] = hn::Set(d, static_cast<float>(i));
  }
  for (std::int64_t t = 0; t < times; ++t) {
#pragma GCC unroll 12
    for (int i = 0; i < count; ++i) {
      sums[i] = hn::MulAdd(sums[i], factor, term);
    }
  }
#pragma GCC unroll 12
  for (int i = 1; i < count; ++i) {
    sums[0] = hn::Add(sums[0], sums[i]);
  }
  *to = hn::GetLane(sums[0]);
  return 2.0 * count * static_cast<double>(times) * static_cast<double>(hn::Lanes(d));
}

}  // namespace train::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::bench {

HWY_EXPORT(chains);

double fma_limit(int threads, double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t times = 100'000;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  std::vector<double> best(static_cast<std::size_t>(threads), 0.0);
  std::vector<std::thread> team;
  for (double& of_thread : best) {
    team.emplace_back([&of_thread, end] {
      do {
        float result = 0.0F;
        const auto begin = Clock::now();
        const double flop = HWY_DYNAMIC_DISPATCH(chains)(times, &result);
        const std::chrono::duration<double> taken = Clock::now() - begin;
        of_thread = std::max(of_thread, result == 0.0F ? 0.0 : flop / taken.count());
      } while (Clock::now() < end);
    });
  }
  double sum = 0.0;
  for (std::size_t i = 0; i < team.size(); ++i) {
    team[i].join();
    sum += best[i];
  }
  return sum;
}

}  // namespace train::bench
#endif
