#include "run/store/checkpoint_store.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <set>
#include <string_view>
#include <utility>

#include "base/process/stop_signals.hpp"
#include "base/text/log.hpp"
#include "checkpoint/save/first_identity.hpp"
#include "engine/host_state.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::run {

namespace fs = std::filesystem;

std::string CheckpointStore::unique_tag() {
  const char* job = std::getenv("SLURM_JOB_ID");
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("{}-{}", job != nullptr && *job != '\0' ? job : std::to_string(::getpid()),
                     now / std::chrono::milliseconds(1));
}

CheckpointStore::CheckpointStore(const Options& options)
    : options_(options), index_([this](checkpoint::IndexReading reading) {
        return options_.surroundings.open_index(options_.index, options_.locations.project, reading,
                                                options_.identity);
      }) {}

Status CheckpointStore::open_local(const Options& options) {
  const checkpoint::Locations& locations = options.locations;
  TRAIN_RETURN_IF_ERROR(checkpoint::prove_local(locations));
  if (!options.new_run) {
    // With shards on several nodes, each node checks its own local location.
    return options.one_node ? checkpoint::check_all(locations.local, options.identity) : Status();
  }
  const auto aside = TRAIN_TRY(checkpoint::set_local_aside(locations, options.identity));
  if (!aside.empty()) {
    log_warning("local_checkpoints_set_aside " + aside);
  }
  return {};
}

Result<std::unique_ptr<CheckpointStore>> CheckpointStore::open(const Options& options) {
  TRAIN_RETURN_IF_ERROR(storage::make_directory(options.locations.project));
  if (options.locations.two()) {
    TRAIN_RETURN_IF_ERROR(open_local(options));
  }
  auto store = std::unique_ptr<CheckpointStore>(new CheckpointStore(options));
  store->tag_ = options.surroundings.make_tag();
  Status opened = store->index_.open();
  if (!opened && storage::says_disk_full(opened.error().message)) {
    // The leftover of a save that was killed on a full disk may be the cause.
    TRAIN_RETURN_IF_ERROR(checkpoint::remove_leftovers(options.locations.project));
    opened = store->index_.open();
  }
  TRAIN_RETURN_IF_ERROR(opened);
  return store;
}

void CheckpointStore::log_unless(const Status& status, std::string_view what) {
  if (!status) {
    log_warning(fmt::format("{} {}", what, status.error().message));
  }
}

Result<CheckpointStore::Search> CheckpointStore::search(const fs::path& location,
                                                        checkpoint::Depth depth) {
  Search search{.report = checkpoint::find_newest(location, depth)};
  if (search.report && search.report->newest) {
    const checkpoint::FoundCheckpoint& newest = *search.report->newest;
    if (const Status own =
            checkpoint::check_identity(newest.candidate.path, newest.manifest, options_.identity);
        !own) {
      search.report = own.error();
    }
  }
  search.placed = TRAIN_TRY(checkpoint::list_checkpoints(location));
  for (const std::string& line :
       search.report ? search.report->set_aside : std::vector<std::string>()) {
    log_warning(fmt::format("checkpoint_set_aside {}", line));
  }
  return search;
}

Result<CheckpointStore::Search> CheckpointStore::search_project(checkpoint::Depth depth) {
  auto found = TRAIN_TRY(search(options_.locations.project, depth));
  const auto in_place = [&placed = found.placed](std::int64_t step) {
    return std::any_of(placed.begin(), placed.end(),
                       [step](const auto& one) { return one.step == step; });
  };
  // A checkpoint that was set aside is no longer in place, even if the search failed.
  for (const checkpoint::IndexEntry& entry : index_.committed()) {
    if (!in_place(entry.step)) {
      log_unless(index_.change([&](auto& index) { return index.set_aside(entry.step, "damaged"); }),
                 "index_incomplete");
    }
  }
  if (verified_ && !in_place(*verified_)) {
    verified_.reset();
  }
  return found;
}

Result<CheckpointStore::Search> CheckpointStore::search_local(checkpoint::Depth depth) {
  if (!options_.locations.two() || local_unreadable_) {
    return Search{.report = checkpoint::SearchReport{}};
  }
  if (!options_.one_node) {
    TRAIN_RETURN_IF_ERROR(checkpoint::remove_leftovers(options_.locations.local));
    return Search{.report = checkpoint::SearchReport{}};
  }
  return search(options_.locations.local, depth);
}

void CheckpointStore::forget_saves() {
  drafts_.clear();
  published_.clear();
  tag_ = options_.surroundings.make_tag();
  log_unless(index_.look_again(), "index_incomplete");
}

