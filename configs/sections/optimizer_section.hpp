#pragma once

#include <cstdint>
#include <string>

namespace train::configs {

// Meaning, unit and range of each member: its key in configs/fields/field_table.cpp.

/// [optimizer]. Each optimizer has some of these keys; the defaults hold unless optimizer_list.hpp
/// gives it another.
struct OptimizerSection {
  std::string name = "adamw";
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double grad_clip = 1.0;

  double delta = 8.0;
  double kappa = 0.85;
  double clipsnr = 2.0;
  double gamma_3_factor = 1.0;
  bool wd_decaying = true;
  double wd_ts = 1.0;
  std::string wd_coupling = "schedule_only";

  double beta3 = 0.0;
  double alpha = 0.0;
  std::int64_t beta3_warmup = 0;
  std::int64_t alpha_warmup = 0;

  double momentum = 0.95;
  bool nesterov = true;
  std::int64_t ns_steps = 5;
  double matched_rms = 0.2;
};

/// [schedule]: learning rate as a function of the step.
struct ScheduleSection {
  std::string name = "cos";
  std::int64_t warmup_steps = 0;
  double div_factor = 100.0;
  double final_div_factor = 1.0;
  std::int64_t constant_tail_steps = 0;
  double decay_fraction = 0.1;
  std::string decay_shape = "linear";
  double decay_floor = 0.0;
};

/// wsd: number of last steps in which the learning rate decays: the fraction, rounded down.
[[nodiscard]] inline std::int64_t wsd_decay_steps(const ScheduleSection& schedule,
                                                  std::int64_t run_steps) {
  return static_cast<std::int64_t>(schedule.decay_fraction * static_cast<double>(run_steps));
}

}  // namespace train::configs
