#include <limits>

#include "configs/fields/optimizer_table.hpp"
#include "configs/rules/rules.hpp"

namespace train::configs {

void check_optimizer(const RunConfig& config, Rules& rules) {
  const OptimizerSection& optimizer = config.optimizer;
  const auto steps = static_cast<double>(config.run.steps);
  rules.refuse_if(
      has_key(optimizer.name, "beta3") && optimizer.beta3 == 0.0 && steps <= optimizer.delta,
      "optimizer.beta3",
      "is 0, which stands for 1 - optimizer.delta ({}) / run.steps ({}) and must be "
      "above 0; set optimizer.beta3",
      optimizer.delta, config.run.steps);
  rules.refuse_if(
      optimizer.eps > 0.0 && optimizer.eps < static_cast<double>(std::numeric_limits<float>::min()),
      "optimizer.eps",
      "is {}, which is 0 in the floats that updates are computed in; the smallest of "
      "them is {}, and the default 1e-8",
      optimizer.eps, std::numeric_limits<float>::min());
  rules.refuse_if(optimizer.beta3_warmup > 0 && has_key(optimizer.name, "beta3_warmup") &&
                      optimizer.beta1 == 0.0,
                  "optimizer.beta3_warmup",
                  "begins at optimizer.beta1, which must be above 0 then");
}

void check_schedule(const RunConfig& config, Rules& rules) {
  const ScheduleSection& schedule = config.schedule;
  const std::int64_t steps = config.run.steps;
  rules.refuse_if(schedule.constant_tail_steps > 0 && schedule.name != "cos_inf",
                  "schedule.constant_tail_steps",
                  "belongs to schedule \"cos_inf\", not \"{}\"; set it to 0", schedule.name);
  rules.refuse_if(schedule.warmup_steps + schedule.constant_tail_steps > steps,
                  "schedule.constant_tail_steps",
                  "({}) and schedule.warmup_steps ({}) exceed run.steps ({})",
                  schedule.constant_tail_steps, schedule.warmup_steps, steps);
  if (schedule.name != "wsd") {
    return;
  }
  const std::int64_t decay_steps = wsd_decay_steps(schedule, steps);
  rules.refuse_if(schedule.warmup_steps + decay_steps > steps, "schedule.decay_fraction",
                  "({}) of run.steps ({}) is {} steps, which exceed the run together with "
                  "schedule.warmup_steps ({})",
                  schedule.decay_fraction, steps, decay_steps, schedule.warmup_steps);
  rules.refuse_if(schedule.decay_shape == "exp" && schedule.decay_floor <= 0.0,
                  "schedule.decay_floor",
                  "must be above 0 with schedule.decay_shape \"exp\", which multiplies the "
                  "learning rate by powers of it");
}

void check_scaling(const RunConfig& config, Rules& rules) {
  const ScalingSection& scaling = config.scaling;
  rules.refuse_if(scaling.rule.empty(), "scaling.rule", "is empty; \"none\" uses no rule");
  rules.refuse_if(scaling.rule == "none" && (scaling.heads != 0 || !scaling.table.empty()),
                  scaling.heads != 0 ? "scaling.heads" : "scaling.table",
                  "has no effect while scaling.rule is \"none\"; name a rule");
}

}  // namespace train::configs
