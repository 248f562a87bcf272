#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/model/architectures/architectures.hpp"
#include "tests/engine/rank/small_model.hpp"

namespace train::engine::testing {

/// Sequential unlearning of a small model: layer 1 in steps 0 to 2, layer 0 in steps 3 to 5.
inline WorldStep::Options two_phases(std::int64_t ranks, const std::string& strategy) {
  auto options = small_options(Architecture::enoki);
  options.model.z_loss_coeff = 0.0F;
  options.total_steps = 6;
  options.objective.name = "sequential_unlearning";
  options.objective.first_layer = 1;
  options.objective.layer_stride = 1;
  options.objective.steps_per_layer = 3;
  options.parallel.ranks = ranks;
  options.parallel.strategy = strategy;
  return options;
}

/// Rows of a stream that is `later` steps ahead, `weight` being that of all their targets.
inline WorldStep::FillLane stream_rows(const WorldStep::Options& options, std::int64_t later,
                                       float weight) {
  return [text = repeating_text(options), length = options.seq_len, later, weight](
             std::int64_t step, std::int64_t lane, const LaneSlot& slot) {
    text(step + later, lane, slot.tokens.data(), slot.targets.data());
    std::fill(slot.weights.begin(), slot.weights.end(), weight);
    for (std::size_t row = 0; row < slot.positions.size(); ++row) {
      slot.positions[row] = static_cast<std::int32_t>(static_cast<std::int64_t>(row) % length);
    }
  };
}

}  // namespace train::engine::testing
