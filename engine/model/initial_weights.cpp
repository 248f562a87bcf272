#define XXH_INLINE_ALL
#include "engine/model/initial_weights.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/check.hpp"
#include "base/math/fixed_math.hpp"
#include "engine/philox.hpp"

namespace train::engine {
namespace {

/// Normal values of elements [4 * block, 4 * block + 4). Box & Muller 1958, in double.
std::array<double, 4> normal_block(std::uint64_t key, std::uint64_t block) {
  const auto words = philox_at(key, block, RandomDomain::initial_weights);
  std::array<double, 4> values{};
  for (std::size_t pair = 0; pair < 2; ++pair) {
    const double radius = std::sqrt(-2.0 * fixed::log(open_unit(words[2 * pair])));
    const double angle = 2.0 * std::numbers::pi * open_unit(words[2 * pair + 1]);
    const auto [sin, cos] = fixed::sin_cos(angle);
    values[2 * pair] = radius * cos;
    values[2 * pair + 1] = radius * sin;
  }
  return values;
}

/// Values of the same elements between -1 and 1.
std::array<double, 4> uniform_block(std::uint64_t key, std::uint64_t block) {
  const auto words = philox_at(key, block, RandomDomain::initial_weights);
  std::array<double, 4> values{};
  for (std::size_t i = 0; i < 4; ++i) {
    values[i] = 2.0 * open_unit(words[i]) - 1.0;
  }
  return values;
}

/// The inverse of softplus: log(exp(step) - 1).
double before_softplus(double step) { return step + fixed::log(-fixed::expm1(-step)); }

/// Steps between the initializer's bounds, from numbers between -1 and 1.
double step_bias(const Initializer& init, double uniform) {
  const double low = fixed::log(init.low);
  const double high = fixed::log(init.high);
  const double step = fixed::exp(low + (high - low) * (uniform + 1.0) / 2.0);
  return before_softplus(std::max(step, init.least));
}

}  // namespace

double initial_std(const Parameter& parameter, const ModelSpec& spec, const InitOptions& options) {
  const double fan_in =
      static_cast<double>(parameter.fan_in == 0 ? parameter.cols() : parameter.fan_in);
  const auto branches = static_cast<double>(spec.branch_count());
  const bool residual = parameter.init.kind == InitKind::residual_output;
  if (parameter.init.kind == InitKind::range) {
    return (parameter.init.high - parameter.init.low) / std::sqrt(12.0);
  }
  if (parameter.init.kind == InitKind::log_place || parameter.init.kind == InitKind::step_bias) {
    return 0.0;  // No scheme's element.
  }
  switch (options.scheme) {
    case InitScheme::scaled_gpt:
      // The embedding's columns are embedding_dim, so 1/sqrt(fan_in) is its rule as well.
      return 1.0 / std::sqrt(residual ? fan_in * branches : fan_in);
    case InitScheme::karpathy_gpt2:
      return residual ? options.init_std / std::sqrt(branches) : options.init_std;
    case InitScheme::standard:
      return parameter.init.kind == InitKind::embedding ? 1.0 : 1.0 / std::sqrt(fan_in);
  }
  TRAIN_CHECK(false, "init scheme {}", static_cast<int>(options.scheme));
  return 0.0;
}

void fill_initial_rows(const Parameter& parameter, const ModelSpec& spec,
                       const InitOptions& options, std::int64_t first_row, std::int64_t rows,
                       std::span<float> out) {
  TRAIN_CHECK(first_row >= 0 && rows >= 0 && first_row + rows <= parameter.rows());
  TRAIN_CHECK(out.size() == static_cast<std::size_t>(rows * parameter.cols()));
  const Initializer& init = parameter.init;
  if (init.is_constant()) {
    std::fill(out.begin(), out.end(), static_cast<float>(init.low));
    return;
  }
  const auto first = static_cast<std::uint64_t>(first_row * parameter.cols());
  const std::uint64_t end = first + out.size();
  if (init.kind == InitKind::log_place) {
    const auto places = static_cast<std::uint64_t>(parameter.shape.back());
    for (std::uint64_t i = first; i < end; ++i) {
      out[i - first] = static_cast<float>(fixed::log(static_cast<double>(i % places + 1)));
    }
    return;
  }
  const bool steps = init.kind == InitKind::step_bias;
  const bool uniform = init.kind == InitKind::range || steps;
  const double centre = uniform ? (init.low + init.high) / 2.0 : 0.0;
  const double scale =
      uniform ? (init.high - init.low) / 2.0 : initial_std(parameter, spec, options);
  const std::uint64_t key =
      XXH3_64bits_withSeed(parameter.name.data(), parameter.name.size(), options.seed);
  for (std::uint64_t block = first / 4; 4 * block < end; ++block) {
    const std::array<double, 4> values =
        uniform ? uniform_block(key, block) : normal_block(key, block);
    for (std::uint64_t i = std::max(first, 4 * block); i < std::min(end, 4 * block + 4); ++i) {
      const double value = values[i % 4];
      out[i - first] = static_cast<float>(steps ? step_bias(init, value) : centre + scale * value);
    }
  }
}

}  // namespace train::engine
