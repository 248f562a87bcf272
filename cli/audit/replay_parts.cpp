#include "cli/audit/replay_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <caf/all.hpp>
#include <utility>
#include <vector>

#include "actors/head/conductor_actor.hpp"
#include "actors/head/report/reporter_actor.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/system/actor_systems.hpp"
#include "actors/system/supervision.hpp"
#include "actors/train/runtime/rank_runtime.hpp"
#include "actors/train/runtime/rank_setup.hpp"
#include "actors/training_system.hpp"
#include "checkpoint/format/manifest.hpp"
#include "cli/audit/changed_keys.hpp"
#include "cli/checkpoints/stored_run.hpp"
#include "configs/load_config.hpp"
#include "engine/optimizer/lr_schedule.hpp"
#include "engine/rank/state/state_rows.hpp"
#include "run/directory/config_changes.hpp"
#include "run/directory/config_record.hpp"
#include "run/plan/run_plan.hpp"
#include "run/store/run_index.hpp"
#include "storage/rocks_store.hpp"

namespace train::cli {
using namespace actors;
using namespace run;
namespace {

namespace fs = std::filesystem;
using Candidates = std::vector<checkpoint::Candidate>;

Result<checkpoint::StepJournal> read_journal(storage::KvStore& store, const fs::path& index) {
  auto journal = checkpoint::read_step_journal(store);
  if (journal && journal->steps.empty()) {
    return user_error(fmt::format("{}: no steps in the journal yet", index.string()));
  }
  return journal;
}

/// Fills in missing options, and checks the others.
Status choose_steps(const ReplayOptions& options, const Candidates& placed, ReplayRange& range) {
  const auto& steps = range.journal.steps;
  const std::int64_t first = steps.begin()->first;
  const std::int64_t last = steps.rbegin()->first;
  range.to = options.to.value_or(last);
  if (range.to > last || range.to < first) {
    return user_error(
        fmt::format("--to {}: the journal has steps {} to {}", range.to, first, last));
  }
  const auto before = std::find_if(placed.begin(), placed.end(),
                                   [&](const auto& one) { return one.step < range.to; });
  const std::int64_t newest = before == placed.end() ? 0 : before->step;
  range.from = options.from.value_or(std::max(newest + 1, first));
  if (range.from > range.to) {
    return user_error(
        fmt::format("--from {} is after the last step of the journal, {}", range.from, range.to));
  }
  if (range.from < first) {
    return user_error(
        fmt::format("--from {}: the journal has steps {} to {}", range.from, first, last));
  }
  const auto start = std::find_if(placed.begin(), placed.end(),
                                  [&](const auto& one) { return one.step < range.from; });
  if (start != placed.end()) {
    range.start = *start;
  }
  for (std::int64_t step = range.from; step <= range.to; ++step) {
    if (!steps.contains(step)) {
      return failure(
          fmt::format("the journal lacks step {}; `actortrain verify {}` says what else there is",
                      step, options.run_directory));
    }
  }
  return {};
}

/// True if this configuration gives the learning rates of all steps of the replay.
bool has_rates(const configs::RunConfig& config, const ReplayRange& range) {
  const auto& steps = range.journal.steps;
  return std::all_of(
      steps.upper_bound(range.first_step()), steps.upper_bound(range.to), [&](const auto& step) {
        const double rate = engine::learning_rate(config.schedule, config.optimizer.lr,
                                                  step.first - 1, config.run.steps);
        return std::bit_cast<std::uint64_t>(rate) == std::bit_cast<std::uint64_t>(step.second.lr);
      });
}

/// Configuration of the replay's first step, by the run's own records; for a run of an earlier
/// version, by the first checkpoint after the steps. `stored` has the places of data and models
/// now, and what determines no bit.
Result<configs::RunConfig> config_of_steps(const configs::RunConfig& stored,
                                           const std::vector<ConfigRecord>& records,
                                           const Candidates& placed, const ReplayRange& range,
                                           const fs::path& run) {
  const ConfigRecord* const record = record_of(records, range.first_step() + 1);
  std::string text = record == nullptr ? "" : record->text;
  for (const checkpoint::Candidate& candidate : placed) {  // The newest first.
    if (record != nullptr || candidate.step < range.to) {
      break;
    }
    const auto found = TRAIN_TRY(checkpoint::examine_manifest(candidate.path));
    if (found.manifest) {  // Otherwise damaged or retired meanwhile.
      text = found.manifest->fields.config_text;
    }
  }
  if (text.empty()) {
    return stored;
  }
  auto config = as_found(
      TRAIN_TRY(configs::parse_config(text, "the run's record of its configuration")), run);
  configs::RunConfig now = stored;
  for (const configs::Field& field : configs::all_fields()) {
    const bool moved = field.between_starts == configs::BetweenStarts::may_move ||
                       field.between_starts == configs::BetweenStarts::may_change;
    if (moved && field.section != "parallel") {
      std::visit([&](auto* value) { *value = *std::get<decltype(value)>(field.locate(now)); },
                 field.locate(config));
    }
  }
  config.model.from = stored.model.from;
  config.model.config = stored.model.config;
  return config;
}

/// A replay has one configuration, that of its first step: checks that no key which determines the
/// steps changed in between.
Status check_one_config(const configs::RunConfig& config, const ReplayRange& range) {
  const bool one_schedule = has_rates(config, range);
  for (const std::string& change : range.changes) {
    const std::int64_t step = change_step(change).value_or(0);
    const configs::Field* const field = changed_field(change);
    const bool matters = field == nullptr || configs::stays(field->between_starts) ||
                         (field->between_starts == configs::BetweenStarts::warns && !one_schedule);
    if (step <= range.first_step() || !matters) {
      continue;
    }
    return user_error(
        step >= range.from
            ? fmt::format("steps {} to {} have more than one configuration ({}), which are "
                          "replayed one at a time: give --to {}, then --from {}",
                          range.from, range.to, change, step, step + 1)
            : fmt::format("steps {} to {} cannot be computed again: a replay would begin from {}, "
                          "with another configuration ({}), and no checkpoint of the steps "
                          "between is left",
                          range.from, range.to, range.start_text(), change));
  }
  return {};
}

/// Uses `ranks` ranks in this process, or as many as the run's bits require.
Result<configs::RunConfig> on_ranks(configs::RunConfig config, std::optional<std::int64_t> ranks) {
  if (ranks.value_or(1) > config.batch.lanes) {
    return user_error(fmt::format("--ranks {}: the run has {} lanes; use at most that many ranks",
                                  *ranks, config.batch.lanes));
  }
  const bool any_ranks =
      config.precision.reduce == "fp32" && config.precision.determinism == "world";
  if (!any_ranks && ranks.value_or(config.parallel.ranks) != config.parallel.ranks) {
    return user_error(fmt::format(
        "--ranks {}: precision.reduce = \"{}\" and determinism = \"{}\" give this run's bits on {} "
        "ranks alone; leave --ranks out",
        *ranks, config.precision.reduce, config.precision.determinism, config.parallel.ranks));
  }
  if (any_ranks) {
    config.parallel = {};
    config.parallel.ranks = ranks.value_or(1);
    config.parallel.strategy = config.parallel.ranks > 1 ? "full" : "none";
  }
  config.parallel.nodes = 1;
  config.parallel.transport = "inproc";
  return config;
}

/// Checkpoints written while the steps were trained, and the first one after them; if none is left,
/// the start of the replay.
Candidates checkpoints_of_steps(const Candidates& placed, const ReplayRange& range) {
  Candidates found;
  for (auto each = placed.rbegin(); each != placed.rend(); ++each) {
    if (each->step > range.first_step()) {
      found.push_back(*each);
    }
    if (each->step >= range.to) {
      break;
    }
  }
  if (found.empty() && range.start) {
    found.push_back(*range.start);
  }
  return found;
}

/// With other tokens no step could match the journal. Notes the kernel sets of the steps whose
/// checkpoints are left.
Status check_data(const Candidates& placed, const RunPlan& plan, ReplayRange& range) {
  for (const checkpoint::Candidate& candidate : checkpoints_of_steps(placed, range)) {
    const auto found = TRAIN_TRY(checkpoint::examine_manifest(candidate.path));
    if (!found.manifest) {
      continue;  // Damaged or retired meanwhile.
    }
    const std::string difference = data_difference(found.manifest->fields, candidate.path, plan);
    if (!difference.empty()) {
      return user_error(fmt::format("{}; put the old data back to replay these steps", difference));
    }
    if (candidate.step > range.first_step()) {
      range.kernel_sets.insert(found.manifest->fields.kernel_set);
    }
  }
  return {};
}

}  // namespace

std::string ReplayRange::start_text() const {
  return start ? start->path.filename().string() : "the initial weights";
}

Result<ReplayPlan> plan_replay(const ReplayOptions& options) {
  const fs::path run(options.run_directory);
  const auto stored = TRAIN_TRY(load_run_with_data(run));
  ReplayRange range;
  const StoredRun files{run};
  const auto store = TRAIN_TRY(storage::RocksStore::open_read_only(files.index()));
  range.journal = TRAIN_TRY(read_journal(*store, files.index()));
  const auto placed = TRAIN_TRY(checkpoint::list_checkpoints(files.placed()));
  TRAIN_RETURN_IF_ERROR(choose_steps(options, placed, range));
  range.changes = TRAIN_TRY(changed_keys(*store, {.first = range.first_step(), .end = range.to}));
  const auto records = TRAIN_TRY(read_config_records(*store));
  const auto original = TRAIN_TRY(config_of_steps(stored, records, placed, range, run));
  TRAIN_RETURN_IF_ERROR(check_one_config(original, range));
  const auto config = TRAIN_TRY(on_ranks(original, options.ranks));
  auto replayed = config;
  replayed.runtime.device = options.device.value_or(replayed.runtime.device);
  auto plan = TRAIN_TRY(plan_run(replayed));
  TRAIN_RETURN_IF_ERROR(check_data(placed, plan, range));
  if (original.parallel.nodes == 1) {  // As in the run itself.
    TRAIN_RETURN_IF_ERROR(enter_phase(plan, range.first_step()));
  }
  if (const std::int64_t end = engine::last_step_of(plan.engine); range.to > end) {
    return user_error(fmt::format(
        "steps {} to {} are of more than one phase of objective.name = \"{}\", which are replayed "
        "one at a time: give --to {}, then --from {}",
        range.from, range.to, replayed.objective.name, end, end + 1));
  }
  return ReplayPlan{std::move(plan), std::move(range)};
}

std::vector<std::string> tensor_names(const std::vector<RankContext>& ranks) {
  return engine::tensor_names(ranks.front()->engine->state().views());
}

std::vector<std::uint64_t> tensor_digests(const std::vector<RankContext>& ranks) {
  const auto names = tensor_names(ranks);
  std::vector<std::uint64_t> all(names.size());
  for (const RankContext& rank : ranks) {
    const auto own = rank->engine->state().tensor_digests(names);
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] += own[i];
    }
  }
  return all;
}

