#include "checkpoint/index/index_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "checkpoint/index/index_content.hpp"
#include "checkpoint/index/located_manifests.hpp"
#include "storage/rocks_store.hpp"

namespace train::checkpoint {
namespace {

namespace fs = std::filesystem;

/// The index if it can be trusted; otherwise the reason.
struct Attempt {
  IndexContent content;
  std::string defect;
};

Attempt attempt(const fs::path& index, const std::string& newest_head) {
  Attempt result;
  auto store = storage::RocksStore::open_read_only(index);
  if (!store) {
    result.defect = store.error().message;
    return result;
  }
  result.content = read_index_content(**store, newest_head);
  if (result.content.unreadable) {
    result.defect = result.content.unreadable->message;
  } else if (!result.content.damage.empty()) {
    result.defect = fmt::format("index {}: {}", index.string(), result.content.damage);
  }
  return result;
}

/// A checkpoint saved after a rebuild carries the head of the new chain; older ones that of the
/// old.
bool is_behind(const IndexContent& content, const LocatedManifests::Newest& newest) {
  const IndexEntry* entry = content.entries.find(newest.step);
  const bool from_rebuild =
      entry != nullptr && entry->rebuilt && entry->manifest_digest == newest.digest;
  return !content.knows_head && !from_rebuild;
}

/// Index entries, corrected by the directory's current content.
Result<std::vector<IndexEntry>> merged(const IndexContent& content,
                                       const LocatedManifests& placed) {
  EntryList list;
  for (IndexEntry entry : content.entries.all()) {
    if (entry.state == CheckpointState::committed && !placed.has(entry.step)) {
      entry.state = CheckpointState::retired;
    }
    list.put(std::move(entry));
  }
  for (const Candidate& candidate : placed.all()) {
    const IndexEntry* known = list.find(candidate.step);
    if (known != nullptr && known->state == CheckpointState::committed) {
      continue;
    }
    auto entry = TRAIN_TRY(placed.entry_at(candidate));
    if (entry) {
      list.put(std::move(*entry));
    }
  }
  for (const auto& [step, note] : content.notes) {
    const IndexEntry* known = list.find(step);
    if (known == nullptr || known->state == CheckpointState::retired) {
      IndexEntry entry;
      entry.step = step;
      entry.state = note.state;
      entry.recorded_s = note.noted_s;
      list.put(std::move(entry));
    }
  }
  return list.all();
}

bool holds_committed(const std::vector<IndexEntry>& entries) {
  return std::any_of(entries.begin(), entries.end(), [](const IndexEntry& entry) {
    return entry.state == CheckpointState::committed;
  });
}

}  // namespace

Result<IndexView> view_index(const fs::path& index, const fs::path& checkpoints) {
  constexpr int looks = 50;    // Limit of attempts: a run may retire every checkpoint before it is
                               // read.
  constexpr int attempts = 5;  // Limit of attempts: a run that commits meanwhile is ahead of what
                               // was read first.
  int again = attempts - 1;
  for (int left = looks - 1;; --left) {
    const auto before = TRAIN_TRY(LocatedManifests::list(checkpoints));
    const auto newest = TRAIN_TRY(before.newest());
    Attempt found = attempt(index, newest ? newest->index_head : std::string());
    if (found.defect.empty() && newest && is_behind(found.content, *newest)) {
      found.defect = fmt::format("index {}: {} knows of changes that it lost", index.string(),
                                 checkpoint_name(newest->step));
    }
    if (!found.defect.empty()) {
      if (again > 0) {
        --again;
        continue;
      }
      found.content = {};
    }
    // Listed after the index was read: its committed checkpoints are now in place or retired.
    const auto placed = TRAIN_TRY(LocatedManifests::list(checkpoints));
    auto entries = TRAIN_TRY(merged(found.content, placed));
    // A run replaces its checkpoints: an empty result while they change is no answer.
    if (placed.all().empty() || holds_committed(entries) || left == 0) {
      return IndexView{std::move(entries), std::move(found.defect)};
    }
  }
}

}  // namespace train::checkpoint
