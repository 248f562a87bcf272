#include "storage/rocks_store.hpp"

#include <fmt/format.h>
#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include <string>
#include <utility>

#include "storage/atomic_file.hpp"

namespace train::storage {

struct RocksStore::Database {
  std::filesystem::path directory;
  std::unique_ptr<rocksdb::DB> handle;
};

namespace {

std::string one_line(std::string text) {
  for (char& character : text) {
    if (character == '\n' || character == '\r') {
      character = ' ';
    }
  }
  return text;
}

Error to_error(const rocksdb::Status& status, const std::filesystem::path& directory) {
  const std::string text = one_line(status.ToString());
  const std::string place = directory.string();
  if (text.find("lock ") != std::string::npos && status.IsIOError()) {
    return user_error(fmt::format(
        "index {} is already in use by another process; wait for it or stop it ({})", place, text));
  }
  if (status.IsNoSpace() || text.find("No space left") != std::string::npos) {
    return failure(
        fmt::format("cannot write index {}: disk full: free space there ({})", place, text));
  }
  if (text.find("Permission denied") != std::string::npos ||
      text.find("Read-only file system") != std::string::npos) {
    return user_error(
        fmt::format("cannot write index {}: no write permission; change it ({})", place, text));
  }
  if (status.IsCorruption() || status.IsInvalidArgument()) {
    return failure(
        fmt::format("index {} is damaged; move it away, it is made anew from the checkpoints ({})",
                    place, text));
  }
  return failure(fmt::format("index {}: {}", place, text));
}

rocksdb::Slice slice(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

RocksStore::RocksStore(std::unique_ptr<Database> database) : database_(std::move(database)) {}
RocksStore::~RocksStore() = default;

Result<std::unique_ptr<RocksStore>> RocksStore::open(const std::filesystem::path& directory) {
  TRAIN_RETURN_IF_ERROR(make_directory(directory));
  rocksdb::Options options;
  options.create_if_missing = true;
  options.paranoid_checks = true;
  options.max_background_jobs = 1;
  options.write_buffer_size = std::size_t{4} << 20U;  // The index is small; so is its memory.
  options.keep_log_file_num = 2;
  rocksdb::DB* raw = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(options, directory.string(), &raw);
  auto database = std::make_unique<Database>();
  database->directory = directory;
  database->handle.reset(raw);
  if (!status.ok()) {
    return to_error(status, directory);
  }
  return std::unique_ptr<RocksStore>(new RocksStore(std::move(database)));
}

Result<std::optional<std::string>> RocksStore::get(std::string_view key) {
  std::string value;
  const rocksdb::Status status = database_->handle->Get(rocksdb::ReadOptions(), slice(key), &value);
  if (status.IsNotFound()) {
    return std::optional<std::string>();
  }
  if (!status.ok()) {
    return to_error(status, database_->directory);
  }
  return std::optional<std::string>(std::move(value));
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
  const rocksdb::Status status = database_->handle->Write(options, &changes);
  return status.ok() ? Status{} : Status(to_error(status, database_->directory));
}

Status RocksStore::scan(std::string_view prefix, const Visitor& visitor) {
  const std::unique_ptr<rocksdb::Iterator> position(
      database_->handle->NewIterator(rocksdb::ReadOptions()));
  for (position->Seek(slice(prefix)); position->Valid(); position->Next()) {
    const std::string_view key(position->key().data(), position->key().size());
    if (!key.starts_with(prefix) ||
        !visitor(key, {position->value().data(), position->value().size()})) {
      break;
    }
  }
  // An iterator that meets a damaged block just ends; only its status tells.
  const rocksdb::Status status = position->status();
  return status.ok() ? Status{} : Status(to_error(status, database_->directory));
}

}  // namespace train::storage
