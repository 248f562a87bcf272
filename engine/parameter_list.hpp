#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/parameter.hpp"

namespace train::engine {

/// The parameters of one unit as its blocks add them; gives each its place in the flat buffers.
class ParameterList {
 public:
  /// Appends `parameter` and returns its offset. Offsets are multiples of 16 elements (64 bytes).
  std::int64_t add(Parameter parameter) {
    parameter.offset = element_count_;
    const std::int64_t end = element_count_ + parameter.count();
    element_count_ = (end + kAlignment - 1) / kAlignment * kAlignment;
    parameters_.push_back(std::move(parameter));
    return parameters_.back().offset;
  }

  [[nodiscard]] const std::vector<Parameter>& parameters() const { return parameters_; }
  /// Elements of the flat buffers, padding included.
  [[nodiscard]] std::int64_t element_count() const { return element_count_; }

 private:
  static constexpr std::int64_t kAlignment = 16;
  std::vector<Parameter> parameters_;
  std::int64_t element_count_ = 0;
};

}  // namespace train::engine
