#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "storage/kv_store.hpp"

namespace train::storage {

/// Whether RocksDB's status, as its text (Status::ToString()), says that the stored bytes are of no
/// use to this program: damaged, incomplete, or of a newer format. An error of the disk or of the
/// system (out of space, a stale handle, a time-out, no permission, …) says nothing about them.
/// Pure.
[[nodiscard]] bool means_damage(std::string_view status);

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

  /// Reads all of it. `damaged` as of open(): a damaged block shows only when it is read.
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
