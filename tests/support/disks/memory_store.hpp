#pragma once

#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "storage/kv_store.hpp"

namespace train::test {

/// KvStore in memory. Copying its content and restoring it later simulates a disk that lost its
/// newest writes; writes can be made to fail.
class MemoryStore final : public storage::KvStore {
 public:
  std::map<std::string, std::string, std::less<>> content;
  int writes_until_failure = -1;  ///< -1: never.

  Status write(const storage::WriteBatch& batch, storage::Durability) override {
    if (writes_until_failure == 0) {
      return failure("memory store: write refused");
    }
    writes_until_failure -= writes_until_failure > 0 ? 1 : 0;
    for (const auto& [key, value] : batch.operations()) {
      if (value) {
        content[key] = *value;
      } else {
        content.erase(key);
      }
    }
    return {};
  }

  Status scan_from(std::string_view first, std::string_view prefix,
                   const Visitor& visitor) override {
    for (auto at = content.lower_bound(first); at != content.end(); ++at) {
      if (!at->first.starts_with(prefix) || !visitor(at->first, at->second)) {
        break;
      }
    }
    return {};
  }

  Result<std::optional<std::string>> last_key(std::string_view prefix) override {
    std::string behind(prefix);
    behind.push_back('\xff');
    const auto after = content.lower_bound(behind);
    const bool found = after != content.begin() && std::prev(after)->first.starts_with(prefix);
    return found ? std::optional(std::prev(after)->first) : std::nullopt;
  }
};

}  // namespace train::test
