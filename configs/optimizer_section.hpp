#pragma once

#include <cstdint>
#include <string>

namespace train::configs {

/// [optimizer]
struct OptimizerSection {
  std::string name = "adamw";  ///< "adamw".
  double lr = 1e-3;            ///< Peak learning rate.
  double beta1 = 0.9;          ///< Decay of the first moment.
  double beta2 = 0.95;         ///< Decay of the second moment.
  double eps = 1e-8;           ///< Added to the bias-corrected root.
  double weight_decay = 0.1;   ///< Decoupled decay of the "decay" group.
  double grad_clip = 1.0;      ///< Clip of the global gradient norm; 0: off.
};

/// [schedule]: learning rate as a function of the step.
struct ScheduleSection {
  std::string name = "cos";              ///< "cos", "linear", "cos_inf", "wsd" or "constant".
  std::int64_t warmup_steps = 0;         ///< Steps of warm-up.
  double div_factor = 100.0;             ///< lr starts at peak / div_factor.
  double final_div_factor = 1.0;         ///< lr ends at peak / (div_factor * final_div_factor).
  std::int64_t constant_tail_steps = 0;  ///< cos_inf: last steps at the floor.
  double decay_fraction = 0.1;           ///< wsd: share of the run's steps that decay.
  std::string decay_shape = "linear";    ///< wsd: how the learning rate falls.
  double decay_floor = 0.0;              ///< wsd: share of the peak that it falls to.
};

/// wsd: the last steps of a run, in which the learning rate falls: the fraction, rounded down.
[[nodiscard]] inline std::int64_t wsd_decay_steps(const ScheduleSection& schedule,
                                                  std::int64_t run_steps) {
  return static_cast<std::int64_t>(schedule.decay_fraction * static_cast<double>(run_steps));
}

}  // namespace train::configs
