#include "engine/gradient_norm.hpp"

#include <algorithm>

namespace train::engine {
namespace {

std::size_t row_sum_bytes(const UnitParameters& unit) {
  std::int64_t rows = 0;
  for (const Parameter& parameter : unit.parameters) {
    rows = std::max(rows, parameter.rows);
  }
  return static_cast<std::size_t>(rows) * sizeof(double);
}

std::size_t parameter_sum_bytes(const UnitParameters& unit) {
  return unit.parameters.size() * sizeof(double);
}

}  // namespace

UnitSquaredNorm::UnitSquaredNorm(const kernels::KernelTable& kernels, const UnitParameters& unit)
    : kernels_(&kernels),
      parameters_(unit.parameters),
      row_sums_(row_sum_bytes(unit), unit.name + " row sums"),
      parameter_sums_(parameter_sum_bytes(unit), unit.name + " parameter sums") {}

void UnitSquaredNorm::compute(kernels::Stream& stream, const float* gradient, double* out) {
  auto* parameter_sums = parameter_sums_.as<double>();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    kernels_->row_square_sums(stream, {.x = gradient + parameter.offset,
                                       .row_sums = row_sums_.as<double>(),
                                       .rows = parameter.rows,
                                       .cols = parameter.cols});
    kernels_->tree_sum(
        stream,
        {.values = row_sums_.as<double>(), .out = parameter_sums + i, .count = parameter.rows});
  }
  kernels_->tree_sum(stream, {.values = parameter_sums,
                              .out = out,
                              .count = static_cast<std::int64_t>(parameters_.size())});
}

std::size_t squared_norm_bytes(const UnitParameters& unit) {
  return row_sum_bytes(unit) + parameter_sum_bytes(unit);
}

}  // namespace train::engine
