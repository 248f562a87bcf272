#include "cli/commands/run.hpp"

#include <chrono>
#include <numeric>

#include "actors/cluster/nodes/control_files.hpp"
#include "actors/cluster/recovery/node_run.hpp"
#include "actors/cluster/recovery/process_ranks.hpp"
#include "actors/cluster/recovery/run_ranks.hpp"
#include "actors/messages/event_messages.hpp"
#include "base/process/stop_signals.hpp"
#include "base/text/log.hpp"
#include "base/text/terminal.hpp"
#include "base/text/text_output.hpp"
#include "base/text/units.hpp"
#include "cli/board/board_server.hpp"
#include "cli/checkpoints/config_warnings.hpp"
#include "cli/checkpoints/trained_model.hpp"
#include "cli/command.hpp"
#include "cli/profile/run_profile.hpp"
#include "cli/report/dry_run.hpp"
#include "cli/submit/slurm_position.hpp"
#include "configs/error_place.hpp"
#include "configs/key_changes.hpp"
#include "configs/load_config.hpp"
#include "configs/rules/idle_keys.hpp"
#include "data/tokenizer/tokenizer.hpp"
#include "data/tokens/kept_tokenizer.hpp"
#include "engine/rank/exec/rank_memory.hpp"
#include "engine/rank/plan/run_device.hpp"
#include "run/directory/config_changes.hpp"
#include "run/directory/run_directory.hpp"
#include "run/prepared_run.hpp"
#include "run/report/machine_rates.hpp"