Result<std::optional<checkpoint::Candidate>> CheckpointStore::find_placed() {
  using Placed = std::optional<checkpoint::Candidate>;
  start_.reset();
  TRAIN_RETURN_IF_ERROR(checkpoint::remove_leftovers(options_.locations.project));
  const auto placed = TRAIN_TRY(checkpoint::list_checkpoints(options_.locations.project));
  return placed.empty() ? Placed() : Placed(placed.front());
}

Result<std::optional<checkpoint::Candidate>> CheckpointStore::find_start(checkpoint::Depth depth) {
  using Start = std::optional<checkpoint::Candidate>;
  start_.reset();
  other_kernels_ = false;
  auto local_search = search_local(depth);
  // Ranks read the local copy, so the project's copy is verified here.
  const bool copy = local_search && local_search->report && local_search->report->newest;
  auto project_search = search_project(copy ? checkpoint::Depth::bytes : depth);
  if (copy && !(project_search && project_search->report && project_search->report->newest)) {
    local_search = search_local(checkpoint::Depth::bytes);  // The only checkpoint.
  }
  const std::array<Result<Search>, 2> locations = {std::move(project_search),
                                                   std::move(local_search)};
  for (const auto& location : locations) {
    TRAIN_RETURN_IF_ERROR(location);
    if (!location->report && location->report.error().kind == ErrorKind::user) {
      return location->report.error();
    }
  }
  const Result<checkpoint::SearchReport>& project = locations[0]->report;
  const Result<checkpoint::SearchReport>& local = locations[1]->report;
  const checkpoint::FoundCheckpoint* published =
      project && project->newest ? &*project->newest : nullptr;
  const checkpoint::FoundCheckpoint* own = local && local->newest ? &*local->newest : nullptr;
  const std::int64_t published_step = published != nullptr ? published->candidate.step : -1;
  const std::int64_t own_step = own != nullptr ? own->candidate.step : -1;
  for (const auto& location : locations) {
    if (!location->report && location->newest_left() > std::max(published_step, own_step)) {
      return location->report.error();
    }
  }
  if (published == nullptr && own == nullptr) {
    // Shards of other nodes are not visible here: no local checkpoint is complete before the first
    // publication.
    const bool local_begun = local || local.error().kind == ErrorKind::damage;
    if (project && local_begun) {
      TRAIN_RETURN_IF_ERROR(never_published());
      if (!local) {
        log_warning(
            fmt::format("run_begun_anew {}, and none was published", local.error().message));
      }
      finalize_local(std::nullopt);
      return Start();
    }
    return project ? local.error()
           : local ? project.error()
                   : failure(fmt::format("{}; {}", project.error().message, local.error().message));
  }
  for (const auto& location : locations) {
    if (!location->report) {
      log_warning(fmt::format(
          "{} {}", location->newest_left() >= 0 ? "checkpoint_not_read" : "checkpoints_damaged",
          location->report.error().message));
    }
  }
  if (copy && published != nullptr) {
    verified_ = published_step;
  }
  if (own_step > published_step) {
    publish_leftover(*own);
  } else if (own != nullptr &&
             (own_step < published_step || own->manifest_digest != published->manifest_digest)) {
    own = nullptr;
  }
  const checkpoint::FoundCheckpoint& start = own != nullptr ? *own : *published;
  compare_kernels(start);
  start_ = start.candidate;
  return start_;
}

void CheckpointStore::restored() {
  if (!start_) {
    return;
  }
  const bool local = start_->path.parent_path() != options_.locations.project;
  if (!local) {
    verified_ = start_->step;
  }
  retire_old();
  finalize_local(local ? std::optional(start_->step) : std::nullopt);
  start_.reset();
}

Result<bool> CheckpointStore::set_aside_if_damaged(const checkpoint::Candidate& doubted) {
  const auto found = TRAIN_TRY(checkpoint::verify_checkpoint(doubted.path));
  if (found.verdict == checkpoint::Verdict::unreadable) {
    const Error error = checkpoint::unreadable(doubted.path, found.defect);
    const auto placed = checkpoint::list_checkpoints(options_.locations.project);
    const bool copy = doubted.path.parent_path() != options_.locations.project && placed &&
                      !placed->empty() && placed->front().step >= doubted.step;
    if (!copy) {
      return error;
    }
    log_warning(fmt::format("checkpoint_not_read {}", error.message));
    local_unreadable_ = true;
    return true;
  }
  if (found.whole()) {
    return false;
  }
  const auto line = TRAIN_TRY(checkpoint::set_damaged_aside(doubted.path, found.defect));
  log_warning(fmt::format("checkpoint_set_aside {}", line));
  return true;
}

