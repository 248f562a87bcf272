#pragma once

#include <cstdint>
#include <span>

#include "engine/objective/row_weighting.hpp"

namespace train::engine {

/// A lane's place where the host fills it: micro_batch * seq_len elements of each column, none of
/// those that the objective does not have.
struct LaneSlot {
  std::span<std::int32_t> tokens;
  std::span<std::int32_t> targets;
  std::span<std::int32_t> positions;
  std::span<float> weights;
  /// Space for the most documents a lane can have; a sequence of 0 rows ends the list if it fits.
  std::span<LaneSequence> sequences = {};
  /// Source of each of the micro_batch rows of a mixture; -1: padding.
  std::span<std::int32_t> sources = {};
};

}  // namespace train::engine
