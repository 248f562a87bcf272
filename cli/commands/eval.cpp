#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "actors/train/runtime/rank_setup.hpp"
#include "base/math/fixed_math.hpp"
#include "base/process/stop_signals.hpp"
#include "base/text/log.hpp"
#include "checkpoint/format/run_identity.hpp"
#include "cli/audit/replay_parts.hpp"
#include "cli/checkpoints/config_warnings.hpp"
#include "cli/checkpoints/stored_run.hpp"
#include "cli/command.hpp"
#include "configs/fields/named_options.hpp"
#include "engine/rank/plan/run_device.hpp"
#include "run/plan/run_plan.hpp"
#include "run/report/choice_report.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::cli {
using namespace actors;
using namespace run;
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kPoll{500};  // Polling interval of the checkpoints directory.
constexpr std::int64_t kPublishedContext = 1024;

/// Configuration for evaluating `config`'s model on `ranks` ranks in this process.
configs::RunConfig evaluation_config(configs::RunConfig config, std::int64_t ranks) {
  config.parallel = {};
  config.parallel.ranks = ranks;
  config.parallel.strategy = ranks > 1 ? "full" : "none";
  config.parallel.transport = "inproc";
  if (config.eval.interval_steps == 0) {
    config.eval.interval_steps = 1;  // Set although the run never evaluated, as the user requests
                                     // it.
  }
  return config;
}

/// Configuration for answering questions only, with a run's or a published model's weights.
configs::RunConfig choice_config(configs::RunConfig config, const EvalOptions& options,
                                 const fs::path& root) {
  config = evaluation_config(std::move(config), options.ranks);
  config.run.dir = root.parent_path().string();
  config.run.name = root.filename().string();
  config.batch.lanes = options.ranks;
  config.objective = {};  // Nothing is trained here.
  config.data.sequence_length = options.context.value_or(config.data.sequence_length);
  config.eval.choices = options.choices;
  config.runtime.device = options.device.value_or(config.runtime.device);
  return config;
}

struct Evaluated {
  EvaluationFinished losses, answers;  ///< Results that were produced.
};

/// Runs two or three commands: evaluate, score, stop.
Result<Evaluated> evaluate(const std::vector<RankContext>& contexts, std::int64_t step) {
  const RankRuntime& first = *contexts.front();
  int left = 0;
  const auto interval_if = [&left](bool there) {
    left += there ? 1 : 0;
    return there ? std::int64_t{1} : std::int64_t{0};
  };
  Evaluated result;
  TRAIN_RETURN_IF_ERROR(
      run_local_ranks(contexts,
                      {.first_step = step,
                       .total_steps = step,
                       .live_reference = live_reference_of(first.data->facts().reference),
                       .eval_interval = interval_if(first.engine->options().eval_lanes > 0),
                       .choices_interval = interval_if(first.data->facts().choices != nullptr),
                       .evaluation_missed = true,
                       .choices_missed = true},
                      {.step = {}, .evaluation = [&](const EvaluationFinished& event) {
                         (event.of_choices ? result.answers : result.losses) = event;
                         return --left > 0;
                       }}));
  if (left > 0) {
    return failure("the ranks have stopped without an evaluation");
  }
  return result;
}

Status check_plan(const RunPlan& plan) {
  return engine::check_device(plan.config.runtime.device, plan.engine.model, kOtherDevice);
}

/// Writes one JSON line per question.
Status write_details(const std::string& path, const data::ChoiceSet& choices,
                     const ChoiceReport& report) {
  std::string text;
  for (const data::ScoredQuestion& question : choices.questions()) {
    const auto values =
        std::span(report.log_likelihoods).subspan(question.first_document, question.choices.size());
    nlohmann::ordered_json line = {{"source", choices.sources()[question.source]},
                                   {"line", question.line},
                                   {"answer", question.answer},
                                   {"likeliest", data::likeliest(values)},
                                   {"log_likelihoods", values}};
    text += line.dump() + "\n";
  }
  return storage::write_file_atomically(path, text);
}

/// Makes ranks in this process, with the weights of a checkpoint or their running average.
Result<std::vector<RankContext>> start_ranks(const RunPlan& plan, const StartState& start,
                                             bool average) {
  auto contexts = TRAIN_TRY(make_local_ranks(plan, start));
  for (const RankContext& context : contexts) {
    if (average) {
      context->engine->state().take_average();
    }
  }
  return contexts;
}

