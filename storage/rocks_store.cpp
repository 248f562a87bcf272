#include "storage/rocks_store.hpp"

#include <fmt/format.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "storage/files/atomic_file.hpp"
#include "storage/files/file_calls.hpp"
#include "storage/rocks_env.hpp"

namespace train::storage {

struct RocksStore::Database {
  Database(std::filesystem::path path, std::unique_ptr<rocksdb::DB> opened)
      : directory(std::move(path)), handle(std::move(opened)) {}
  std::filesystem::path directory;
  std::shared_ptr<rocksdb::Env> env;  ///< Set by tests; outlives `handle`.
  std::unique_ptr<rocksdb::DB> handle;
};

namespace {

Error to_error(const rocksdb::Status& status, const std::filesystem::path& directory) {
  std::string text = status.ToString();
  std::replace_if(
      text.begin(), text.end(), [](char letter) { return letter == '\n' || letter == '\r'; }, ' ');
  const std::string place = directory.string();
  if (text.find("lock ") != std::string::npos && status.IsIOError()) {
    return user_error(fmt::format(
        "index {} is already in use by another process; wait for it or stop it ({})", place, text));
  }
  if (status.IsNoSpace() || text.find("No space left") != std::string::npos ||
      text.find("quota exceeded") != std::string::npos) {  // RocksDB has no status for EDQUOT.
    return failure(fmt::format("cannot write index {}: {}: free space there ({})", place,
                               kDiskFullWords, text));
  }
  if (text.find("Permission denied") != std::string::npos ||
      text.find("Read-only file system") != std::string::npos) {
    return user_error(
        fmt::format("cannot write index {}: no write permission; change it ({})", place, text));
  }
  if (text.find("Too many open files") != std::string::npos) {
    return failure(
        fmt::format("index {}: too many open files; raise `ulimit -n` ({})", place, text));
  }
  if (!status.IsIOError() && means_damage(text)) {
    return failure(fmt::format(
        "index {} is damaged; move it away, and it is rebuilt from the checkpoints ({})", place,
        text));
  }
  return failure(fmt::format("index {}: {}", place, text));
}

/// Replaces RocksDB's own log: a reader must not write into the owner's directory, and on a full
/// disk Debian's build aborts at the log's second write.
class SilentLogger final : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char*, va_list) override {}
};

rocksdb::Options options_with_checks() {
  rocksdb::Options options;
  options.paranoid_checks = true;
  options.info_log = std::make_shared<SilentLogger>();
  // More threads for a few small files cost more than they save, and RocksDB calls std::terminate
  // if one of them cannot be started.
  options.max_file_opening_threads = 1;
  return options;
}

rocksdb::Slice slice(std::string_view text) { return {text.data(), text.size()}; }

/// An exception of RocksDB, for want of memory or of a thread, ends the process: it leaves locked
/// what the next call waits for.
template <class Call>
rocksdb::Status call_rocksdb(const Call& call) noexcept {
  return call();
}

rocksdb::Status open_database(const rocksdb::Options& options,
                              const std::filesystem::path& directory, rocksdb::DB** opened) {
  return call_rocksdb([&] { return rocksdb::DB::Open(options, directory.string(), opened); });
}

/// Key after all keys with a prefix: keys are text.
std::string behind(std::string_view prefix) { return std::string(prefix) + '\xff'; }

rocksdb::Status visit(rocksdb::DB& database, std::string_view first, std::string_view prefix,
                      const KvStore::Visitor& visitor) {
  // Without a bound, a scan that finds no key would read on past all removed keys to the next one.
  const std::string end = behind(prefix);
  const rocksdb::Slice bound(end);
  rocksdb::ReadOptions options;
  options.iterate_upper_bound = &bound;
  const std::unique_ptr<rocksdb::Iterator> position(database.NewIterator(options));
  for (position->Seek(slice(first)); position->Valid(); position->Next()) {
    const std::string_view key(position->key().data(), position->key().size());
    if (!key.starts_with(prefix) ||
        !visitor(key, {position->value().data(), position->value().size()})) {
      break;
    }
  }
  return position->status();  // A scan just ends at a damaged block; only the status tells.
}

/// True for the strerror() text of a file system without locks.
bool means_no_locks(const std::string& status) {
  static constexpr std::array<int, 3> kNoLocks = {ENOSYS, EOPNOTSUPP, ENOLCK};
  return status.find("lock file") != std::string::npos &&
         std::any_of(kNoLocks.begin(), kNoLocks.end(), [&status](int error_number) {
           return status.find(std::strerror(error_number)) != std::string::npos;
         });
}

}  // namespace

bool means_damage(std::string_view status) {
  const auto says = [status](std::string_view part) {
    return status.find(part) != std::string_view::npos;
  };
  // RocksDB may also call an I/O error corruption, if it could not look at a file. Damaged names
  // lead to a missing file or another kind of file.
  if (says("IO error")) {
    static constexpr std::array<std::string_view, 5> kBadName = {
        "No such file or directory", "Not a directory", "Is a directory", "File name too long",
        "Too many levels of symbolic links"};
    return std::any_of(kBadName.begin(), kBadName.end(), says);
  }
  return status.starts_with("Corruption") || status.starts_with("Invalid argument") ||
         status.starts_with("Not implemented");
}

