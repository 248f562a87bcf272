#include "checkpoint/index/index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.hpp"
#include "checkpoint/format/layout.hpp"
#include "checkpoint/format/run_identity.hpp"
#include "checkpoint/index/located_manifests.hpp"
#include "checkpoint/index/text_fields.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/rocks_store.hpp"

namespace train::checkpoint {
namespace {

namespace fs = std::filesystem;
using storage::Durability;

constexpr std::int64_t kStepsKept = 100'000;
constexpr std::int64_t kDigestsKept = 10'000;
constexpr std::int64_t kEventsKept = 10'000;

/// Keys that earlier versions kept besides the journal.
constexpr std::string_view kLegacyEntryPrefix = "checkpoint/";
constexpr std::string_view kLegacyRebuiltKey = "rebuilt";

/// Adds the removal of every key with `prefix` to `batch`.
Status remove_all(storage::KvStore& store, std::string_view prefix, storage::WriteBatch& batch) {
  return store.scan(prefix, [&batch](std::string_view key, std::string_view) {
    batch.remove(std::string(key));
    return true;
  });
}

std::string loss_text(double loss) {
  return fmt::format("{:016x}", std::bit_cast<std::uint64_t>(loss));
}

std::string note_text(const IndexNote& note) {
  return fmt::format("{} {}", state_name(note.state), note.noted_s);
}

/// Makes the directory entries of found checkpoints durable: their publisher may have ended between
/// the rename and the sync, and a power cut would undo the rename.
Status make_names_last(const fs::path& checkpoints) {
  return storage::fsync_directory(checkpoints);
}

}  // namespace

Result<CheckpointIndex> CheckpointIndex::open(storage::KvStore& store, fs::path checkpoints,
                                              RunIdentity identity) {
  const auto placed = TRAIN_TRY(LocatedManifests::list(checkpoints, identity));
  const auto newest = TRAIN_TRY(placed.newest());
  CheckpointIndex index(store, std::move(checkpoints), std::move(identity));
  index.known_ = read_index_content(store, newest ? newest->index_head : std::string());
  if (index.known_.unreadable) {
    return *index.known_.unreadable;
  }
  TRAIN_RETURN_IF_ERROR(index.load_journals());
  TRAIN_RETURN_IF_ERROR(index.finalize_notes());
  std::string damage = index.known_.damage;
  if (damage.empty() && newest && !index.known_.knows_head) {
    // A rebuild begins a new chain; existing checkpoints carry heads of the old one.
    const IndexEntry* entry = index.known_.entries.find(newest->step);
    if (entry == nullptr || !entry->rebuilt || entry->manifest_digest != newest->digest) {
      damage = fmt::format("{} knows of index changes that the index lost",
                           checkpoint_name(newest->step));
    }
  }
  TRAIN_RETURN_IF_ERROR(index.drop_legacy());
  TRAIN_RETURN_IF_ERROR(damage.empty() ? index.reconcile(placed, /*seen=*/false)
                                       : index.rebuild_from(placed, damage));
  return index;
}

Result<CheckpointIndex> CheckpointIndex::make_anew(storage::KvStore& store, fs::path checkpoints,
                                                   const IndexContent& remains,
                                                   const std::string& reason,
                                                   RunIdentity identity) {
  const auto placed = TRAIN_TRY(LocatedManifests::list(checkpoints, identity));
  CheckpointIndex index(store, std::move(checkpoints), std::move(identity));
  index.known_ = remains;
  TRAIN_RETURN_IF_ERROR(index.load_journals());
  TRAIN_RETURN_IF_ERROR(index.finalize_notes());
  TRAIN_RETURN_IF_ERROR(index.rebuild_from(placed, reason));
  return index;
}

namespace {

/// Number of the last key with a prefix; nullopt: there is none.
Result<std::optional<std::int64_t>> last_number(storage::KvStore& store, std::string_view prefix) {
  const auto last = TRAIN_TRY(store.last_key(prefix));
  return last ? index_keys::number_of(prefix, *last) : std::nullopt;
}

}  // namespace

/// Finds the ends of the journals of steps and events. Their beginnings follow from the ends:
/// searching for them would read past all dropped keys, as many as the store has not compacted.
Status CheckpointIndex::load_journals() {
  const auto begin = [](std::int64_t next, std::int64_t kept) {
    return std::max<std::int64_t>(1, next - kept - kTrimAtOnce);
  };
  const auto step = TRAIN_TRY(last_number(*store_, index_keys::kStep));
  newest_step_ = step.value_or(0);
  oldest_step_ = begin(newest_step_ + 1, kStepsKept);
  const auto event = TRAIN_TRY(last_number(*store_, index_keys::kEvent));
  next_event_ = event.value_or(0) + 1;
  oldest_event_ = begin(next_event_, kEventsKept);
  const auto digested = TRAIN_TRY(last_number(*store_, index_keys::kDigested));
  if (!digested) {
    return number_digests();
  }
  next_digest_ = *digested + 1;
  oldest_digest_ = begin(next_digest_, kDigestsKept);
  return {};
}

/// Done once, for an index of earlier versions and for a rebuilt one.
Status CheckpointIndex::number_digests() {
  storage::WriteBatch batch;
  TRAIN_RETURN_IF_ERROR(store_->scan(index_keys::kDigest, [&](std::string_view key, auto) {
    batch.put(index_keys::of(index_keys::kDigested, next_digest_++),
              fmt::format("{}", index_keys::number_of(index_keys::kDigest, key).value_or(0)));
    return true;
  }));
  return batch.operations().empty() ? Status() : store_->write(batch, Durability::buffered);
}

/// No save survives its process: partly written data is discarded, and local copies are on the
/// nodes' own disks.
Status CheckpointIndex::finalize_notes() {
  storage::WriteBatch batch;
  std::map<std::int64_t, IndexNote> kept;
  for (auto [step, note] : known_.notes) {
    if (note.state == CheckpointState::writing) {
      batch.remove(index_keys::of(index_keys::kNote, step));
      continue;
    }
    note.state = CheckpointState::local;
    batch.put(index_keys::of(index_keys::kNote, step), note_text(note));
    kept[step] = note;
  }
  if (!batch.operations().empty()) {
    TRAIN_RETURN_IF_ERROR(store_->write(batch, Durability::buffered));
  }
  known_.notes = std::move(kept);
  return {};
}

Status CheckpointIndex::look_again() {
  const auto placed = TRAIN_TRY(LocatedManifests::list(checkpoints_, identity_));
  report_ = {};
  TRAIN_RETURN_IF_ERROR(finalize_notes());
  return reconcile(placed, /*seen=*/true);
}

Status CheckpointIndex::drop_legacy() {
  storage::WriteBatch legacy;
  TRAIN_RETURN_IF_ERROR(remove_all(*store_, kLegacyEntryPrefix, legacy));
  if (!legacy.operations().empty()) {
    legacy.remove(std::string(kLegacyRebuiltKey));
    TRAIN_RETURN_IF_ERROR(store_->write(legacy, Durability::buffered));
  }
  return {};
}

/// Makes the entries match the checkpoints in place.
Status CheckpointIndex::reconcile(const LocatedManifests& placed, bool seen) {
  std::vector<IndexChange> changes;
  for (const IndexEntry& entry : known_.entries.all()) {
    if (entry.state == CheckpointState::committed && !placed.has(entry.step)) {
      changes.push_back({true, entry});
      changes.back().entry.state = CheckpointState::retired;
      report_.dropped.push_back(entry.directory);
    }
  }
  if (!changes.empty()) {
    TRAIN_RETURN_IF_ERROR(write(changes, {}));
  }
  return adopt(placed, seen);
}

/// Records checkpoints in place that are not recorded; drops entries whose checkpoint has changed.
Status CheckpointIndex::adopt(const LocatedManifests& placed, bool seen) {
  std::vector<IndexChange> changes;
  for (const Candidate& candidate : placed.all()) {
    const IndexEntry* known = known_.entries.find(candidate.step);
    const bool recorded = known != nullptr && known->state == CheckpointState::committed;
    if (recorded && seen) {
      continue;
    }
    const auto digest = TRAIN_TRY(LocatedManifests::digest_of(candidate));
    if (recorded && digest == known->manifest_digest) {
      continue;
    }
    auto entry = TRAIN_TRY(placed.entry_at(candidate));
    if (recorded) {
      report_.dropped.push_back(known->directory);
    }
    if (entry) {
      const auto loss = known_.losses.find(candidate.step);
      if (loss != known_.losses.end()) {
        entry->validation_loss = loss->second;
      }
      report_.adopted.push_back(entry->directory);
      changes.push_back({true, *entry});
    } else if (recorded) {
      changes.push_back({false, *known});
    }
  }
  if (changes.empty()) {
    return {};
  }
  TRAIN_RETURN_IF_ERROR(make_names_last(checkpoints_));
  return write(changes, {});
}

Status CheckpointIndex::rebuild(const std::string& reason) {
  const auto placed = LocatedManifests::list(checkpoints_, identity_);
  return placed ? rebuild_from(*placed, reason) : Status(placed.error());
}

Status CheckpointIndex::rebuild_from(const LocatedManifests& placed, const std::string& reason) {
  EntryList entries;
  ReconcileReport report;
  report.rebuilt = true;
  report.reason = reason;
  for (IndexEntry entry : known_.entries.all()) {
    if (!placed.has(entry.step)) {
      entry.state = CheckpointState::retired;
      entries.put(std::move(entry));
    }
  }
  for (const Candidate& candidate : placed.all()) {
    auto entry = TRAIN_TRY(placed.entry_at(candidate));
    if (!entry) {
      continue;
    }
    const IndexEntry* known = known_.entries.find(candidate.step);
    const auto loss = known_.losses.find(candidate.step);
    if (known != nullptr && known->manifest_digest == entry->manifest_digest) {
      entry->validation_loss = known->validation_loss;
      entry->recorded_s = known->recorded_s;
    } else {
      report.adopted.push_back(entry->directory);
    }
    if (loss != known_.losses.end()) {
      entry->validation_loss = loss->second;
    }
    entry->rebuilt = true;
    entries.put(*entry);
  }
  if (!placed.all().empty()) {
    TRAIN_RETURN_IF_ERROR(make_names_last(checkpoints_));
  }
  storage::WriteBatch batch;
  for (const std::string_view prefix : {index_keys::kJournal, kLegacyEntryPrefix}) {
    TRAIN_RETURN_IF_ERROR(remove_all(*store_, prefix, batch));
  }
  batch.remove(std::string(kLegacyRebuiltKey));
  add_event(batch, "index_rebuilt",
            fmt::format("{}; rebuilt from {} checkpoints on disk; {} retired ones are still "
                        "listed; others, and validation losses, may be missing",
                        reason, placed.all().size(), entries.all().size() - placed.all().size()));
  std::vector<IndexChange> changes;
  for (const IndexEntry& entry : entries.all()) {
    changes.push_back({true, entry});
  }
  IndexContent before = std::exchange(known_, {});
  known_.notes = before.notes;
  known_.losses = before.losses;
  Status written = write(changes, std::move(batch));
  if (!written) {
    known_ = std::move(before);
    return written;
  }
  report_ = std::move(report);
  return {};
}

/// Appends `changes` to the journal, with the content of `batch`, atomically.
Status CheckpointIndex::write(const std::vector<IndexChange>& changes, storage::WriteBatch batch) {
  std::int64_t sequence = known_.sequence;
  std::string digest = known_.digest;
  for (const IndexChange& change : changes) {
    ChainLink link = chain_link(digest, change);
    batch.put(index_keys::of(index_keys::kJournal, ++sequence), std::move(link.record));
    digest = std::move(link.digest);
  }
  TRAIN_RETURN_IF_ERROR(store_->write(batch, Durability::synced));
  known_.sequence = sequence;
  known_.digest = std::move(digest);
  for (const IndexChange& change : changes) {
    change.present ? known_.entries.put(change.entry) : known_.entries.erase(change.entry.step);
  }
  return {};
}

Status CheckpointIndex::note(std::int64_t step, CheckpointState state) {
  TRAIN_CHECK(state == CheckpointState::writing || state == CheckpointState::local ||
                  state == CheckpointState::publishing,
              "{} is no state of a checkpoint on its way", state_name(state));
  const IndexNote note{state, unix_now_s()};
  TRAIN_RETURN_IF_ERROR(
      store_->put(index_keys::of(index_keys::kNote, step), note_text(note), Durability::buffered));
  known_.notes[step] = note;
  return {};
}

Status CheckpointIndex::abandon(std::int64_t step) {
  if (!known_.notes.contains(step)) {
    return {};
  }
  TRAIN_RETURN_IF_ERROR(
      store_->remove(index_keys::of(index_keys::kNote, step), Durability::buffered));
  known_.notes.erase(step);
  return {};
}

Status CheckpointIndex::commit(const IndexEntry& entry) {
  const IndexEntry* known = known_.entries.find(entry.step);
  if (known != nullptr && known->state == CheckpointState::committed &&
      known->manifest_digest == entry.manifest_digest) {
    return abandon(entry.step);
  }
  IndexChange change{true, entry};
  change.entry.state = CheckpointState::committed;
  storage::WriteBatch batch;
  batch.remove(index_keys::of(index_keys::kNote, entry.step));
  const auto last_loss = known_.losses.upper_bound(entry.step);
  for (auto loss = known_.losses.begin(); loss != last_loss; ++loss) {
    batch.remove(index_keys::of(index_keys::kLoss, loss->first));
    if (loss->first == entry.step && !change.entry.validation_loss) {
      change.entry.validation_loss = loss->second;
    }
  }
  TRAIN_RETURN_IF_ERROR(write({change}, std::move(batch)));
  known_.notes.erase(entry.step);
  known_.losses.erase(known_.losses.begin(), last_loss);
  return {};
}

Status CheckpointIndex::retire(std::int64_t step) {
  const IndexEntry* known = known_.entries.find(step);
  if (known == nullptr || known->state == CheckpointState::retired) {
    return {};
  }
  IndexChange change{true, *known};
  change.entry.state = CheckpointState::retired;
  return write({change}, {});
}

Status CheckpointIndex::set_aside(std::int64_t step, const std::string& reason) {
  storage::WriteBatch batch;
  add_event(batch, "set_aside", fmt::format("step={} {}", step, reason));
  const IndexEntry* known = known_.entries.find(step);
  return known == nullptr ? write({}, std::move(batch))
                          : write({{false, *known}}, std::move(batch));
}

Status CheckpointIndex::evaluated(std::int64_t step, double validation_loss) {
  const IndexEntry* known = known_.entries.find(step);
  if (known == nullptr || known->state != CheckpointState::committed) {
    TRAIN_RETURN_IF_ERROR(store_->put(index_keys::of(index_keys::kLoss, step),
                                      loss_text(validation_loss), Durability::synced));
    known_.losses[step] = validation_loss;
    return {};
  }
  const bool same =
      known->validation_loss && loss_text(*known->validation_loss) == loss_text(validation_loss);
  if (same) {
    return {};
  }
  IndexChange change{true, *known};
  change.entry.validation_loss = validation_loss;
  return write({change}, {});
}

Status CheckpointIndex::trim(std::string_view prefix, std::int64_t& oldest, std::int64_t first_kept,
                             storage::WriteBatch& batch, std::int64_t at_once) {
  if (first_kept - oldest < at_once) {
    return {};
  }
  const std::string begin = index_keys::of(prefix, oldest);
  const std::string end = index_keys::of(prefix, first_kept);
  TRAIN_RETURN_IF_ERROR(store_->scan_from(begin, prefix, [&](std::string_view key, auto) {
    if (key < end) {
      batch.remove(std::string(key));
    }
    return key < end;
  }));
  oldest = first_kept;
  return {};
}

Status CheckpointIndex::log_steps(std::span<const StepRecord> records) {
  if (records.empty()) {
    return {};
  }
  storage::WriteBatch batch;
  std::int64_t newest = newest_step_;
  std::int64_t next_digest = next_digest_;
  for (const StepRecord& record : records) {
    put_step(batch, record);
    if (!record.tensor_digests.empty()) {
      batch.put(index_keys::of(index_keys::kDigested, next_digest++),
                fmt::format("{}", record.step));
    } else if (record.step <= newest) {  // Written by a start that may have digested more steps.
      batch.remove(index_keys::of(index_keys::kDigest, record.step));
    }
    newest = std::max(newest, record.step);
  }
  std::int64_t oldest_step = oldest_step_;
  std::int64_t oldest_digest = oldest_digest_;
  TRAIN_RETURN_IF_ERROR(trim(index_keys::kStep, oldest_step, newest - kStepsKept + 1, batch));
  TRAIN_RETURN_IF_ERROR(trim_digests(oldest_digest, next_digest - kDigestsKept, batch));
  TRAIN_RETURN_IF_ERROR(store_->write(batch, Durability::buffered));
  newest_step_ = newest;
  next_digest_ = next_digest;
  oldest_step_ = oldest_step;
  oldest_digest_ = oldest_digest;
  return {};
}

Status CheckpointIndex::take_back(std::int64_t step) {
  storage::WriteBatch batch;
  for (const std::string_view journal : {index_keys::kStep, index_keys::kDigest}) {
    const std::string first = index_keys::of(journal, step + 1);
    TRAIN_RETURN_IF_ERROR(store_->scan_from(first, journal, [&batch](std::string_view key, auto) {
      batch.remove(std::string(key));
      return true;
    }));
  }
  const auto first_loss = known_.losses.upper_bound(step);
  for (auto loss = first_loss; loss != known_.losses.end(); ++loss) {
    batch.remove(index_keys::of(index_keys::kLoss, loss->first));
  }
  std::vector<IndexChange> changes;
  for (const IndexEntry& entry : entries()) {
    if (entry.step > step && entry.state == CheckpointState::retired && entry.validation_loss) {
      changes.push_back({true, entry});
      changes.back().entry.validation_loss.reset();
    }
  }
  if (!batch.operations().empty() || !changes.empty()) {
    TRAIN_RETURN_IF_ERROR(write(changes, std::move(batch)));
  }
  known_.losses.erase(first_loss, known_.losses.end());
  newest_step_ = std::min(newest_step_, step);
  return {};
}

/// Removes digests with numbers below `first_kept`, and those of earlier steps.
Status CheckpointIndex::trim_digests(std::int64_t& oldest, std::int64_t first_kept,
                                     storage::WriteBatch& batch) {
  if (first_kept - oldest < kTrimAtOnce) {
    return {};
  }
  const std::string begin = index_keys::of(index_keys::kDigested, oldest);
  const std::string end = index_keys::of(index_keys::kDigested, first_kept);
  std::optional<std::int64_t> kept;
  std::optional<std::int64_t> least;  // A resuming start repeats steps.
  TRAIN_RETURN_IF_ERROR(
      store_->scan_from(begin, index_keys::kDigested, [&](std::string_view key, auto value) {
        const auto step = number_in<std::int64_t>(value);
        if (key >= end) {
          kept = step;
          return false;
        }
        if (step) {
          least = std::min(least.value_or(*step), *step);
        }
        return true;
      }));
  TRAIN_RETURN_IF_ERROR(trim(index_keys::kDigested, oldest, first_kept, batch));
  return kept && least ? trim(index_keys::kDigest, *least, *kept, batch, /*at_once=*/1) : Status();
}

void CheckpointIndex::add_event(storage::WriteBatch& batch, std::string_view kind,
                                std::string_view text) {
  batch.put(index_keys::of(index_keys::kEvent, next_event_++),
            event_text({unix_now_s(), std::string(kind), std::string(text)}));
}

Status CheckpointIndex::log_event(std::string_view kind, std::string_view text) {
  storage::WriteBatch batch;
  add_event(batch, kind, text);
  TRAIN_RETURN_IF_ERROR(trim(index_keys::kEvent, oldest_event_, next_event_ - kEventsKept, batch));
  return store_->write(batch, Durability::buffered);
}

std::vector<IndexEntry> CheckpointIndex::committed() const {
  std::vector<IndexEntry> found;
  for (const IndexEntry& entry : entries()) {
    if (entry.state == CheckpointState::committed) {
      found.push_back(entry);
    }
  }
  return found;
}

std::string CheckpointIndex::head() const {
  return known_.sequence == 0 ? std::string()
                              : fmt::format("{}:{}", known_.sequence, known_.digest);
}

namespace {

namespace fs = std::filesystem;

/// Readable part of a damaged store.
struct Remains {
  IndexContent content;
  storage::WriteBatch journals;  ///< Steps, digests and events, unchanged.
};

Remains save_what_reads(storage::KvStore& store) {
  Remains remains;
  remains.content = read_index_content(store, "");
  for (const std::string_view prefix :
       {index_keys::kStep, index_keys::kEvent, index_keys::kDigest}) {
    // The store is known to be damaged; the records before the damage are wanted.
    (void)store.scan(prefix, [&remains](std::string_view key, std::string_view value) {
      remains.journals.put(std::string(key), std::string(value));
      return true;
    });
  }
  return remains;
}

/// Unused name beside `directory`.
fs::path free_name(const fs::path& directory) {
  for (int number = 1;; ++number) {
    fs::path aside = directory;
    aside += fmt::format(".aside-{}", number);
    if (is_gone(aside)) {
      return aside;
    }
  }
}

Result<OpenedIndex> make_anew(const fs::path& directory, const fs::path& checkpoints,
                              const Remains& remains, const std::string& reason,
                              const RunIdentity& identity) {
  // Checked before the old index is moved: another run's is rejected and left unchanged.
  const auto placed = TRAIN_TRY(LocatedManifests::list(checkpoints, identity));
  for (const Candidate& candidate : placed.all()) {
    TRAIN_RETURN_IF_ERROR(placed.entry_at(candidate));
  }
  const fs::path aside = free_name(directory);
  TRAIN_RETURN_IF_ERROR(storage::rename_durably(directory, aside));
  auto store = TRAIN_TRY(storage::RocksStore::open(directory));
  TRAIN_RETURN_IF_ERROR(store->write(remains.journals, storage::Durability::buffered));
  auto index = CheckpointIndex::make_anew(
      *store, checkpoints, remains.content,
      fmt::format("{}; it is kept as {}", reason, aside.string()), identity);
  TRAIN_RETURN_IF_ERROR(index);
  return OpenedIndex{std::move(store), std::move(index).value()};
}

}  // namespace

Result<OpenedIndex> open_index(const fs::path& directory, const fs::path& checkpoints,
                               IndexReading reading, const RunIdentity& identity) {
  bool damaged = false;
  auto store = storage::RocksStore::open(directory, &damaged);
  if (!store) {
    return damaged ? make_anew(directory, checkpoints, {}, store.error().message, identity)
                   : store.error();
  }
  if (reading == IndexReading::needed) {
    auto index = CheckpointIndex::open(**store, checkpoints, identity);
    if (index) {
      return OpenedIndex{std::move(store).value(), std::move(index).value()};
    }
  }
  const Status whole = (*store)->read_all(&damaged);
  if (!whole && damaged) {
    const Remains remains = save_what_reads(**store);
    store->reset();
    return make_anew(directory, checkpoints, remains, whole.error().message, identity);
  }
  TRAIN_RETURN_IF_ERROR(whole);
  auto index = TRAIN_TRY(CheckpointIndex::open(**store, checkpoints, identity));
  return OpenedIndex{std::move(store).value(), std::move(index)};
}

}  // namespace train::checkpoint
