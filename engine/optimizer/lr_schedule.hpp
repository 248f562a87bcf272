#pragma once

#include <cstdint>

#include "configs/optimizer_section.hpp"
#include "engine/base/result.hpp"

namespace train::engine {

/// Learning rate of update `step` (from 0) of `total_steps`. Pure. The schedules and their edge
/// cases (warm-up 0 and 1) follow reference tables: "cos" is OneCycle with a cosine warm-up,
/// "cos_inf" a linear warm-up, cosine, and a constant floor; "constant" a linear warm-up, then the
/// peak. REQUIRES: a validated section.
[[nodiscard]] double learning_rate(const configs::ScheduleSection& schedule, double peak,
                                   std::int64_t step, std::int64_t total_steps);

}  // namespace train::engine