std::int64_t CheckpointStore::committed_count() const { return std::ssize(index_.committed()); }

/// The newest checkpoint is never retired: once a run has a checkpoint, it always has one.
Status CheckpointStore::never_published() const {
  const auto newest = index_.newest_known();
  if (!newest) {
    return {};
  }
  return user_error(
      fmt::format("{}: has no checkpoint any more, and had one of step {}; put it back, or start "
                  "anew with --fresh",
                  options_.locations.project.string(), *newest));
}

/// Publishes a checkpoint that only the local location has: an earlier start ended before
/// publishing.
void CheckpointStore::publish_leftover(const checkpoint::FoundCheckpoint& found) {
  const std::int64_t step = found.candidate.step;
  const StopOnSignal signals;  // A stop request also stops the copy.
  storage::RsyncOptions rsync = options_.surroundings.rsync;
  rsync.stop = signals.token();
  const auto publish = [&]() -> Status {
    TRAIN_RETURN_IF_ERROR(options_.still_ours());
    TRAIN_RETURN_IF_ERROR(checkpoint::publish_local(options_.locations, tag_, found.candidate,
                                                    found.manifest, rsync));
    TRAIN_RETURN_IF_ERROR(index_.change([&](auto& index) {
      return index.commit(checkpoint::entry_of(found.manifest, found.manifest_digest));
    }));
    verified_ = step;
    return event("published", fmt::format("step={} left by an earlier start", step));
  };
  Status published = publish();
  if (!published && storage::says_disk_full(published.error().message) && make_room(step) > 0) {
    published = publish();
  }
  if (published) {
    log_info(
        fmt::format("checkpoint_published step={} from {}", step, found.candidate.path.string()));
  } else {
    log_warning(fmt::format("checkpoint_not_published step={} {}; going on from the local one",
                            step, published.error().message));
  }
}

/// Keeps only the checkpoint that the run resumes from in the local location.
void CheckpointStore::finalize_local(std::optional<std::int64_t> kept) {
  std::vector<checkpoint::Candidate> local;
  if (options_.locations.two() && options_.one_node) {
    auto found = checkpoint::list_checkpoints(options_.locations.local);
    log_unless(found ? Status() : Status(found.error()), "local_checkpoint_left");
    local = found ? std::move(*found) : local;
  }
  for (const checkpoint::Candidate& candidate : local) {
    if (candidate.step != kept) {
      log_unless(checkpoint::retire(options_.locations.local, candidate.step, options_.identity),
                 "local_checkpoint_left");
    }
  }
  log_unless(index_.change([kept](checkpoint::CheckpointIndex& index) -> Status {
    std::vector<std::int64_t> noted;
    for (const auto& [step, note] : index.notes()) {
      if (step != kept) {
        noted.push_back(step);
      }
    }
    for (const std::int64_t step : noted) {
      TRAIN_RETURN_IF_ERROR(index.abandon(step));
    }
    return {};
  }),
             "index_incomplete");
}

void CheckpointStore::compare_kernels(const checkpoint::FoundCheckpoint& start) {
  const checkpoint::ManifestFields& fields = start.manifest.fields;
  other_kernels_ = fields.kernel_set != options_.fields.kernel_set;
  if (other_kernels_) {
    log_warning(
        fmt::format("kernel_set_changed saved with {}, running on {}: results agree to "
                    "rounding, not bitwise",
                    fields.kernel_set, options_.fields.kernel_set));
  }
}

namespace {

/// Checkpoints saved by ranks of one phase have no moments of layers that train in other phases:
/// those moments stay 0.
void drop_other_phases(const engine::RankEngine& engine, const checkpoint::Manifest& manifest,
                       std::vector<engine::StateView>& views) {
  std::set<std::string_view> going_on;
  std::set<std::string_view> saved;
  for (const checkpoint::TensorRecord& record : manifest.tensors) {
    saved.insert(record.name);
  }
  const engine::ShardPlan& plan = engine.plan();
  for (std::size_t unit = 0; unit < plan.unit_count(); ++unit) {
    const std::int64_t layer = static_cast<std::int64_t>(unit) -
                               static_cast<std::int64_t>(engine::RankPlan::first_layer_unit());
    if (engine::goes_on_training(engine.options(), layer, manifest.fields.step)) {
      for (const engine::Parameter& parameter : plan.units()[unit].parameters) {
        going_on.insert(parameter.name);
      }
    }
  }
  std::erase_if(views, [&](const engine::StateView& view) {
    const std::string_view name = view.name;  // optimizer.<state>.<parameter>
    constexpr std::size_t kBehindOptimizer = 10;
    return !engine::is_weight(name) && !saved.contains(name) &&
           !going_on.contains(name.substr(name.find('.', kBehindOptimizer) + 1));
  });
}

}  // namespace

