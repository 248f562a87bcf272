#define XXH_INLINE_ALL
#include "engine/unit_state.hpp"

#include <xxhash.h>

#include <algorithm>
#include <span>
#include <utility>

namespace train::engine {
namespace {

std::size_t flat_bytes(const UnitParameters& unit) {
  return static_cast<std::size_t>(unit.element_count) * sizeof(float);
}

StateView whole_view(std::string name, const Parameter& parameter, float* flat) {
  return {.name = std::move(name),
          .global_shape = parameter.shape(),
          .first_row = 0,
          .rows = parameter.rows,
          .data = reinterpret_cast<std::byte*>(flat + parameter.offset),
          .size_bytes = static_cast<std::size_t>(parameter.count()) * sizeof(float)};
}

}  // namespace

UnitState::UnitState(const UnitParameters& unit)
    : unit_(unit),
      weights_(flat_bytes(unit), unit.name + " weights"),
      exp_avg_(flat_bytes(unit), unit.name + " exp_avg"),
      exp_avg_sq_(flat_bytes(unit), unit.name + " exp_avg_sq") {}

void UnitState::initialise(const ModelShape& shape, const InitOptions& options) {
  for (const Parameter& parameter : unit_.parameters) {
    const std::span<float> out(weights() + parameter.offset,
                               static_cast<std::size_t>(parameter.count()));
    fill_initial_rows(parameter, shape, options, 0, parameter.rows, out);
  }
  std::fill_n(exp_avg(), unit_.element_count, 0.0F);
  std::fill_n(exp_avg_sq(), unit_.element_count, 0.0F);
}

std::vector<StateView> UnitState::state_views() const {
  std::vector<StateView> views;
  for (const Parameter& parameter : unit_.parameters) {
    views.push_back(whole_view("model." + parameter.name, parameter, weights()));
    views.push_back(whole_view("optimizer.exp_avg." + parameter.name, parameter, exp_avg()));
    views.push_back(whole_view("optimizer.exp_avg_sq." + parameter.name, parameter, exp_avg_sq()));
  }
  return views;
}

std::uint64_t weights_digest(const UnitParameters& unit, const float* weights) {
  std::uint64_t digest = 0;
  for (const Parameter& parameter : unit.parameters) {
    const std::uint64_t name = XXH3_64bits(parameter.name.data(), parameter.name.size());
    const float* row = weights + parameter.offset;
    for (std::int64_t r = 0; r < parameter.rows; ++r, row += parameter.cols) {
      const std::uint64_t seed =
          XXH3_64bits_withSeed(&name, sizeof(name), static_cast<std::uint64_t>(r));
      digest +=
          XXH3_64bits_withSeed(row, static_cast<std::size_t>(parameter.cols) * sizeof(float), seed);
    }
  }
  return digest;
}

}  // namespace train::engine
