#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/result.hpp"
#include "engine/parameter.hpp"

namespace train::engine {

/// Source of weights that are not drawn at random: a published model's files.
/// Threading: any number of calls at a time.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// Rows [first_row, first_row + rows) of the parameter, in fp32. Blocks on what holds them.
  /// Errors: those of reading.
  [[nodiscard]] virtual Status read_rows(const Parameter& parameter, std::int64_t first_row,
                                         std::int64_t rows, std::span<float> out) const = 0;
  /// Row at which a piece of about `rows` rows from `first_row` on had better end, so that reading
  /// the next piece reads nothing twice.
  [[nodiscard]] virtual std::int64_t piece_end(const Parameter& parameter, std::int64_t first_row,
                                               std::int64_t rows) const {
    return std::min(first_row + rows, parameter.rows());
  }
};

}  // namespace train::engine
