#pragma once

#include <catch2/catch.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.hpp"

// What the kernels' tests share: inputs, runs on streams, comparisons, finite differences.
namespace train::kernels::testing {

using Values = std::vector<float>;
using Exact = std::vector<double>;

/// Uniform in (-scale, scale), the same for the same seed.
inline Values random_values(std::int64_t count, unsigned seed, float scale = 1.0F) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-scale, scale);
  Values values(static_cast<std::size_t>(count));
  for (float& value : values) {
    value = uniform(generator);
  }
  return values;
}

/// The CPU's kernel sets that this processor has.
inline std::vector<const KernelTable*> cpu_kernel_sets() {
  std::vector<const KernelTable*> sets = {&cpu_backend()};
  if (cpu_bf16_backend() != nullptr) {
    sets.push_back(cpu_bf16_backend());
  }
  return sets;
}

inline Values zeros(std::int64_t count) { return Values(static_cast<std::size_t>(count), 0.0F); }

/// A value that no kernel writes: shows what was left alone.
constexpr float untouched = -777.25F;
inline Values untouched_values(std::int64_t count) {
  return Values(static_cast<std::size_t>(count), untouched);
}

inline Exact exact(const Values& values) { return {values.begin(), values.end()}; }

/// Runs `work` on a stream with `threads` threads and waits; rethrows its failure.
inline void run(const std::function<void(Stream&)>& work, int threads = 2) {
  const auto stream = make_thread_stream("test", threads);
  work(*stream);
  stream->synchronize();
}

/// |actual - expected| <= tolerance * (1 + |expected|), everywhere.
inline void require_near(const Values& actual, const Exact& expected, double tolerance,
                         const std::string& what) {
  REQUIRE(actual.size() == expected.size());
  std::size_t worst = 0;
  double worst_error = -1.0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double error =
        std::abs(static_cast<double>(actual[i]) - expected[i]) / (1.0 + std::abs(expected[i]));
    if (!(error <= worst_error)) {  // NaN counts as worse.
      worst = i;
      worst_error = error;
    }
  }
  if (!actual.empty()) {
    INFO(what << ": element " << worst << " is " << actual[worst] << ", not " << expected[worst]);
    REQUIRE(worst_error <= tolerance);
  }
}

/// `compute(threads)` must give the same bits for 1, 2 and 3 threads.
inline void require_same_bits(const std::function<Values(int)>& compute, const std::string& what) {
  const Values one = compute(1);
  for (const int threads : {2, 3}) {
    const Values other = compute(threads);
    INFO(what << " with " << threads << " threads");
    REQUIRE(one.size() == other.size());
    const std::size_t size_bytes = one.size() * sizeof(float);
    REQUIRE((one.empty() || std::memcmp(one.data(), other.data(), size_bytes) == 0));
  }
}

inline Values joined(std::initializer_list<Values> parts) {
  Values all;
  for (const Values& part : parts) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

/// Gradient of `loss` at `x` by central differences in double. Truncation and rounding are both
/// near 1e-9 for losses of size 1.
inline Exact finite_differences(Exact x, const std::function<double(const Exact&)>& loss) {
  constexpr double h = 1e-5;
  Exact gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + h;
    const double above = loss(x);
    x[i] = at - h;
    const double below = loss(x);
    x[i] = at;
    gradient[i] = (above - below) / (2.0 * h);
  }
  return gradient;
}

inline double dot(const Exact& left, const Values& right) {
  double sum = 0.0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    sum += left[i] * static_cast<double>(right[i]);
  }
  return sum;
}

inline std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

}  // namespace train::kernels::testing
