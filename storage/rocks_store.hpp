#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "storage/kv_store.hpp"

namespace train::storage {

/// True if the text of a RocksDB status (Status::ToString()) means that the stored bytes are
/// unusable: damaged, incomplete, or of a newer format. A disk or system error (out of space, a
/// stale handle, a time-out, no permission, …) says nothing about the bytes. Pure.
[[nodiscard]] bool means_damage(std::string_view status);

/// KvStore in a RocksDB directory.
///
/// RocksDB opens without an error after its log was truncated or lost, and forgets later writes:
/// callers keep a sequence number and a running hash of their own (as checkpoint/index/index.hpp).
class RocksStore final : public KvStore {
 public:
  /// Creates the directory if missing. Errors: open in another process (user); damaged (failure;
  /// says how to rebuild); not writable (user). `damaged`, if given, is set if only a new store can
  /// fix the error.
  static Result<std::unique_ptr<RocksStore>> open(const std::filesystem::path& directory,
                                                  bool* damaged = nullptr);

  /// Opens the current content for reading; takes no lock and changes nothing on disk, so it works
  /// while another process writes. Later writes are not visible. write() is an error. Errors: as
  /// open(); missing (user).
  static Result<std::unique_ptr<RocksStore>> open_read_only(const std::filesystem::path& directory);
  ~RocksStore() override;

  /// Reads everything. `damaged` as in open(): a damaged block is only noticed when read.
  [[nodiscard]] Status read_all(bool* damaged);

  Status write(const WriteBatch& batch, Durability durability) override;
  Status scan_from(std::string_view first, std::string_view prefix,
                   const Visitor& visitor) override;
  Result<std::optional<std::string>> last_key(std::string_view prefix) override;

 private:
  struct Database;
  explicit RocksStore(std::unique_ptr<Database> database);
  std::unique_ptr<Database> database_;
};

}  // namespace train::storage
