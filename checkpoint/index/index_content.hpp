#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "checkpoint/index/index_entry.hpp"
#include "storage/kv_store.hpp"

namespace train::checkpoint {

/// Key prefixes of the index's store, each followed by a number of 20 digits.
namespace index_keys {
inline constexpr std::string_view kDigest = "digest/";      ///< By step.
inline constexpr std::string_view kDigested = "digested/";  ///< By sequence: steps with digests.
inline constexpr std::string_view kEvent = "event/";        ///< By sequence.
inline constexpr std::string_view kJournal = "journal/";    ///< By sequence.
inline constexpr std::string_view kLoss = "loss/";          ///< By step, until it is committed.
inline constexpr std::string_view kNote = "note/";          ///< By step, until it is committed.
inline constexpr std::string_view kStep = "step/";          ///< By step.
[[nodiscard]] std::string of(std::string_view prefix, std::int64_t number);
/// Number of a key with this prefix; nullopt: another key.
[[nodiscard]] std::optional<std::int64_t> number_of(std::string_view prefix, std::string_view key);
}  // namespace index_keys

/// Entries in step order. Appending the newest costs O(1).
class EntryList {
 public:
  void put(IndexEntry entry);
  void erase(std::int64_t step);
  /// Borrowed until the next change; nullptr: unknown.
  [[nodiscard]] const IndexEntry* find(std::int64_t step) const;
  [[nodiscard]] const std::vector<IndexEntry>& all() const { return entries_; }

 private:
  std::vector<IndexEntry> entries_;
};

/// Checkpoint in progress.
struct IndexNote {
  CheckpointState state = CheckpointState::writing;
  std::int64_t noted_s = 0;  ///< Unix time, seconds.
};

/// Change of an entry, as recorded in the journal.
struct IndexChange {
  bool present = true;  ///< false: the entry is removed.
  IndexEntry entry;
};

/// Journal record of a change: its body, and the digest that chains it to earlier ones.
struct ChainLink {
  std::string record;
  std::string digest;
};
[[nodiscard]] ChainLink chain_link(std::string_view digest_before, const IndexChange& change);

/// Content of a store, as far as the chain proves it.
struct IndexContent {
  EntryList entries;
  std::map<std::int64_t, IndexNote> notes;
  std::map<std::int64_t, double> losses;  ///< Validation losses of steps not yet committed.
  std::int64_t sequence = 0;              ///< Number of the last change.
  std::string digest;                     ///< Digest of the chain up to there.
  bool knows_head = false;                ///< The wanted head is in the chain.
  std::string damage;                     ///< Place of the chain's break; empty: it is intact.
  std::optional<Error> unreadable;        ///< Error that stopped reading the store.
};

/// Reads journal and notes and checks every link. `wanted_head`: "<sequence>:<digest>", or empty
/// (found in every chain). Blocks.
[[nodiscard]] IndexContent read_index_content(storage::KvStore& store,
                                              std::string_view wanted_head);

struct EventRecord {
  std::int64_t logged_s = 0;  ///< Unix time, seconds.
  std::string kind;
  std::string text;
};
[[nodiscard]] std::string event_text(const EventRecord& event);
[[nodiscard]] std::optional<EventRecord> parse_event(std::string_view text);

/// Events, oldest first; unparsable records are skipped. Errors: the store's.
Result<std::vector<EventRecord>> read_events(storage::KvStore& store);

}  // namespace train::checkpoint
