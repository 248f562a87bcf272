#pragma once

#include <cstdint>

namespace train {

/// What clocks of the product count a second as.
inline constexpr std::int64_t kSecond = 1'000'000'000;

}  // namespace train
