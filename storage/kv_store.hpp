#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace train::storage {

enum class Durability : std::uint8_t {
  buffered,  ///< Survives the process.
  synced,    ///< Survives a power cut; costs about 0.3 ms.
};

/// Changes applied atomically.
class WriteBatch {
 public:
  void put(std::string key, std::string value) {
    operations_.emplace_back(std::move(key), std::move(value));
  }
  void remove(std::string key) { operations_.emplace_back(std::move(key), std::nullopt); }

  using Operation = std::pair<std::string, std::optional<std::string>>;  ///< Value nullopt: remove.
  [[nodiscard]] const std::vector<Operation>& operations() const { return operations_; }

 private:
  std::vector<Operation> operations_;
};

/// Ordered map of byte strings on disk. All calls block. Threading: one owner.
class KvStore {
 public:
  /// Returns false to stop.
  using Visitor = std::function<bool(std::string_view key, std::string_view value)>;

  KvStore() = default;
  KvStore(const KvStore&) = delete;
  KvStore& operator=(const KvStore&) = delete;
  virtual ~KvStore() = default;

  /// Applies all of `batch`, in order, atomically.
  virtual Status write(const WriteBatch& batch, Durability durability) = 0;
  /// Visits the keys that start with `prefix` in ascending byte order, from `first` on.
  virtual Status scan_from(std::string_view first, std::string_view prefix,
                           const Visitor& visitor) = 0;
  /// Last key with `prefix`; nullopt: there is none. Reads no other key.
  virtual Result<std::optional<std::string>> last_key(std::string_view prefix) = 0;

  /// Visits all keys that start with `prefix`.
  Status scan(std::string_view prefix, const Visitor& visitor) {
    return scan_from(prefix, prefix, visitor);
  }

  Status put(std::string key, std::string value, Durability durability) {
    WriteBatch batch;
    batch.put(std::move(key), std::move(value));
    return write(batch, durability);
  }
  Status remove(std::string key, Durability durability) {
    WriteBatch batch;
    batch.remove(std::move(key));
    return write(batch, durability);
  }
};

}  // namespace train::storage
