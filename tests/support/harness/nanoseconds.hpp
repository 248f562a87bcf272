#pragma once

#include <cstdint>

namespace train {

/// One second in the unit of the production clocks.
inline constexpr std::int64_t kSecond = 1'000'000'000;

}  // namespace train
