#include "actors/run/run_command.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <caf/all.hpp>
#include <cstdio>
#include <memory>
#include <utility>

#include "actors/exit_codes.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/run/byte_text.hpp"
#include "actors/run/checkpoint_home.hpp"
#include "actors/run/run_directory.hpp"
#include "actors/run/run_plan.hpp"
#include "actors/run/signal_watcher.hpp"
#include "actors/run/training_system.hpp"
#include "actors/supervision.hpp"
#include "configs/field_table.hpp"
#include "configs/load_config.hpp"
#include "engine/base/log.hpp"
#include "engine/base/units.hpp"
#include "engine/text_generator.hpp"

namespace train::actors {
namespace {

constexpr double kPeakSeconds = 0.15;  // of measuring the GEMM peak at the start

/// A run that is ready to start: everything but its actors.
struct PreparedRun {
  configs::RunConfig config;
  RunDirectory directory;
  std::unique_ptr<CheckpointHome> home;
  RankContext context;
  std::int64_t first_step = 0;
  bool evaluation_missed = false;  ///< Of the first step, before the stop.
  double peak_flops = 0.0;

  [[nodiscard]] bool nothing_to_do() const {
    return first_step >= config.run.steps &&
           (config.eval.interval_steps == 0 || !evaluation_missed);
  }
};

int report_error(const Error& error) {
  log_error(error.message);
  return error.exit_code();
}

CheckpointHome::Options home_options(const configs::RunConfig& config,
                                     const RunDirectory& directory,
                                     const engine::RankEngine& engine) {
  checkpoint::ManifestFields fields;
  fields.lanes = config.batch.lanes;
  fields.micro_batch = config.batch.micro_batch;
  fields.kernel_set = engine::kernel_set_name();
  fields.config_text = configs::to_toml(config);
  return {.checkpoints = directory.checkpoints(),
          .index = directory.index(),
          .keep_last = config.checkpoint.keep_last,
          .tokens_per_step = engine.tokens_per_step(),
          .fields = std::move(fields)};
}

Result<PreparedRun> prepare_run(RunPlan plan, bool fresh) {
  auto directory = open_run_directory(plan.config, fresh);
  if (!directory) {
    return directory.error();
  }
  auto engine = engine::make_rank_engine(plan.config.runtime.device, plan.engine);
  if (!engine) {
    return engine.error();
  }
  auto home = CheckpointHome::open(home_options(plan.config, *directory, **engine));
  if (!home) {
    return home.error();
  }
  const auto first_step = (*home)->restore(**engine);
  if (!first_step) {
    return first_step.error();
  }
  const bool missed = *first_step > 0 && !evaluation_recorded(directory->root, *first_step);
  auto context =
      std::make_shared<RankRuntime>(std::move(engine).value(), std::move(plan.dataset),
                                    plan.config.run.seed, StreamKind::threads, plan.threads);
  return PreparedRun{.config = plan.config,
                     .directory = std::move(directory).value(),
                     .home = std::move(home).value(),
                     .context = std::move(context),
                     .first_step = *first_step,
                     .evaluation_missed = missed,
                     .peak_flops = engine::measure_peak_flops(plan.threads, kPeakSeconds)};
}

Result<std::unique_ptr<RunReport>> open_report(const PreparedRun& run) {
  const engine::RankEngine::Options& options = run.context->engine->options();
  return RunReport::open(
      {.directory = run.directory.root,
       .first_step = run.first_step,
       .total_steps = options.total_steps,
       .log_interval = run.config.run.log_interval_steps,
       .tokens_per_step = run.context->engine->tokens_per_step(),
       .flops_per_token = engine::flops_per_token(options.shape, options.seq_len),
       .peak_flops = run.peak_flops,
       .bytes_per_token = run.context->dataset.bytes_per_token(),
       .tensorboard = run.config.run.tensorboard,
       .terminal = isatty(STDOUT_FILENO) != 0,
       .out = stdout});
}

TrainingParts training_parts(const PreparedRun& run, std::shared_ptr<RunReport> report) {
  CheckpointHome* home = run.home.get();
  return {.context = run.context,
          .report = std::move(report),
          .write =
              [home](std::int64_t step, std::span<const engine::StateView> state) {
                return home->write(step, state);
              },
          .record = [home](std::int64_t step) { return home->record(step); },
          .program = {.first_step = run.first_step,
                      .total_steps = run.config.run.steps,
                      .eval_interval = run.config.eval.interval_steps,
                      .checkpoint_interval = run.config.checkpoint.interval_steps,
                      .evaluation_missed = run.evaluation_missed},
          .reporting = {.digest_interval = run.config.run.digest_interval_steps}};
}

/// Runs the actors until the conductor says that the run is over.
RunFinished train_to_end(const PreparedRun& run, std::shared_ptr<RunReport> report) {
  caf::actor_system_config config;
  // Handlers only enqueue and never wait, so one worker keeps up, and the compute threads keep the
  // cores; "sharing" sleeps where "stealing" would poll.
  config.set("scheduler.policy", caf::atom("sharing"));
  config.set("scheduler.max-threads", std::size_t{1});
  caf::actor_system system(config);
  RunFinished outcome;
  {
    caf::scoped_actor self(system);
    TrainingActors actors = start_training(system, training_parts(run, std::move(report)),
                                           caf::actor_cast<caf::actor>(self));
    const SignalWatcher signals([conductor = actors.conductor](int signal) {
      caf::anon_send(conductor, StopRequested{signal});
    });
    self->monitor(actors.conductor);  // nobody else would hear of its end
    self->receive([&outcome](const RunFinished& finished) { outcome = finished; },
                  [&outcome, &run](const caf::down_msg& down) {
                    outcome = {run.first_step, kExitFailure, failure_text(down.reason)};
                  });
    stop_training(actors);
  }
  system.await_all_actors_done();
  return outcome;
}

void show_sample(const PreparedRun& run) {
  const engine::RankEngine& engine = *run.context->engine;
  const auto& facts = run.context->dataset.facts();
  if (run.config.run.sample_tokens == 0 || facts.tokenizer.value_or("") != "bytes") {
    return;
  }
  std::vector<const float*> weights;
  for (std::size_t unit = 0; unit < engine.unit_count(); ++unit) {
    weights.push_back(engine.state(unit).weights());
  }
  engine::TextGenerator generator(engine.kernel_table(), engine.options().shape,
                                  engine.options().seq_len, std::move(weights));
  std::string text = run.config.run.sample_prompt;
  generator.generate(*run.context->compute,
                     {.prompt = encode_bytes(run.config.run.sample_prompt),
                      .tokens = run.config.run.sample_tokens,
                      .vocab = facts.vocab_size.value_or(engine.options().shape.vocab_size),
                      .sampling = {.seed = run.config.run.seed}},
                     [&text](std::int32_t token) {
                       text += show_byte(token);
                       return !signal_pending();
                     });
  std::fputs(fmt::format("sample:\n{}\n", text).c_str(), stdout);
}

}  // namespace

int run_command(const cli::RunOptions& options) {
  const auto config = configs::load_config(options.config, options.set);
  if (!config) {
    return report_error(config.error());
  }
  auto plan = plan_run(*config);
  if (!plan) {
    return report_error(plan.error());
  }
  if (options.dry_run) {
    std::fputs(describe_plan(*plan).c_str(), stdout);
    return kExitFinished;
  }
  const auto run = prepare_run(std::move(plan).value(), options.fresh);
  if (!run) {
    return report_error(run.error());
  }
  if (options.fresh) {
    // The same command would begin yet another run.
    log_info(
        fmt::format("fresh_run directory={}; resume it with --set run.name={}, without --fresh",
                    run->directory.root.string(), run->directory.root.filename().string()));
  }
  if (run->nothing_to_do()) {
    log_info(
        fmt::format("run_finished all {} steps are done, nothing to do; raise run.steps to "
                    "train on, or start anew with --fresh",
                    run->config.run.steps));
    return kExitFinished;
  }
  auto report = open_report(*run);
  if (!report) {
    return report_error(report.error());
  }
  log_info(fmt::format("run_started directory={} step={} steps={} threads={} peak={}FLOP/s",
                       run->directory.root.string(), run->first_step, run->config.run.steps,
                       run->context->compute->threads(), format_count(run->peak_flops)));
  const RunFinished outcome = train_to_end(*run, std::move(report).value());
  if (outcome.exit_code != kExitFinished && outcome.exit_code != kExitStopped) {
    log_error(outcome.text);
    return outcome.exit_code;
  }
  log_info(fmt::format("run_finished {}", outcome.text));
  if (outcome.exit_code == kExitFinished) {
    show_sample(*run);
  }
  return outcome.exit_code;
}

}  // namespace train::actors
