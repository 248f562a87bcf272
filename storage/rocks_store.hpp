#pragma once

#include <filesystem>
#include <memory>

#include "storage/kv_store.hpp"

namespace train::storage {

/// A KvStore in a RocksDB directory.
///
/// RocksDB opens cleanly after its log was cut or lost and forgets what followed: callers keep a
/// sequence and a running hash of their own (checkpoint/index.hpp does).
class RocksStore final : public KvStore {
 public:
  /// Creates the directory if missing. Errors: open in another process (user); damaged (failure;
  /// says how to rebuild); not writable (user).
  static Result<std::unique_ptr<RocksStore>> open(const std::filesystem::path& directory);
  ~RocksStore() override;

  Result<std::optional<std::string>> get(std::string_view key) override;
  Status write(const WriteBatch& batch, Durability durability) override;
  Status scan(std::string_view prefix, const Visitor& visitor) override;

 private:
  struct Database;
  explicit RocksStore(std::unique_ptr<Database> database);
  std::unique_ptr<Database> database_;
};

}  // namespace train::storage
