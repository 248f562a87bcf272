#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/format/manifest.hpp"

namespace train::checkpoint {

/// State of a checkpoint.
enum class CheckpointState : std::uint8_t {
  writing,     ///< Ranks are writing their shards.
  local,       ///< Complete on the nodes' own disks, not yet in the run's directory.
  publishing,  ///< Being copied to the run's directory.
  committed,   ///< Complete in the run's directory, and recorded.
  retired,     ///< Formerly committed; removed, or found missing.
};

/// "writing", …; nullopt for an unknown word.
[[nodiscard]] std::string_view state_name(CheckpointState state);
[[nodiscard]] std::optional<CheckpointState> state_of(std::string_view name);

/// Index entry of a checkpoint.
struct IndexEntry {
  std::int64_t step = 0;
  std::string directory;  ///< Name within the checkpoints directory.
  CheckpointState state = CheckpointState::committed;
  std::string manifest_digest;   ///< Digest of manifest.json's bytes.
  std::int64_t recorded_s = 0;   ///< Unix time, seconds.
  std::uint64_t size_bytes = 0;  ///< Bytes of all shards.
  std::int64_t tokens = 0;       ///< Training tokens read so far.
  std::int64_t ranks = 0;        ///< Number of ranks that wrote it.
  std::optional<double> validation_loss = std::nullopt;
  /// Made from its manifest in a rebuild: other data of the index may be lost, above all the
  /// validation loss.
  bool rebuilt = false;
};

/// Entry of a checkpoint in place, recorded now.
[[nodiscard]] IndexEntry entry_of(const Manifest& manifest, std::string manifest_digest);

/// One line, without a line feed.
[[nodiscard]] std::string entry_text(const IndexEntry& entry);
/// Also parses the format of earlier versions (JSON with fewer fields). nullopt: malformed.
[[nodiscard]] std::optional<IndexEntry> parse_entry(std::string_view text);

/// Seconds since 1970.
[[nodiscard]] std::int64_t unix_now_s();

}  // namespace train::checkpoint