/// `start`: a checkpoint, or nullopt for a published model's weights. `name`: for the output.
Status answer_choices(const configs::RunConfig& config, const StartState& start, std::int64_t step,
                      const std::string& name, const EvalOptions& options) {
  const auto plan = TRAIN_TRY(plan_choices(config));
  TRAIN_RETURN_IF_ERROR(check_plan(plan));
  if (!start.checkpoint) {
    warn_of_unread_keys(plan.engine.model, config.model.from);
  }
  const auto contexts = TRAIN_TRY(start_ranks(plan, start, options.ema));
  const auto result = TRAIN_TRY(evaluate(contexts, step));
  const data::ChoiceSet& choices = *plan.data->facts().choices;
  const ChoiceReport report = report_choices(choices, result.answers);
  print(fmt::format("eval {} digest={}\n{}", name, report.digest, choices_text(report)));
  return options.details.empty() ? Status() : write_details(options.details, choices, report);
}

/// `identity`: of the run that the checkpoint must belong to; empty: any.
Status evaluate_checkpoint(const configs::RunConfig& config,
                           const checkpoint::RunIdentity& identity, const fs::path& directory,
                           std::int64_t step, const EvalOptions& options) {
  const StartState start = {.checkpoint = directory, .identity = identity};
  if (!options.choices.empty()) {
    return answer_choices(config, start, step, fmt::format("step={}", step), options);
  }
  auto plan = TRAIN_TRY(plan_run(config));
  TRAIN_RETURN_IF_ERROR(check_plan(plan));
  const auto difference = TRAIN_TRY(data_difference(directory, plan));
  if (!difference.empty()) {
    log_warning(fmt::format("other_data {}", difference));
  }
  const auto contexts = TRAIN_TRY(start_ranks(plan, start, options.ema));
  const auto result = TRAIN_TRY(evaluate(contexts, step));
  const double loss = result.losses.cross_entropy.value();
  std::string line = fmt::format("eval step={} loss={:.6f}", step, loss);
  if (configs::objective_form(config.objective.name) != configs::ObjectiveForm::answers) {
    line += fmt::format(" perplexity={:.4f}", fixed::exp(loss));
  }
  line += fmt::format(" accuracy={:.4f}", result.losses.accuracy.value());
  if (const auto bytes = plan.data->facts().bytes_per_token) {
    line += fmt::format(" bits_per_byte={:.6f}", loss / fixed::log(2.0) / *bytes);
  }
  line += "\n";
  if (const data::ChoiceSet* choices = plan.data->facts().choices) {
    line += choices_text(report_choices(*choices, result.answers));
  }
  print(line);
  return {};
}

/// Identity of the run that the directory holds now; empty: it has none yet.
checkpoint::RunIdentity identity_in(const fs::path& run) {
  auto identity = checkpoint::read_identity(run);
  return identity && *identity ? std::move(**identity) : checkpoint::RunIdentity();
}

/// Evaluates committed checkpoints, oldest first, until the run's last step or a signal.
/// `identity`: of the run, read before its configuration. Errors: the directory holds another run
/// by now, with steps of the same numbers.
Status follow(const configs::RunConfig& config, const fs::path& run,
              checkpoint::RunIdentity identity, const EvalOptions& options) {
  watch_signals();
  const fs::path checkpoints = StoredRun{options.run_directory}.placed();
  const auto check_same_run = [&]() -> Status {
    checkpoint::RunIdentity now = identity_in(run);
    if (identity.id.empty()) {  // A run that begins gets one a little later.
      identity = std::move(now);
      return {};
    }
    if (now.id.empty() || now.id == identity.id) {
      return {};
    }
    return failure(
        fmt::format("{} was begun anew while it was followed; give the same command once more to "
                    "follow the new run",
                    options.run_directory));
  };
  std::set<std::int64_t> done;
  while (stop_signal() == 0) {
    TRAIN_RETURN_IF_ERROR(check_same_run());
    auto candidates = TRAIN_TRY(checkpoint::list_checkpoints(checkpoints));
    std::sort(candidates.begin(), candidates.end(),
              [](const auto& a, const auto& b) { return a.step < b.step; });
    for (const checkpoint::Candidate& candidate : candidates) {
      if (stop_signal() != 0 || !done.insert(candidate.step).second) {
        continue;
      }
      const Status status =
          evaluate_checkpoint(config, identity, candidate.path, candidate.step, options);
      std::error_code ignored;
      if (!status.ok() && fs::exists(candidate.path, ignored)) {
        TRAIN_RETURN_IF_ERROR(check_same_run());
        return status.error();
      }
      if (!status.ok()) {
        log_info(
            fmt::format("checkpoint_gone step={} retired while it was evaluated", candidate.step));
      }
    }
    if (done.contains(config.run.steps)) {
      return {};
    }
    std::this_thread::sleep_for(kPoll);
  }
  return {};
}