Status restore_rank(const fs::path& directory, engine::RankEngine& engine,
                    const std::stop_token& stop, const checkpoint::RunIdentity& identity) {
  const auto manifest = TRAIN_TRY(checkpoint::read_manifest(directory));
  if (!manifest.fields.run_id.empty()) {  // The head has checked a checkpoint without a run id.
    TRAIN_RETURN_IF_ERROR(checkpoint::check_identity(directory, manifest, identity));
  }
  std::vector<engine::StateView> views = engine.state().views();
  checkpoint::Restore which = checkpoint::Restore::every_tensor;
  if (engine::state_ends_with_phase(engine.options())) {
    drop_other_phases(engine, manifest, views);
    which = checkpoint::Restore::subset;
  }
  engine::HostState state(engine.device(), std::move(views));
  const Status read =
      checkpoint::restore(directory, manifest, state.views(), {.which = which, .stop = stop});
  if (!read && read.error().kind == ErrorKind::failure && !stop.stop_requested()) {
    // The head verifies the checkpoint, too: another location may have a readable copy.
    return damage(checkpoint::unreadable(directory, read.error().message).message);
  }
  TRAIN_RETURN_IF_ERROR(read);
  state.store();
  engine.state().finalize_restored();
  return {};
}

Status CheckpointStore::set_state(std::int64_t step, checkpoint::CheckpointState state) {
  return index_.change([=](auto& index) { return index.note(step, state); });
}

Result<checkpoint::ManifestDraft> CheckpointStore::draft(std::int64_t step,
                                                         const std::vector<ShardWritten>& shards) {
  checkpoint::ManifestFields fields = options_.fields;
  fields.step = step;
  fields.tokens = step * options_.tokens_per_step;
  fields.index_head = TRAIN_TRY(index_.head());
  std::uint64_t digest = 0;
  std::vector<checkpoint::ShardRecord> records;
  for (const ShardWritten& shard : shards) {
    digest += shard.weights_digest;
    auto record = TRAIN_TRY(checkpoint::parse_shard(shard.record));
    records.push_back(std::move(record));
  }
  fields.weights_digest = fmt::format("{:016x}", digest);
  return checkpoint::draft_manifest(fields, records);
}

Result<std::string> CheckpointStore::seal(std::int64_t step,
                                          const std::vector<ShardWritten>& shards) {
  auto made = TRAIN_TRY(draft(step, shards));
  return drafts_.insert_or_assign(step, std::move(made)).first->second.text;
}

Result<WrittenCheckpoint> CheckpointStore::publish(std::int64_t step,
                                                   const std::vector<ShardWritten>& shards) {
  if (!drafts_.contains(step)) {  // There is one location, without a sealed draft.
    TRAIN_RETURN_IF_ERROR(seal(step, shards));
  }
  checkpoint::ManifestDraft made = std::move(drafts_.extract(step).mapped());
  TRAIN_RETURN_IF_ERROR(options_.still_ours());
  checkpoint::IncomingCheckpoint incoming(options_.locations.project, tag_, step);
  auto outcome = incoming.publish(made);
  if (!outcome && storage::says_disk_full(outcome.error().message) && make_room(step) > 0) {
    outcome = incoming.publish(std::move(made));
  }
  TRAIN_RETURN_IF_ERROR(outcome);
  const checkpoint::IndexEntry entry =
      checkpoint::entry_of(outcome->manifest, outcome->manifest_digest);
  published_.insert_or_assign(step, entry);
  return WrittenCheckpoint{.directory = outcome->path.string(), .size_bytes = entry.size_bytes};
}

Status CheckpointStore::record(std::int64_t step) {
  const auto entry = published_.extract(step);
  TRAIN_CHECK(!entry.empty(), "step {} was not published here", step);
  TRAIN_RETURN_IF_ERROR(index_.change([&](auto& index) { return index.commit(entry.mapped()); }));
  start_.reset();
  verified_ = step;
  log_unless(event("saved", fmt::format("step={}", step)), "index_incomplete");
  retire_old();
  return {};
}

std::int64_t CheckpointStore::retire(std::span<const std::int64_t> steps) {
  std::int64_t gone = 0;
  for (const std::int64_t step : steps) {
    const Status ours = options_.still_ours();
    const Status removed =
        ours ? checkpoint::retire(options_.locations.project, step, options_.identity) : ours;
    if (removed) {
      ++gone;
      note(step, "checkpoint_retired");
    }
    log_unless(
        removed.ok() ? index_.change([step](auto& index) { return index.retire(step); }) : removed,
        fmt::format("checkpoint_not_retired step={}", step));
  }
  return gone;
}