namespace {

/// Starts the ranks' actors and hears their events until `listener` has enough, or to their end.
/// Returns why they failed.
std::optional<std::string> hear_ranks(caf::actor_system& system,
                                      const std::vector<RankContext>& ranks,
                                      const RunProgram::Options& program,
                                      const LocalListener& listener, WaitTable& waits) {
  bool over = false;
  std::optional<std::string> failed;
  caf::scoped_actor self(system);
  const auto waiter = caf::actor_cast<caf::actor>(self);
  const ConductorActor conductor = spawn_conductor(system, waits, program);
  const ReporterActor reporter = spawn_listener(system, waiter);
  const IndexActor index = spawn_index(system, {}, {});  // Nothing is saved.
  std::vector<caf::actor> actors = {caf::actor_cast<caf::actor>(conductor),
                                    caf::actor_cast<caf::actor>(reporter),
                                    caf::actor_cast<caf::actor>(index)};
  std::vector<RankActor> handles;
  for (const RankContext& rank : ranks) {
    RankActors started = start_rank(
        system,
        {.context = rank, .shards = {}, .reporting = {.digest_interval = listener.step ? 1 : 0}},
        {.conductor = conductor, .index = index});
    handles.push_back(started.rank);
    actors.insert(actors.end(), started.all.begin(), started.all.end());
  }
  caf::anon_send(conductor, ConnectConductor{handles, {{"listener", reporter}}, waiter, {}});
  self->monitor(conductor);
  while (!over && !failed) {
    self->receive([&](const StepFinished& event) { over = !listener.step(step_record(event)); },
                  [&](const EvaluationFinished& event) { over = !listener.evaluation(event); },
                  [&](const RunFinished& finished) {
                    over = true;
                    if (finished.exit_code != kExitFinished) {
                      failed = finished.text;
                    }
                  },
                  [&](const caf::down_msg& down) { failed = failure_text(down.reason); });
  }
  cancel_transports(ranks, "the commands of these ranks are over");
  stop_actors(actors);
  return failed;
}

}  // namespace

Status run_local_ranks(const std::vector<RankContext>& ranks, const RunProgram::Options& program,
                       const LocalListener& listener) {
  caf::actor_system_config config;
  set_up_handlers(config);
  WaitTable waits;  // Before the system: the conductor notes on it what it waits for.
  const auto system = make_actor_system(config);
  const auto failed =
      beside_actors([&] { return hear_ranks(*system, ranks, program, listener, waits); });
  system->await_all_actors_done();
  return failed ? Status(failure(*failed)) : Status();
}

}  // namespace train::cli