/// True for a published model's directory that is not a run's.
bool is_published_model(const fs::path& directory) {
  std::error_code ignored;
  return fs::exists(directory / "config.json", ignored) &&
         !fs::exists(directory / "config.toml", ignored);
}

Status evaluate_published(const EvalOptions& options, const fs::path& directory) {
  if (options.step || options.follow || options.ema || options.choices.empty()) {
    return user_error(fmt::format(
        "{}: a published model has neither checkpoints nor validation data; give --choices alone",
        options.run_directory));
  }
  configs::RunConfig config;
  config.model.from = directory.string();
  config.data.sequence_length = kPublishedContext;
  config.batch.micro_batch = 1;
  config.run.steps = 1;
  return answer_choices(choice_config(config, options, directory), {}, 0,
                        fmt::format("model={}", options.run_directory), options);
}

Status evaluate_run(const EvalOptions& options) {
  if (!options.follow) {
    allow_signals();
  }
  const auto root = TRAIN_TRY(storage::absolute_path(options.run_directory));
  if (is_published_model(root)) {
    return evaluate_published(options, root);
  }
  checkpoint::RunIdentity identity = identity_in(root);
  const bool answers = !options.choices.empty();
  const auto stored = TRAIN_TRY(answers ? load_run_config(options.run_directory)
                                        : load_run_with_data(options.run_directory));
  TRAIN_RETURN_IF_ERROR(check_average(stored, options.ema));
  if (!answers && options.ranks > stored.batch.lanes) {
    return user_error(fmt::format("--ranks {}: the run has {} lanes; use at most that many ranks",
                                  options.ranks, stored.batch.lanes));
  }
  configs::RunConfig config =
      answers ? choice_config(stored, options, root) : evaluation_config(stored, options.ranks);
  config.runtime.device = options.device.value_or(config.runtime.device);
  if (options.follow) {
    return follow(config, root, std::move(identity), options);
  }
  const auto found = TRAIN_TRY(find_checkpoint({options.run_directory}, options.step));
  return evaluate_checkpoint(config, {}, found.candidate.path, found.candidate.step, options);
}

std::string mistake_in(const EvalOptions& options) {
  if (options.follow && options.step) {
    return "--follow takes every checkpoint, --step one; give one of them";
  }
  if (options.choices.empty() && (!options.details.empty() || options.context)) {
    return "--details and --context belong to --choices";
  }
  return options.follow && !options.details.empty()
             ? "--details needs a single checkpoint, and excludes --follow"
             : "";
}

}  // namespace

/// Evaluates a checkpoint, or each new one, on any number of ranks.
void describe_eval(CommandSyntaxes& commands) {
  CommandSyntax& command =
      commands.add("eval", "Evaluate a run's checkpoint on the validation data.");
  EvalOptions& options = command.runs(evaluate_run);
  command.run_directory(options.run_directory);
  command.step(options.step);
  command.integer("--ranks", options.ranks, "Ranks that share the work", 1)->default_str("1");
  command.app.add_flag("--follow", options.follow,
                       "Evaluate every checkpoint as the run publishes it, until the run ends");
  command.app.add_flag("--ema", options.ema,
                       "Evaluate the running average of the weights (train.ema)");
  command.device(options.device);
  command.app
      .add_option("--choices", options.choices,
                  "Answer the multiple-choice questions of these files by likelihood instead; "
                  "RUN_DIRECTORY may then be the directory of a published model")
      ->type_name("FILE");
  command.text("--details", options.details,
               "Write the log-likelihoods of each question's choices to this file, as JSON lines",
               "FILE");
  command.integer("--context", options.context,
                  "Most tokens of a question that the model sees; by default data.sequence_length "
                  "of a run, 1024 for a published model",
                  1);
  command.check([&options] { return mistake_in(options); });
}

}  // namespace train::cli
