#include "configs/rules/rules.hpp"

namespace train::configs {

void check_evaluation(const RunConfig& config, Rules& rules) {
  const EvalSection& eval = config.eval;
  rules.refuse_if(config.run.sample_interval_steps > 0 && config.run.sample_tokens == 0,
                  "run.sample_interval_steps",
                  "is {}, but run.sample_tokens is 0; give the samples a length, for example 64",
                  config.run.sample_interval_steps);
  rules.refuse_if(!eval.choices.empty() && choices_interval(eval) == 0, "eval.choices",
                  "has no effect while eval.interval_steps is 0, which never evaluates; set "
                  "eval.choices_interval_steps to answer them alone");
  rules.refuse_if(eval.choices.empty() && eval.choices_interval_steps > 0,
                  "eval.choices_interval_steps",
                  "has no effect without eval.choices; name files of questions");
  rules.refuse_if(config.train.stop_after.patience > 0 && eval.interval_steps == 0,
                  "train.stop_after.patience",
                  "waits for evaluations, but eval.interval_steps is 0, which never evaluates; set "
                  "it, or leave train.stop_after out");
}

void check_checkpoint(const RunConfig& config, Rules& rules) {
  const CheckpointSection& checkpoint = config.checkpoint;
  rules.refuse_if(checkpoint.local_dir.empty(), "checkpoint.local_dir",
                  "is empty; \"none\" writes checkpoints straight to the run's directory");
  const std::int64_t evaluated = config.eval.interval_steps;
  rules.refuse_if(
      checkpoint.keep_best > 1 && (evaluated == 0 || checkpoint.interval_steps % evaluated != 0),
      "checkpoint.keep_best",
      "is {}, which needs every checkpoint evaluated: eval.interval_steps ({}) must divide "
      "checkpoint.interval_steps ({})",
      checkpoint.keep_best, evaluated, checkpoint.interval_steps);
  rules.refuse_if(config.recovery.snapshot_interval_steps == 1, "recovery.snapshot_interval_steps",
                  "is 1: a snapshot would begin while other ranks still make the one before; use 2 "
                  "or more, or 0 for none");
}

}  // namespace train::configs
