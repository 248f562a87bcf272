#include "engine/objective/pass.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/math/fixed_math.hpp"
#include "engine/philox.hpp"

namespace train::engine {

double HeadLoss::unit(std::int64_t vocab) const {
  const std::int64_t classes = top_k > 0 ? std::min(top_k, vocab) : vocab;
  return per_entropy ? 1.0 / fixed::log(static_cast<double>(classes)) : 1.0;
}

std::string pass_name(std::size_t number) {
  return number == 0   ? "first pass"
         : number == 1 ? "second pass"
                       : fmt::format("pass {}", number + 1);
}

std::int32_t drawn_target(std::uint64_t seed, std::int64_t step, std::int64_t row,
                          std::int64_t vocab) {
  // The key tells steps apart, the position rows; a product of 64 bits is uniform to one part in
  // 2^64 / vocab.
  const auto of_step = philox_at(seed, static_cast<std::uint64_t>(step), RandomDomain::targets);
  const std::uint64_t key = (static_cast<std::uint64_t>(of_step[0]) << 32U) | of_step[1];
  const auto words = philox_at(key, static_cast<std::uint64_t>(row), RandomDomain::targets);
  const std::uint64_t high =
      static_cast<std::uint64_t>(words[0]) * static_cast<std::uint64_t>(vocab);
  const std::uint64_t low =
      (static_cast<std::uint64_t>(words[1]) * static_cast<std::uint64_t>(vocab)) >> 32U;
  return static_cast<std::int32_t>((high + low) >> 32U);
}

void draw_targets(std::uint64_t seed, std::int64_t step, std::int64_t first_row, std::int64_t vocab,
                  std::span<std::int32_t> targets) {
  for (std::size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] >= 0) {
      targets[row] = drawn_target(seed, step, first_row + static_cast<std::int64_t>(row), vocab);
    }
  }
}

}  // namespace train::engine
