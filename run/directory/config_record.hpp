#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "storage/kv_store.hpp"

// A run's own record of its configuration, in the index: which one each step was computed with,
// whatever becomes of the file config.toml.
namespace train::run {

/// Kind of the index's event.
inline constexpr const char* kConfigRecorded = "config_recorded";

/// Configuration of the steps after the first `step`.
struct ConfigRecord {
  std::int64_t step = 0;
  std::string text;    ///< Content of config.toml.
  bool begun = false;  ///< The start that recorded it went on to its first step.
};

/// Text of the event, which read_config_records() reads back.
[[nodiscard]] std::string config_record_text(const ConfigRecord& record);

/// Reads the records from the index, oldest first. Blocks. Errors: the store's.
[[nodiscard]] Result<std::vector<ConfigRecord>> read_config_records(storage::KvStore& store);

/// Record of a step that was computed, or null: a later start that went back overrides those of
/// the steps that it computed again. Borrowed from `records`. Pure.
[[nodiscard]] const ConfigRecord* record_of(const std::vector<ConfigRecord>& records,
                                            std::int64_t step);

}  // namespace train::run
