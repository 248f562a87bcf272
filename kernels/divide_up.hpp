#pragma once

#include <cstdint>

namespace train::kernels {

[[nodiscard]] constexpr std::int64_t divide_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

}  // namespace train::kernels