void CheckpointStore::retire_old() {
  retire(checkpoint::to_retire(index_.committed(), options_.keep));
}

std::int64_t CheckpointStore::make_room(std::int64_t step) {
  if (start_ || !verified_) {
    return 0;
  }
  std::vector<checkpoint::IndexEntry> entries = index_.committed();
  std::erase_if(entries,
                [step](const checkpoint::IndexEntry& entry) { return entry.step >= step; });
  checkpoint::IndexEntry saved;  // Assumes that the save of `step` succeeded.
  saved.step = step;
  entries.push_back(saved);
  checkpoint::RetentionRule rule = options_.keep;
  const auto removable = [&] {
    std::vector<std::int64_t> old = checkpoint::to_retire(entries, rule);
    std::erase_if(old, [this](std::int64_t retired) { return retired >= *verified_; });
    return old;
  };
  std::vector<std::int64_t> old = removable();
  const bool by_rule = !old.empty();
  // Without the newest state the steps after it would be lost, so that others have to go.
  rule.keep_last = std::min(rule.keep_last, std::ssize(entries));
  while (old.empty() && rule.keep_last > 1) {
    --rule.keep_last;
    old = removable();
  }
  const bool best_too = old.empty() && rule.keep_best > 0;
  if (best_too) {
    rule.keep_best = 0;
    old = removable();
  }
  const std::int64_t gone = retire(old);
  if (gone > 0) {
    const char* lost = best_too  ? ", also the best (checkpoint.keep_best)"
                       : by_rule ? ""
                                 : "; there is no room for checkpoint.keep_last";
    log_warning(fmt::format("disk_full step={} retired {} old checkpoints to save this one{}", step,
                            gone, lost));
    log_unless(event("made_room", fmt::format("step={} retired={}", step, gone)),
               "index_incomplete");
  }
  return gone;
}

std::vector<checkpoint::StepRecord> CheckpointStore::steps(std::int64_t first,
                                                           std::int64_t last) const {
  return index_.steps(first, last);
}

std::uint64_t CheckpointStore::retirable_bytes() const {
  std::uint64_t bytes = 0;
  const std::vector<checkpoint::IndexEntry> entries = index_.committed();
  for (std::size_t i = 0; i + 1 < entries.size(); ++i) {
    bytes += entries[i].size_bytes;
  }
  return bytes;
}

Status CheckpointStore::discard(std::int64_t step, bool local) {
  drafts_.erase(step);
  const Status removed =
      storage::remove_tree(checkpoint::incoming_path(options_.locations.project, tag_, step));
  const Status noted = local ? set_state(step, checkpoint::CheckpointState::local)
                             : index_.change([step](auto& index) { return index.abandon(step); });
  return removed ? noted : removed;
}

Status CheckpointStore::journal(std::span<const checkpoint::StepRecord> steps) {
  std::vector<checkpoint::StepRecord> records(steps.begin(), steps.end());
  for (checkpoint::StepRecord& record : records) {
    record.tokens = record.step * options_.tokens_per_step;
  }
  return index_.journal(records);
}

Status CheckpointStore::take_back(std::int64_t step) { return index_.take_back(step); }

Status CheckpointStore::evaluated(std::int64_t step, double validation_loss) {
  return index_.note([=](auto& index) { return index.evaluated(step, validation_loss); }, step);
}

void CheckpointStore::note(std::int64_t step, const char* kind) {
  if (options_.events != nullptr) {
    options_.events->note({.kind = kind, .step = step});
  }
}

Status CheckpointStore::event(std::string_view kind, std::string_view text) {
  return index_.note([kind = std::string(kind), text = std::string(text)](auto& index) {
    return index.log_event(kind, text);
  });
}

IndexWork CheckpointStore::index_work() {
  const auto bound = [this](auto method) { return std::bind_front(method, this); };
  IndexWork work;
  work.set_state = bound(&CheckpointStore::set_state);
  if (options_.locations.two()) {
    work.seal = bound(&CheckpointStore::seal);
  }
  work.publish = bound(&CheckpointStore::publish);
  work.record = bound(&CheckpointStore::record);
  work.note = bound(&CheckpointStore::note);
  work.discard = bound(&CheckpointStore::discard);
  work.make_room = bound(&CheckpointStore::make_room);
  work.journal = bound(&CheckpointStore::journal);
  work.evaluated = bound(&CheckpointStore::evaluated);
  work.event = bound(&CheckpointStore::event);
  return work;
}

}  // namespace train::run
