#pragma once

#include <cstdint>
#include <string>

namespace train::configs {

/// [optimizer]. Each optimizer has some of these keys, with its own defaults (optimizer_table.hpp);
/// the defaults here are those of AdamW, and unused values.
struct OptimizerSection {
  std::string name = "adamw";  ///< One of optimizer_table.hpp.
  double lr = 1e-3;            ///< Peak learning rate.
  double beta1 = 0.9;          ///< Decay of the first moment.
  double beta2 = 0.95;         ///< Decay of the second moment.
  double eps = 1e-8;           ///< Added to the root of the second moment.
  double weight_decay = 0.1;   ///< Decoupled decay of the "decay" group.
  double grad_clip = 1.0;      ///< Clip of the global gradient norm; 0: off.

  double delta = 8.0;                         ///< Averages move by delta / (delta + t).
  double kappa = 0.85;                        ///< Momentum is scaled by time^(1 - kappa).
  double clipsnr = 1.0;                       ///< Largest scaled signal-to-noise ratio.
  double gamma_3_factor = 1.0;                ///< Factor of the momentum term.
  bool wd_decaying = true;                    ///< Multiply weight decay by 1 / (1 + t / wd_ts).
  double wd_ts = 1.0;                         ///< Steps.
  std::string wd_coupling = "schedule_only";  ///< Decay × lr / peak, or × lr.

  double beta3 = 0.0;             ///< Decay of the slow average; 0: 1 - delta / run.steps.
  double alpha = 0.0;             ///< Weight of the slow average; 0: run.steps^(1 - kappa).
  std::int64_t beta3_warmup = 0;  ///< Steps from beta1 to beta3; 0: none.
  std::int64_t alpha_warmup = 0;  ///< Steps from 0 to alpha; 0: none.

  double momentum = 0.95;     ///< Momentum decay of matrices.
  bool nesterov = true;       ///< Use Nesterov momentum.
  std::int64_t ns_steps = 5;  ///< Iterations of the orthogonalisation.
  double matched_rms = 0.2;   ///< Root mean square of a matrix's update over lr.
};

/// [schedule]: learning rate as a function of the step.
struct ScheduleSection {
  std::string name = "cos";              ///< "cos", "linear", "cos_inf", "wsd" or "constant".
  std::int64_t warmup_steps = 0;         ///< Steps of warm-up.
  double div_factor = 100.0;             ///< lr starts at peak / div_factor.
  double final_div_factor = 1.0;         ///< lr ends at peak / (div_factor * final_div_factor).
  std::int64_t constant_tail_steps = 0;  ///< cos_inf: last steps at the floor.
  double decay_fraction = 0.1;           ///< wsd: fraction of the run's steps that decay.
  std::string decay_shape = "linear";    ///< wsd: shape of the decay.
  double decay_floor = 0.0;              ///< wsd: last learning rate over the peak.
};

/// wsd: number of last steps in which the learning rate decays: the fraction, rounded down.
[[nodiscard]] inline std::int64_t wsd_decay_steps(const ScheduleSection& schedule,
                                                  std::int64_t run_steps) {
  return static_cast<std::int64_t>(schedule.decay_fraction * static_cast<double>(run_steps));
}

}  // namespace train::configs
