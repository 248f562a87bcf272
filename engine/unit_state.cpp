#define XXH_INLINE_ALL
#include "engine/unit_state.hpp"

#include <xxhash.h>

#include <algorithm>
#include <span>
#include <string_view>
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

std::uint64_t rows_digest(std::string_view name, std::int64_t first_row, std::int64_t rows,
                          const void* data, std::size_t row_bytes) {
  const std::uint64_t name_hash = XXH3_64bits(name.data(), name.size());
  const auto* row = static_cast<const std::byte*>(data);
  std::uint64_t digest = 0;
  for (std::int64_t r = 0; r < rows; ++r, row += row_bytes) {
    const std::uint64_t seed = XXH3_64bits_withSeed(&name_hash, sizeof(name_hash),
                                                    static_cast<std::uint64_t>(first_row + r));
    digest += XXH3_64bits_withSeed(row, row_bytes, seed);
  }
  return digest;
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
    digest += rows_digest(parameter.name, 0, parameter.rows, weights + parameter.offset,
                          static_cast<std::size_t>(parameter.cols) * sizeof(float));
  }
  return digest;
}

std::uint64_t weights_digest(std::span<const StateView> state) {
  constexpr std::string_view kModel = "model.";
  std::uint64_t digest = 0;
  for (const StateView& view : state) {
    if (view.rows > 0 && view.name.starts_with(kModel)) {
      digest +=
          rows_digest(std::string_view(view.name).substr(kModel.size()), view.first_row, view.rows,
                      view.data, view.size_bytes / static_cast<std::size_t>(view.rows));
    }
  }
  return digest;
}

}  // namespace train::engine
