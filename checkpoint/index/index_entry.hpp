#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/format/manifest.hpp"

namespace train::checkpoint {

/// How far a checkpoint has come.
enum class CheckpointState : std::uint8_t {
  writing,     ///< Ranks write their shards.
  local,       ///< Whole on the nodes' own disks, not in the run's directory.
  publishing,  ///< On its way to the run's directory.
  committed,   ///< Whole in the run's directory, and recorded.
  retired,     ///< Was committed; removed since, or found missing.
};

/// "writing", …; empty for a word that names none.
[[nodiscard]] std::string_view state_name(CheckpointState state);
[[nodiscard]] std::optional<CheckpointState> state_of(std::string_view name);

/// What the index remembers of one checkpoint.
struct IndexEntry {
  std::int64_t step = 0;
  std::string directory;  ///< Name within the checkpoints directory.
  CheckpointState state = CheckpointState::committed;
  std::string manifest_digest;   ///< Of the bytes of manifest.json.
  std::int64_t recorded_s = 0;   ///< Unix time, seconds.
  std::uint64_t size_bytes = 0;  ///< Of all shards.
  std::int64_t tokens = 0;       ///< Training tokens read up to here.
  std::int64_t ranks = 0;        ///< That wrote it.
  std::optional<double> validation_loss = std::nullopt;
  /// Recorded from its manifest when the index was made anew: what the index knew besides may be
  /// lost, its validation loss first of all.
  bool rebuilt = false;
};

/// The entry of a checkpoint in place, recorded now.
[[nodiscard]] IndexEntry entry_of(const Manifest& manifest, std::string manifest_digest);

/// One line, without a line feed.
[[nodiscard]] std::string entry_text(const IndexEntry& entry);
/// Also reads what earlier versions wrote (JSON with fewer fields). Empty: not the text of one.
[[nodiscard]] std::optional<IndexEntry> parse_entry(std::string_view text);

/// Seconds since 1970.
[[nodiscard]] std::int64_t unix_now_s();

}  // namespace train::checkpoint
