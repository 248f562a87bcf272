#include "run/prepared_run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/process/steady_time.hpp"
#include "base/text/log.hpp"
#include "base/text/text_output.hpp"
#include "base/text/units.hpp"
#include "checkpoint/save/first_identity.hpp"
#include "configs/fields/field_table.hpp"
#include "configs/source_weights.hpp"
#include "engine/objective/registry.hpp"
#include "engine/optimizer/registry.hpp"
#include "engine/rank/exec/rank_engine.hpp"
#include "engine/rank/plan/run_device.hpp"
#include "run/directory/config_changes.hpp"
#include "run/directory/run_events.hpp"
#include "run/model/model_files.hpp"
#include "run/plan/kept_checkpoints.hpp"
#include "run/plan/reference_key.hpp"
#include "run/report/machine_rates.hpp"

namespace train::run {
namespace {

/// Event log of the run, shared with other owners.
std::shared_ptr<EventLog> events_of(const std::shared_ptr<RunFiles>& files) {
  return {files, &files->events};
}

/// Reads or makes the identity of the run, and logs the checkpoints of earlier versions that it
/// adopts.
Result<checkpoint::RunIdentity> identity_of(const RunPlan& plan, const RunDirectory& directory,
                                            const CheckpointStore::Surroundings& surroundings) {
  const checkpoint::Locations locations =
      find_places(directory.root, plan.config.checkpoint.local_dir);
  std::vector<std::filesystem::path> places = {locations.project};
  const bool here = directory.existed && locations.two() && plan.config.parallel.nodes == 1;
  if (here && !checkpoint::is_gone(locations.local.parent_path())) {
    TRAIN_RETURN_IF_ERROR(checkpoint::prove_local(locations));
    places.push_back(locations.local);
  } else if (here && !checkpoint::is_gone(locations.former) &&
             checkpoint::prove_local({.project = locations.project, .local = locations.former})) {
    places.push_back(locations.former);
  }
  const auto given =
      TRAIN_TRY(checkpoint::give_identity(directory.root, places, surroundings.make_run_id()));
  if (given.given && directory.existed) {
    log_info(fmt::format(
        "run_identity_given {} to {}{}", given.identity.id, directory.root.string(),
        given.adopted.empty() ? ""
                              : fmt::format(": taken as its own, as they name no run: {}",
                                            fmt::join(given.adopted, ", "))));
  }
  if (here) {
    const auto renamed = TRAIN_TRY(checkpoint::rename_former(locations, given.identity));
    if (renamed) {
      log_info(fmt::format("local_checkpoints_renamed {} to {}",
                           locations.former.parent_path().string(),
                           locations.local.parent_path().string()));
    }
  }
  return given.identity;
}

CheckpointStore::Options store_options(const RunPlan& plan, const RunDirectory& directory,
                                       const std::shared_ptr<RunFiles>& files,
                                       const checkpoint::RunIdentity& identity,
                                       const CheckpointStore::Surroundings& surroundings) {
  const configs::RunConfig& config = plan.config;
  checkpoint::ManifestFields fields;
  fields.lanes = config.batch.lanes;
  fields.micro_batch = config.batch.micro_batch;
  fields.kernel_set = engine::kernel_set_name(config.runtime.device, config.precision.compute);
  fields.data_fingerprint = plan.data_fingerprint;
  fields.run_id = identity.id;
  fields.config_text = configs::to_toml(config);
  return {.locations = find_places(directory.root, config.checkpoint.local_dir),
          .index = directory.index(),
          .keep = retention_rule(config),
          .tokens_per_step = tokens_per_step(config),
          .events = events_of(files),
          .fields = std::move(fields),
          .identity = identity,
          .one_node = config.parallel.nodes == 1,
          .new_run = !directory.existed,
          .still_ours = directory.lock.checks(),
          .surroundings = surroundings};
}

std::vector<std::string> unit_names(const engine::RankOptions& options) {
  const auto plan = engine::plan_of(options);
  TRAIN_CHECK(plan.ok(), "{}", plan.error().message);  // plan_run() has already made it.
  std::vector<std::string> names;
  for (const auto& unit : plan->units()) {
    names.push_back(unit.name);
  }
  return names;
}

/// Finds the newest checkpoint of a run with step `kept` in memory; it is read only if newer.
Result<std::optional<checkpoint::Candidate>> find_behind(CheckpointStore& store,
                                                         std::int64_t kept) {
  auto placed = store.find_placed();
  return placed && *placed && (*placed)->step > kept ? store.find_start() : placed;
}

/// Determines the pending work of the step that the run resumes from: references, evaluation,
/// answers. REQUIRES: that step is known.
Status look_at_start(PreparedRun& run) {
  const std::int64_t step = run.first_step();
  run.start.references_done =
      TRAIN_TRY(step == 0 ? references_done(run.plan) : Result<std::int64_t>(0));
  const MetricsEnd metrics = step > 0 ? run.files->metrics.end_at(step) : MetricsEnd();
  run.start.evaluation_missed = step > 0 && !metrics.evaluated;
  run.start.choices_missed = step > 0 && !metrics.answered;
  run.start.samples_missed = step > 0 && !metrics.sampled;
  const configs::StopAfter& stop = run.config().train.stop_after;
  run.start.early_stop = EarlyStop({.metric = stop.metric, .patience = stop.patience});
  if (step > 0 && run.start.early_stop.used()) {
    for (const EvaluatedValue& each : TRAIN_TRY(run.files->metrics.evaluated(stop.metric, step))) {
      run.start.early_stop.hear(each.step, each.value);
    }
  }
  return {};
}

/// Finds the state that a start of the run resumes from.
Status find_first_start(PreparedRun& run) {
  for (const auto depth : {checkpoint::Depth::files, checkpoint::Depth::bytes}) {
    run.start.checkpoint = TRAIN_TRY(run.store->find_start(depth));
    TRAIN_RETURN_IF_ERROR(look_at_start(run));
    if (!run.start.checkpoint || !run.nothing_to_do()) {
      return {};  // The ranks verify the checkpoint that they restore.
    }
  }
  run.store->restored();  // No rank restores the checkpoint, but every byte has been read.
  return {};
}

/// Finds the state that the next ranks resume from. `reported`: steps already in the report.
Status find_next_start(PreparedRun& run, std::int64_t reported,
                       std::span<const NodeSteps> elsewhere) {
  const auto kept = run.memory.find_snapshot(reported, elsewhere);
  const auto checkpoint =
      kept ? find_behind(*run.store, kept.value_or(0)) : run.store->find_start();
  if (checkpoint) {
    run.start.checkpoint = *checkpoint;
  } else if (kept) {
    // No steps are lost: the state in memory is newer than any checkpoint of this start.
    log_warning(fmt::format("checkpoints_not_read {}", checkpoint.error().message));
  } else {
    return checkpoint.error();
  }
  const std::int64_t saved = run.start.checkpoint ? run.start.checkpoint->step : 0;
  if (kept.value_or(saved) < saved) {
    run.memory.resume_from(std::nullopt);
  }
  return look_at_start(run);
}

/// A run that was killed before its first checkpoint has nothing to resume from.
void log_lost_steps(const PreparedRun& run) {
  const std::int64_t done = run.directory.existed && run.first_step() == 0
                                ? newest_step_in_metrics(run.directory.root)
                                : 0;
  if (done > 0) {
    log_warning(
        fmt::format("run_begun_anew directory={}: it has no checkpoint; steps 1 to {} are "
                    "done again",
                    run.directory.root.string(), done));
  }
}

void log_start(const PreparedRun& run) {
  if (run.first_step() > 0) {
    log_info(fmt::format("resumed step={} from {}", run.first_step(),
                         run.memory.start() ? "memory" : run.start.checkpoint->path.string()));
  }
  if (run.start.references_done > 0) {
    log_info(fmt::format("reference_resumed commands={} of {}", run.start.references_done,
                         run.plan.data->facts().reference.commands));
  }
}

/// Compares the data with the checkpoint's, once per start and for each fallback checkpoint: later
/// generations resume from a state that this start has accepted or written itself. REQUIRES: there
/// is a checkpoint.
Status compare_data(PreparedRun& run) {
  const auto manifest = TRAIN_TRY(checkpoint::read_manifest(run.start.checkpoint->path));
  if (manifest.fields.data_fingerprint.empty()) {
    log_info(fmt::format("data_not_compared {} does not say what it was trained on",
                         run.start.checkpoint->path.string()));
  }
  const std::string difference =
      data_difference(manifest.fields, run.start.checkpoint->path, run.plan);
  if (!difference.empty() && !run.data.accept) {
    return user_error(
        fmt::format("{}; put the old data back, start anew with --fresh, or train on with this "
                    "data by --accept-data",
                    difference));
  }
  run.data.accepted = difference;
  return {};
}

/// Logs what could not be written to the index, or waits to be.
void log_if_incomplete(const Status& written) {
  if (!written) {
    log_warning(fmt::format("index_incomplete {}", written.error().message));
  }
}

/// Records in the index which configuration the next steps are computed with, unless it says so
/// already. A failure is returned, and what could not be written is queued.
Status record_config(PreparedRun& run) {
  ConfigRecord record{.step = run.first_step(), .text = config_text(run.directory, run.config())};
  const std::optional<ConfigRecord>& newest = run.directory.recorded;
  if (newest && newest->text == record.text && newest->step <= record.step) {
    return {};
  }
  Status written = run.store->event(kConfigRecorded, config_record_text(record));
  run.directory.recorded = std::move(record);
  return written;
}

/// Records changes and then the configuration in the index before the file with the old values is
/// replaced: a start killed in between detects them again. Errors: an accepted change cannot be
/// recorded, or the steps after the resumed one not taken back; without an accepted change that is
/// logged, and waits in memory.
Status record_changes(PreparedRun& run) {
  Status recorded;
  bool accepted = false;
  const auto note = [&recorded](Status status) {
    log_if_incomplete(status);
    if (!status) {
      recorded = std::move(status);
    }
  };
  bool other_steps =
      !run.data.accepted.empty() || (run.store->other_kernels() && !run.nothing_to_do());
  for (const configs::KeyChange& change : run.directory.changes) {
    const std::string text = change_text(change, run.first_step());
    log_info(fmt::format("{} {}", kConfigChanged, text));
    note(run.store->event(kConfigChanged, text));
    accepted = accepted || configs::stays(change.rule());
    const std::string warning = change_warning(change, run.config(), run.first_step());
    if (!warning.empty()) {
      log_warning(warning);
      other_steps = true;
    }
  }
  // Steps that were lost come otherwise. Without a checkpoint they alone say that the run has
  // begun.
  if (other_steps && run.first_step() > 0) {
    note(run.store->take_back(run.first_step()));
  }
  note(record_config(run));
  return accepted ? recorded : Status();
}

}  // namespace

std::optional<std::int64_t> steps_left_of_job(std::int64_t steps_per_job,
                                              std::int64_t job_first_step,
                                              std::int64_t first_step) {
  if (steps_per_job == 0) {
    return std::nullopt;
  }
  return std::max<std::int64_t>(0, job_first_step + steps_per_job - first_step);
}

std::int64_t PreparedRun::first_step() const {
  if (const auto kept = memory.start()) {
    return kept->origin.step;
  }
  return start.checkpoint ? start.checkpoint->step : 0;
}

bool PreparedRun::nothing_to_do() const {
  return (first_step() >= config().run.steps || start.early_stop.over()) &&
         (config().eval.interval_steps == 0 || !start.evaluation_missed) &&
         (configs::choices_interval(config().eval) == 0 || !start.choices_missed) &&
         (plan.samples == nullptr || !start.samples_missed);
}

Result<PreparedRun> prepare_run(RunPlan plan, const StartChoices& choices,
                                const CheckpointStore::Surroundings& surroundings) {
  auto directory = TRAIN_TRY(open_run_directory(plan.config, choices.fresh, choices.accept_config));
  const auto files = std::make_shared<RunFiles>(directory.root);
  const auto identity = TRAIN_TRY(identity_of(plan, directory, surroundings));
  auto store = TRAIN_TRY(
      CheckpointStore::open(store_options(plan, directory, files, identity, surroundings)));
  PreparedRun run{.plan = std::move(plan),
                  .directory = std::move(directory),
                  .store = std::move(store),
                  .start = {.checkpoint = std::nullopt},
                  .data = {.accept = choices.accept_data},
                  .files = files};
  TRAIN_RETURN_IF_ERROR(find_first_start(run));
  if (const auto& before = run.directory.sources_before; before && run.first_step() > 0) {
    TRAIN_RETURN_IF_ERROR(
        configs::check_sources_read(*before, run.plan.config.data.sources, run.first_step()));
  }
  TRAIN_RETURN_IF_ERROR(copy_model_files(run.plan.config.model, run.directory.root,
                                         /*begins=*/run.first_step() == 0));
  TRAIN_RETURN_IF_ERROR(keep_data_tokenizer(run.plan.config, run.directory.root));
  TRAIN_RETURN_IF_ERROR(keep_turn_ends(run.plan.config, run.directory.root));
  TRAIN_RETURN_IF_ERROR(keep_chat_template(run.plan.config, run.directory.root));
  run.job_first_step = run.first_step();
  if (run.start.checkpoint && !run.nothing_to_do()) {
    TRAIN_RETURN_IF_ERROR(compare_data(run));
  }
  log_lost_steps(run);
  if (run.first_step() == 0) {
    show_notes(run.config().model.from, run.plan.model_notes);
  }
  log_start(run);
  TRAIN_RETURN_IF_ERROR(record_changes(run));
  if (run.directory.existed) {
    TRAIN_RETURN_IF_ERROR(store_config(run.directory, run.plan.config));
  }
  return run;
}

Result<RunPlan> plan_of_nodes(const PreparedRun& run, std::int64_t nodes) {
  const configs::ParallelSection& parallel = run.config().parallel;
  const bool more = nodes > parallel.nodes;
  const std::int64_t all = more ? run.nodes.ranks_at_start : parallel.ranks;
  const std::int64_t all_nodes = more ? run.nodes.nodes_at_start : parallel.nodes;
  if (nodes == all_nodes) {  // The number of ranks may differ between nodes.
    if (auto plan = plan_with(run.plan, nodes, all)) {
      return plan;
    }
  }
  return largest_plan(run.plan, nodes, all / all_nodes);
}

namespace {

/// Checkpoints that are still to be saved, up to the last step.
std::int64_t saves_ahead(const PreparedRun& run) {
  const std::int64_t interval = run.config().checkpoint.interval_steps;
  const std::int64_t last = run.config().run.steps;
  return interval > 0 ? (last - 1) / interval - run.first_step() / interval + 1 : 1;
}

/// Warns if the run's directory cannot hold as many checkpoints as the rule keeps at a time.
void warn_of_few_checkpoints(const PreparedRun& run, std::uint64_t free, std::uint64_t size) {
  const std::int64_t placed = run.store->committed_count();
  const std::int64_t wanted = std::min(most_checkpoints(run.config()), placed + saves_ahead(run));
  const auto more = static_cast<std::int64_t>(free / std::max<std::uint64_t>(size, 1));
  if (placed + more >= wanted) {
    return;
  }
  const bool all_stay = run.config().checkpoint.keep_last == 0;
  log_warning(fmt::format(
      "disk_small {} has {} free, room for {} more checkpoints of {}; the run keeps up to {} at a "
      "time: {}",
      run.store->locations().project.string(), format_bytes(free), more, format_bytes(size), wanted,
      all_stay ? "saves fail when it is full; make room, or set checkpoint.keep_last"
               : "make room, or older ones go early when it is full (checkpoint.keep_last)"));
}

}  // namespace

void warn_of_small_disk(const PreparedRun& run) {
  const checkpoint::Locations& places = run.store->locations();
  const std::uint64_t size = checkpoint_bytes(run.plan);
  std::vector<std::filesystem::path> disks = {places.project};
  if (places.two()) {
    disks.push_back(places.local);
  }
  for (const std::filesystem::path& place : disks) {
    std::error_code code;
    const std::filesystem::space_info space = std::filesystem::space(place, code);
    const std::uint64_t old = place == places.project ? run.store->retirable_bytes() : 0;
    if (code) {
      continue;
    }
    if (space.available < size && space.available + old < size) {
      log_warning(fmt::format(
          "disk_small {} has {} free, and a checkpoint takes {}: make room before the first save",
          place.string(), format_bytes(space.available), format_bytes(size)));
    } else if (place == places.project) {
      warn_of_few_checkpoints(run, space.available, size);
    }
  }
}

Status find_start_again(PreparedRun& run, std::int64_t reported,
                        std::span<const NodeSteps> elsewhere) {
  run.store->forget_saves();
  TRAIN_RETURN_IF_ERROR(find_next_start(run, reported, elsewhere));
  if (run.first_step() < run.job_first_step) {  // This start's first checkpoint is damaged.
    TRAIN_RETURN_IF_ERROR(run.start.checkpoint ? compare_data(run) : Status());
    if (!run.data.accepted.empty()) {
      log_warning(fmt::format("data_accepted {}", run.data.accepted));
    }
    run.job_first_step = run.first_step();
    if (run.directory.recorded) {  // Its steps from here on are computed again, by this one.
      log_if_incomplete(run.store->take_back(run.first_step()));
      run.directory.recorded->step = run.first_step();
      log_event(run, kConfigRecorded, config_record_text(*run.directory.recorded));
    }
  }
  log_start(run);
  return {};
}

namespace {

/// Restores metrics of steps that an earlier start could not write because its disk was full.
void restore_metrics(const PreparedRun& run, RunReport& report) {
  const std::int64_t newest = run.files->metrics.end_at(run.first_step()).newest_step;
  if (newest >= run.first_step()) {
    return;
  }
  std::int64_t restored = 0;
  for (const checkpoint::StepRecord& step : run.store->steps(newest + 1, run.first_step())) {
    restored += report.restore(step) ? 1 : 0;
  }
  if (restored > 0) {
    log_info(fmt::format("metrics_restored {} lines of steps {} to {} from the journal", restored,
                         newest + 1, run.first_step()));
  }
}

/// Names of StepResult::metrics before those of blocks.
std::vector<std::string> metric_names(const RunPlan& plan) {
  auto names = engine::make_objective(plan.engine.objective)->metric_names();
  for (const data::SourceFacts& source : plan.data->facts().sources) {
    names.push_back("source_loss/" + source.name);
  }
  return names;
}

Result<std::unique_ptr<RunReport>> open_empty_report(const PreparedRun& run) {
  const engine::RankOptions& options = run.plan.engine;
  return RunReport::open(
      {.directory = run.directory.root,
       .first_step = run.first_step(),
       .saved_step = run.start.checkpoint ? run.start.checkpoint->step : 0,
       .total_steps = options.total_steps,
       .log_interval = run.config().run.log_interval_steps,
       .tokens_per_step = tokens_per_step(run.config()),
       .eval_interval = run.config().eval.interval_steps,
       .choices_interval = configs::choices_interval(run.config().eval),
       .samples_interval = run.plan.samples ? run.config().run.sample_interval_steps : 0,
       .rows = data::LaneSource::row_count(run.plan.data),
       .flops_per_token = engine::flops_per_token(options.model, options.seq_len),
       .peak_flops = run.reporting.peak_flops * static_cast<double>(run.config().parallel.nodes),
       .keep_rate =
           [config = run.config(), work = work_of(run.plan)](double flops) {
             keep_rates(config, {.run_flops = flops / rate_count(config), .run_work = work});
           },
       .bytes_per_token = run.plan.data->facts().bytes_per_token,
       .data = run.plan.data,
       .samples = run.plan.samples,
       .units = unit_names(options),
       .optimizer = engine::optimizer_of(options),
       .objective_metrics = metric_names(run.plan),
       .source_names = run.plan.data->facts().source_names(),
       .sequence_length = options.seq_len,
       .block_metrics = engine::block_metrics(options.model),
       .tensorboard = run.config().run.tensorboard,
       .ranks = run.config().parallel.ranks,
       .output = run.reporting.output == Output::lines && isatty(STDOUT_FILENO) != 0
                     ? Output::live
                     : run.reporting.output,
       .out = &standard_output(),
       .files = run.files});
}

}  // namespace

Result<std::unique_ptr<RunReport>> open_report(const PreparedRun& run) {
  auto report = open_empty_report(run);
  if (report && run.generation == 0 && run.first_step() > 0) {
    restore_metrics(run, **report);
  }
  return report;
}

namespace {

TextSampling::Options sampling_of(const RunPlan& plan) {
  if (plan.samples == nullptr) {
    return {};
  }
  return {.prompts = plan.samples->prompts(),
          .tokens = plan.config.run.sample_tokens,
          .ends = plan.samples->codec().ends(),
          .vocab = plan.samples->codec().vocab(),
          .context = plan.engine.seq_len};
}

}  // namespace

RunProgram::Options program_of(const PreparedRun& run) {
  const data::ReferenceRows reference = run.plan.data->facts().reference;
  const std::int64_t interval = run.config().checkpoint.interval_steps;
  const std::int64_t saved = run.start.checkpoint ? run.start.checkpoint->step : 0;
  return {
      .first_step = run.first_step(),
      .total_steps = run.config().run.steps,
      .reference_commands = reference.live ? 0 : reference.commands,
      .references_done = run.start.references_done,
      .live_reference = live_reference_of(reference),
      .phase_end = engine::last_step_of(run.plan.engine),
      .passes = engine::pass_list_of(run.plan.engine),
      .steps_per_job =
          steps_left_of_job(run.config().run.steps_per_job, run.job_first_step, run.first_step()),
      .eval_interval = run.config().eval.interval_steps,
      .choices_interval = configs::choices_interval(run.config().eval),
      .samples_interval = run.plan.samples ? run.config().run.sample_interval_steps : 0,
      .sampling = sampling_of(run.plan),
      .checkpoint_interval = run.config().checkpoint.interval_steps,
      .evaluation_missed = run.start.evaluation_missed,
      .choices_missed = run.start.choices_missed,
      .samples_missed = run.start.samples_missed,
      .first_step_saved = run.start.checkpoint && run.start.checkpoint->step == run.first_step(),
      .save_missed = interval > 0 && run.first_step() / interval * interval > saved,
      .early_stop = run.start.early_stop};
}

void note_event(const PreparedRun& run, const RunEvent& event) {
  if (run.status != nullptr) {  // Not a simulation.
    run.files->events.note(event);
  }
}

void log_event(const PreparedRun& run, const char* kind, const std::string& text) {
  Status logged = run.store->event(kind, text);
  if (logged) {
    logged = run.store->journal({});  // Retries the queue once.
  }
  log_if_incomplete(logged);
  note_event(run, {.kind = kind, .text = text});
}

void write_status(const PreparedRun& run, std::optional<RunFinished> outcome) {
  if (run.status == nullptr) {  // Simulation.
    return;
  }
  RunStatus status;
  status.phase = outcome ? "over" : "starting";
  status.generation = run.generation;
  status.ranks = run.config().parallel.ranks;
  status.now_ns = steady_now_ns();
  status.progress.step = outcome ? outcome->step : run.first_step();
  status.outcome = std::move(outcome);
  if (const Status written = run.status->write(std::move(status)); !written) {
    log_warning(fmt::format("status_not_written {}", written.error().message));
  }
}

}  // namespace train::run
