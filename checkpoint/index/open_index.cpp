#include <fmt/format.h>

#include <utility>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/format/run_identity.hpp"
#include "checkpoint/index/index.hpp"
#include "checkpoint/index/located_manifests.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/rocks_store.hpp"

namespace train::checkpoint {
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
  const auto placed = LocatedManifests::list(checkpoints, identity);
  TRAIN_RETURN_IF_ERROR(placed);
  for (const Candidate& candidate : placed->all()) {
    TRAIN_RETURN_IF_ERROR(placed->entry_at(candidate));
  }
  const fs::path aside = free_name(directory);
  TRAIN_RETURN_IF_ERROR(storage::rename_durably(directory, aside));
  auto store = storage::RocksStore::open(directory);
  TRAIN_RETURN_IF_ERROR(store);
  TRAIN_RETURN_IF_ERROR((*store)->write(remains.journals, storage::Durability::buffered));
  auto index = CheckpointIndex::make_anew(
      **store, checkpoints, remains.content,
      fmt::format("{}; it is kept as {}", reason, aside.string()), identity);
  TRAIN_RETURN_IF_ERROR(index);
  return OpenedIndex{std::move(store).value(), std::move(index).value()};
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
  auto index = CheckpointIndex::open(**store, checkpoints, identity);
  TRAIN_RETURN_IF_ERROR(index);
  return OpenedIndex{std::move(store).value(), std::move(index).value()};
}

}  // namespace train::checkpoint
