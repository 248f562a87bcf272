#include "run/plan/kept_checkpoints.hpp"

#include <algorithm>
#include <numeric>

namespace train::run {

checkpoint::RetentionRule retention_rule(const configs::RunConfig& config) {
  const configs::CheckpointSection& section = config.checkpoint;
  return {.keep_last = section.keep_last,
          .keep_every = section.keep_every,
          .keep_best = config.eval.interval_steps > 0 ? section.keep_best : 0};
}

std::int64_t most_checkpoints(const configs::RunConfig& config) {
  const checkpoint::RetentionRule rule = retention_rule(config);
  const std::int64_t steps = config.run.steps;
  const std::int64_t interval = config.checkpoint.interval_steps;
  // The last step is saved whatever the interval.
  const auto multiples_to_end = [steps](std::int64_t of) {
    return of > 0 ? (steps - 1) / of + 1 : 1;
  };
  const std::int64_t saves = multiples_to_end(interval);
  if (rule.keep_last == 0) {
    return saves;
  }
  const std::int64_t landmarks =
      rule.keep_every > 0 ? multiples_to_end(std::lcm(interval, rule.keep_every)) : 0;
  return std::min(saves, rule.keep_last + landmarks + rule.keep_best + 1);
}

}  // namespace train::run