RocksStore::RocksStore(std::unique_ptr<Database> database) : database_(std::move(database)) {}
RocksStore::~RocksStore() = default;

Result<std::unique_ptr<RocksStore>> RocksStore::open(const std::filesystem::path& directory,
                                                     bool* damaged) {
  TRAIN_RETURN_IF_ERROR(make_directory(directory));
  rocksdb::Options options = options_with_checks();
  options.create_if_missing = true;
  options.max_background_jobs = 1;
  // The index is small, so its memory and the log replayed by every open are limited.
  options.write_buffer_size = std::size_t{1} << 20U;
  // An open turns that log into a small table, and some opens merge those with the first level.
  // Small levels keep this from rewriting the whole index.
  options.max_bytes_for_level_base = std::uint64_t{512} << 10U;
  options.target_file_size_base = std::uint64_t{512} << 10U;
  options.target_file_size_multiplier = 4;
  std::shared_ptr<rocksdb::Env> env = hooked_rocks_env();
  if (env != nullptr) {
    options.env = env.get();
  }
  rocksdb::DB* raw = nullptr;
  rocksdb::Status status = open_database(options, directory, &raw);
  if (means_no_locks(status.ToString())) {
    env = unlocked_rocks_env(env);
    options.env = env.get();
    status = open_database(options, directory, &raw);
  }
  auto database = std::make_unique<Database>(directory, std::unique_ptr<rocksdb::DB>(raw));
  database->env = std::move(env);
  if (damaged != nullptr) {
    *damaged = means_damage(status.ToString());
  }
  if (!status.ok()) {
    return to_error(status, directory);
  }
  return std::unique_ptr<RocksStore>(new RocksStore(std::move(database)));
}

Result<std::unique_ptr<RocksStore>> RocksStore::open_read_only(
    const std::filesystem::path& directory) {
  constexpr int attempts = 5;
  constexpr std::chrono::milliseconds pause(5);
  std::error_code code;
  if (!std::filesystem::exists(directory / "CURRENT", code)) {
    return user_error(fmt::format("index {}: not there", directory.string()));
  }
  rocksdb::Status status;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    rocksdb::DB* raw = nullptr;
    status = rocksdb::DB::OpenForReadOnly(options_with_checks(), directory.string(), &raw);
    auto database = std::make_unique<Database>(directory, std::unique_ptr<rocksdb::DB>(raw));
    if (status.ok()) {
      return std::unique_ptr<RocksStore>(new RocksStore(std::move(database)));
    }
    // The writer removes files that it has rewritten, possibly between listing and opening.
    std::this_thread::sleep_for(pause);
  }
  return to_error(status, directory);
}

Status RocksStore::write(const WriteBatch& batch, Durability durability) {
  rocksdb::WriteBatch changes;
  for (const auto& [key, value] : batch.operations()) {
    const rocksdb::Status status = value ? changes.Put(key, *value) : changes.Delete(key);
    if (!status.ok()) {
      return to_error(status, database_->directory);
    }
  }
  rocksdb::WriteOptions options;
  options.sync = durability == Durability::synced;
  if (options.sync) {
    file_point("index-put", database_->directory);
  }
  const rocksdb::Status status =
      call_rocksdb([&] { return database_->handle->Write(options, &changes); });
  if (options.sync) {
    file_point("index-put", database_->directory);
  }
  return status.ok() ? Status{} : Status(to_error(status, database_->directory));
}

Status RocksStore::read_all(bool* damaged) {
  const auto take_all = [](std::string_view, std::string_view) { return true; };
  const rocksdb::Status status = visit(*database_->handle, "", "", take_all);
  *damaged = means_damage(status.ToString());
  return status.ok() ? Status{} : Status(to_error(status, database_->directory));
}

Status RocksStore::scan_from(std::string_view first, std::string_view prefix,
                             const Visitor& visitor) {
  const rocksdb::Status status = visit(*database_->handle, first, prefix, visitor);
  return status.ok() ? Status{} : Status(to_error(status, database_->directory));
}

Result<std::optional<std::string>> RocksStore::last_key(std::string_view prefix) {
  using Key = std::optional<std::string>;
  const rocksdb::Slice bound = slice(prefix);
  rocksdb::ReadOptions options;
  options.iterate_lower_bound = &bound;
  const std::unique_ptr<rocksdb::Iterator> position(database_->handle->NewIterator(options));
  position->SeekForPrev(behind(prefix));
  if (!position->status().ok()) {
    return to_error(position->status(), database_->directory);
  }
  const bool found = position->Valid() && position->key().starts_with(slice(prefix));
  return found ? Key(position->key().ToString()) : Key();
}

}  // namespace train::storage
