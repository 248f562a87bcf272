#pragma once

#include <cstddef>
#include <cstdint>

namespace train {

/// Bytes of `elements` elements; REQUIRES: not negative.
[[nodiscard]] inline std::size_t bytes_of(std::int64_t elements, std::size_t element_size) {
  return static_cast<std::size_t>(elements) * element_size;
}

/// Bytes of `elements` fp32 values.
[[nodiscard]] inline std::size_t floats(std::int64_t elements) {
  return bytes_of(elements, sizeof(float));
}

}  // namespace train
