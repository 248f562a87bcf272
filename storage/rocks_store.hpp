#pragma once

#include <filesystem>
#include <memory>

#include "storage/kv_store.hpp"

namespace train::storage {

/// A KvStore in a RocksDB directory.
///
/// RocksDB opens cleanly after its log was cut or lost and forgets what followed: callers keep a
/// sequence and a running hash of their own (checkpoint/index/index.hpp does).
class RocksStore final : public KvStore {
 public:
  /// Creates the directory if missing. Errors: open in another process (user); damaged (failure;
  /// says how to rebuild); not writable (user).
  /// `damaged`, if given, tells whether the error is one that only a new store mends.
  static Result<std::unique_ptr<RocksStore>> open(const std::filesystem::path& directory,
                                                  bool* damaged = nullptr);

  /// Opens what is there at this moment for reading; takes no lock and changes nothing on disk, so
  /// it works while another process writes. Later writes of that process do not show. write() is
  /// an error. Errors: as open(); missing (user).
  static Result<std::unique_ptr<RocksStore>> open_read_only(const std::filesystem::path& directory);
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
