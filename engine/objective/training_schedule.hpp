#pragma once

#include <cstdint>

#include "base/result.hpp"

namespace train::engine {

/// Layers that each step trains, for objectives whose steps do not train all layers. Embedding and
/// head are frozen then, and so is every layer that no step trains.
///
/// Threading: immutable. Pure functions of options and step, the same on every rank.
class TrainingSchedule {
 public:
  TrainingSchedule() = default;
  virtual ~TrainingSchedule() = default;
  TrainingSchedule(const TrainingSchedule&) = delete;
  TrainingSchedule& operator=(const TrainingSchedule&) = delete;

  /// Error (user): the schedule does not fit the number of layers or of steps.
  [[nodiscard]] virtual Status check(std::int64_t layers, std::int64_t steps) const = 0;
  /// Some step trains the layer; the other parameters are frozen.
  [[nodiscard]] virtual bool ever_trains(std::int64_t layer) const = 0;
  /// True if step `step` (from 0) trains the layer; otherwise its gradient is 0.
  [[nodiscard]] virtual bool trains(std::int64_t layer, std::int64_t step) const = 0;
  /// The number of the layer's update in step `step`, from 1; 0: it has none.
  [[nodiscard]] virtual std::int64_t update_number(std::int64_t layer, std::int64_t step) const = 0;

  /// Each layer is trained in one phase alone, and no other step touches it: it needs gradients,
  /// masters and moments for that phase only.
  [[nodiscard]] virtual bool state_by_phase() const = 0;
  /// First step after the phase that contains `step`, clamped to the last phase.
  [[nodiscard]] virtual std::int64_t phase_end(std::int64_t step) const = 0;
  /// Step `step` is the first of a phase that is not the first one.
  [[nodiscard]] bool begins_phase(std::int64_t step) const {
    return step > 0 && phase_end(step - 1) == step && phase_end(step) > step;
  }
};

}  // namespace train::engine