namespace train::cli {
using namespace actors;
using namespace run;
namespace {

/// More often than this no row teaches much.
constexpr double kManyEpochs = 10.0;

void warn_of(const std::vector<std::string>& warnings) {
  for (const std::string& line : warnings) {
    log_warning(line);
  }
}

/// Joins the ranks' profiles and prints the table; returns false on failure.
bool show_profile(const PreparedRun& run) {
  const auto directory = profile_directory(run.directory.root);
  // The ranks of this node have ended.
  const auto patience = std::chrono::seconds(run.config().parallel.nodes > 1 ? 10 : 0);
  const auto table = join_profiles(directory, run.config().parallel.ranks, patience);
  if (!table) {
    log_error(table.error().message);
    return false;
  }
  const std::string where = fmt::format("{} (open it in ui.perfetto.dev or chrome://tracing)",
                                        (directory / "trace.json").string());
  if (run.reporting.output == Output::json) {  // Standard output has JSON lines alone.
    log_info(fmt::format("profile {}", where));
    return true;
  }
  print(*table);
  print(fmt::format("profile: {}\n", where));
  return true;
}

int finish(const PreparedRun& run, const RunFinished& outcome) {
  if (outcome.exit_code != kExitFinished && outcome.exit_code != kExitStopped) {
    log_error(outcome.text);
    return outcome.exit_code;
  }
  log_info(fmt::format("run_finished {}", outcome.text));
  const bool sampled = run.config().run.sample_interval_steps > 0;  // After the last step, too.
  if (outcome.exit_code == kExitFinished && run.reporting.output == Output::lines && !sampled) {
    show_sample(run);
  }
  return outcome.exit_code;
}

/// Starts the status page if configured. Failing to start it never stops training.
std::unique_ptr<BoardServer> start_board(const PreparedRun& run) {
  const configs::StatusSection& section = run.config().status;
  if (section.listen.empty()) {
    return nullptr;
  }
  auto board = BoardServer::start({.root = run.directory.root,
                                   .listen = section.listen,
                                   .token_file = section.token_file,
                                   .key = "status.listen",
                                   .token_key = "status.token_file"});
  if (!board) {
    log_warning(fmt::format("no_board {}; training continues without it", board.error().message));
    return nullptr;
  }
  log_info(fmt::format("board url={}", (*board)->url()));
  return std::move(board).value();
}

Result<int> run_to_end(PreparedRun& run) {
  const configs::ParallelSection& parallel = run.config().parallel;
  log_info(fmt::format(
      "run_started directory={} step={} steps={} epochs={:.2f} ranks={} strategy={} threads={} "
      "peak={}",
      run.directory.root.string(), run.first_step(), run.config().run.steps, epochs_of(run.plan),
      parallel.ranks, parallel.strategy,
      threads_per_rank(run.config().runtime.threads, parallel.ranks / parallel.nodes),
      run.reporting.peak_flops > 0.0 ? format_count(run.reporting.peak_flops) + "FLOP/s"
                                     : "unknown"));
  run.status = std::make_shared<StatusFile>(
      run.directory.root,
      status_base(run.directory.root.filename().string(), run.config().run.steps,
                  engine::plan_memory(run.plan.engine)));
  if (const double epochs = epochs_of(run.plan); epochs > kManyEpochs) {
    log_warning(fmt::format(
        "many_epochs the run reads each training row {:.1f} times; more data or a smaller "
        "run.steps ({}) teach more, if that is not meant",
        epochs, run.config().run.steps));
  }
  const std::unique_ptr<BoardServer> board = start_board(run);
  log_event(
      run, run.first_step() > 0 ? "resumed" : "started",
      fmt::format("step={} ranks={} tag={}", run.first_step(), parallel.ranks, run.store->tag()));
  if (!run.data.accepted.empty()) {
    log_warning(fmt::format("data_accepted {}", run.data.accepted));
    log_event(run, "data_accepted", run.data.accepted);
  }
  if (run.config().precision.reduce != "fp32") {
    log_warning(
        "precision.reduce = \"bf16\": the result now depends on the number of ranks; it stays the "
        "same for one number");
  }
  if (run.reporting.profile) {
    TRAIN_RETURN_IF_ERROR(prepare_profile(profile_directory(run.directory.root)));
  }
  const Result<RunFinished> outcome = run_ranks(run);
  write_status(run, outcome ? *outcome
                            : RunFinished{run.first_step(), outcome.error().exit_code(),
                                          outcome.error().message});
  TRAIN_RETURN_IF_ERROR(outcome);
  log_event(run, outcome->exit_code == kExitFinished ? "finished" : "stopped", outcome->text);
  const bool shown = !run.reporting.profile || show_profile(run);
  const int exit_code = finish(run, *outcome);
  return exit_code == kExitFinished && !shown ? kExitFailure : exit_code;
}

/// Warns about tokenizer features that were dropped when the data was prepared.
void warn_of_tokenizer(const std::filesystem::path& data) {
  const auto kept = data::kept_tokenizer(data);
  if (kept.empty()) {
    return;
  }
  const auto tokenizer = data::Tokenizer::load(kept);
  if (!tokenizer) {
    log_warning(fmt::format("tokenizer_note {}", tokenizer.error().message));
    return;
  }
  for (const std::string& note : tokenizer->notes()) {
    log_warning(fmt::format("tokenizer_note {}", note));
  }
}

/// Runs the launcher of node 0, or the only one.
Result<int> run_head(RunPlan plan, const NodePosition& position, const RunOptions& options,
                     const std::vector<std::string>& notes) {
  if (in_processes(plan.config.parallel, plan.separate_processes)) {
    TRAIN_RETURN_IF_ERROR(check_network(plan.config.parallel));
  }
  NodeMemory memory;
  TRAIN_RETURN_IF_ERROR(memory.make_room(plan, position));
  auto run = TRAIN_TRY(prepare_run(std::move(plan), {.fresh = options.fresh,
                                                     .accept_data = options.accept_data,
                                                     .accept_config = options.accept_config}));
  // They are recorded in the index.
  for (const configs::KeyChange& change : run.directory.changes) {
    run.files->events.note({.kind = kConfigChanged, .text = change_text(change, run.first_step())});
  }
  run.memory = std::move(memory);
  run.nodes.position = position;
  run.nodes.members.resize(static_cast<std::size_t>(position.nodes));
  std::iota(run.nodes.members.begin(), run.nodes.members.end(), 0);
  run.nodes.nodes_at_start = run.config().parallel.nodes;
  run.nodes.ranks_at_start = run.config().parallel.ranks;
  run.reporting.profile = options.profile;
  run.reporting.output = options.quiet  ? Output::nothing
                         : options.json ? Output::json
                                        : Output::lines;
  warn_of(notes);
  if (!run.directory.set_aside.empty()) {
    log_info(fmt::format("fresh_run directory={}; the earlier run is {} now",
                         run.directory.root.string(), run.directory.set_aside.string()));
  }
  if (run.nothing_to_do()) {
    log_info(
        fmt::format("run_finished all {} steps are done, nothing to do; raise run.steps to "
                    "train on, or start anew with --fresh",
                    run.config().run.steps));
    return kExitFinished;
  }
  TRAIN_RETURN_IF_ERROR(enter_phase(run.plan, run.first_step()));
  warn_of_tokenizer(run.config().data.dir);
  const configs::ModelSection& model = run.config().model;
  const std::string& source = model.from.empty() ? model.config : model.from;
  warn_of_unread_keys(run.plan.engine.model, source);
  warn_of_dropout(run.plan.engine.model, source);
  if (run.config().lora.rank > 0 && model.from.empty()) {
    log_warning(
        "lora_without_model the adapters are trained beside initial weights, which stay as they "
        "are: name a model in model.from, or leave [lora] out");
  }
  warn_of_small_disk(run);
  run.reporting.peak_flops = measure_peak_flops(run.config());
  return run_to_end(run);
}

/// Measures this machine's peak if no run has been measured on it.
void show_dry_run(const RunPlan& plan) {
  const configs::RunConfig& config = plan.config;
  const MachineRates kept = kept_rates(config, work_of(plan));
  print(kept.run_flops > 0.0
            ? dry_run_report(plan, kept.run_flops * rate_count(config), kept.run_work)
            : dry_run_report(
                  plan, measure_peak_flops(config) * static_cast<double>(config.parallel.nodes),
                  /*work=*/std::nullopt));
}

/// Trains to the end, or until a signal.
Result<int> train(const configs::RunConfig& config, const RunOptions& options,
                  const std::vector<std::string>& notes) {
  if (options.fresh && config.parallel.nodes > 1) {
    return user_error(fmt::format(
        "parallel.nodes = {}: --fresh would move a directory that the other nodes may already use; "
        "without it, set run.name to a name that no run has",
        config.parallel.nodes));
  }
  auto plan = TRAIN_TRY(plan_run(config));
  plan.separate_processes = config.parallel.nodes > 1;
  TRAIN_RETURN_IF_ERROR(engine::check_device(
      plan.config.runtime.device, plan.engine.model,
      options.dry_run ? "plan without it by \"actortrain plan\", or set runtime.device = \"cpu\""
                      : "set runtime.device = \"cpu\""));
  TRAIN_RETURN_IF_ERROR(open_samples(plan));
  if (options.dry_run) {
    warn_of(notes);
    show_dry_run(plan);
    return kExitFinished;
  }
  const auto position = TRAIN_TRY(find_position(config.parallel.nodes, process_environment()));
  if (in_processes(plan.config.parallel, plan.separate_processes)) {
    TRAIN_RETURN_IF_ERROR(check_descriptors(plan.config.parallel));
    const auto [first, end] = position.ranks(plan.config.parallel.ranks);
    TRAIN_RETURN_IF_ERROR(engine::check_device_ranks(plan.config.runtime.device,
                                                     plan.config.parallel.transport, end - first));
  }
  if (!position.head()) {
    return run_node(std::move(plan), position);
  }
  if (position.nodes == 1) {
    return run_head(std::move(plan), position, options, notes);
  }
  const auto root = run_root(plan.config);
  forget_exit_record(root);
  Result<int> code = run_head(std::move(plan), position, options, notes);
  leave_exit_record(root, position.start, code ? *code : code.error().exit_code());
  return code;
}

Result<int> train_given(const GivenConfig& given, const RunOptions& options) {
  const Result<int> code =
      train(given.config, options, configs::idle_key_notes(given.config, given.places));
  return code ? code : configs::with_place(code.error(), given.config, given.places);
}

}  // namespace

Result<int> run_training(const RunOptions& options) {
  watch_signals();
  const QueuedOutput output(options.json);
  if (options.quiet) {
    log_from(LogLevel::warning);
  }
  TRAIN_RETURN_IF_ERROR(configs::check_accepted(options.accept_config));
  std::vector<std::string> set = options.set;
  if (options.nodes) {
    set.push_back(fmt::format("parallel.nodes={}", *options.nodes));
  }
  GivenConfig given;
  given.config = TRAIN_TRY(configs::load_config(options.config, set, &given.places));
  return train_given(given, options);
}

Result<int> run_given_config(const GivenConfig& given) {
  watch_signals();
  const RunOptions options;
  const QueuedOutput output(options.json);
  return train_given(given, options);
}

/// REQUIRES: block_signals().
void describe_run(CommandSyntaxes& commands) {
  CommandSyntax& command =
      commands.add("run", "Train what a run file describes, or resume it where it stopped.");
  RunOptions& options = command.runs(run_training);
  command.run_file(options.config, options.set);
  command.app.add_flag("--dry-run", options.dry_run,
                       "Check the run file and the data, show the plan, train nothing");
  command.app.add_flag("--fresh", options.fresh,
                       "Start over: set an earlier run of this name aside, as NAME-2, instead of "
                       "resuming it");
  command.app.add_flag("--accept-data", options.accept_data,
                       "Resume although data.dir holds other tokens than the run was trained on");
  command.app
      .add_option("--accept-config", options.accept_config,
                  "Resume although this key has another value than so far, which later steps use; "
                  "may be repeated")
      ->type_name("SECTION.KEY")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.app.add_flag("--profile", options.profile,
                       "Record a profile of every actor in the run's directory");
  command.app.add_flag("--quiet", options.quiet, "Print only warnings and errors");
  command.app.add_flag("--json", options.json,
                       "Print metrics and events as JSON lines, for programs");
  command.check([&options] {
    return options.quiet && options.json ? "--quiet and --json exclude each other" : std::string();
  });
  command.integer("--nodes", options.nodes,
                  "Machines to spread the ranks over, instead of parallel.nodes", 1);
  command.app.footer(kExitCodes);
}

}  // namespace train::cli
