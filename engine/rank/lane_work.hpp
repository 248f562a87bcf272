#pragma once

#include <cstdint>

#include "engine/collective/collective_schedule.hpp"

namespace train::engine {

/// What a lane is run for.
enum class LanePurpose : std::uint8_t {
  train,           ///< Forward and backward; the gradient enters the step's sum.
  evaluate,        ///< Forward alone, on validation tokens.
  find_nonfinite,  ///< Forward and backward of a training lane, counting NaN and Inf; no weight
                   ///< changes.
};

/// The kind of command that has such lanes.
[[nodiscard]] constexpr CommandKind command_of(LanePurpose purpose) {
  switch (purpose) {
    case LanePurpose::train:
      return CommandKind::train_step;
    case LanePurpose::evaluate:
      return CommandKind::evaluate;
    case LanePurpose::find_nonfinite:
      return CommandKind::find_nonfinite;
  }
  return CommandKind::stop;
}

/// Names one lane of one command; `slot` holds its tokens.
struct LaneWork {
  LanePurpose purpose = LanePurpose::train;
  std::int64_t step = 0;
  std::int64_t lane = 0;
  std::int32_t slot = 0;
  std::int64_t round = 0;     ///< Of this rank's lanes (LaneSchedule).
  std::uint64_t command = 0;  ///< Number of the command in the conductor's stream.
};

/// Where one unit's pass finds the shared memory that its group has reserved.
struct UnitBuffers {
  std::int32_t gather = -1;  ///< Reservation of the gathered weights; -1: they are resident.
  std::int32_t gradient_buffer =
      -1;  ///< Reservation of the gradient buffer of the lane's gradient (backward of training).
};

}  // namespace train::engine
