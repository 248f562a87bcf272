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

/// Keys of the index's store; what follows each prefix is a number of 20 digits.
namespace index_keys {
inline constexpr std::string_view digest = "digest/";      ///< By step.
inline constexpr std::string_view digested = "digested/";  ///< By sequence: steps with digests.
inline constexpr std::string_view event = "event/";        ///< By sequence.
inline constexpr std::string_view journal = "journal/";    ///< By sequence.
inline constexpr std::string_view loss = "loss/";          ///< By step, until it is committed.
inline constexpr std::string_view note = "note/";          ///< By step, until it is committed.
inline constexpr std::string_view step = "step/";          ///< By step.
[[nodiscard]] std::string of(std::string_view prefix, std::int64_t number);
/// The number of a key with this prefix; empty: not such a key.
[[nodiscard]] std::optional<std::int64_t> number_of(std::string_view prefix, std::string_view key);
}  // namespace index_keys

/// Entries in the order of their steps. Adding the newest costs O(1) whatever there is.
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

/// A checkpoint on its way.
struct IndexNote {
  CheckpointState state = CheckpointState::writing;
  std::int64_t noted_s = 0;  ///< Unix time, seconds.
};

/// One change of the entries, as the journal holds it.
struct IndexChange {
  bool present = true;  ///< Or the entry goes.
  IndexEntry entry;
};

/// The journal's record of a change: its body, and the digest that chains it to those before.
struct ChainLink {
  std::string record;
  std::string digest;
};
[[nodiscard]] ChainLink chain_link(std::string_view digest_before, const IndexChange& change);

/// What a store holds, as far as the chain proves it.
struct IndexContent {
  EntryList entries;
  std::map<std::int64_t, IndexNote> notes;
  std::map<std::int64_t, double> losses;  ///< Of steps that are not committed.
  std::int64_t sequence = 0;              ///< Of the last change.
  std::string digest;                     ///< Of the chain up to there.
  bool knows_head = false;                ///< The head that was asked for is in the chain.
  std::string damage;                     ///< Where the chain breaks; empty: it holds.
  std::optional<Error> unreadable;        ///< The store could not be read to its end.
};

/// Reads journal and notes and checks every link. `wanted_head`: "<sequence>:<digest>", or empty
/// (known to every chain). Blocks.
[[nodiscard]] IndexContent read_index_content(storage::KvStore& store,
                                              std::string_view wanted_head);

struct EventRecord {
  std::int64_t logged_s = 0;  ///< Unix time, seconds.
  std::string kind;
  std::string text;
};
[[nodiscard]] std::string event_text(const EventRecord& event);
[[nodiscard]] std::optional<EventRecord> parse_event(std::string_view text);

/// The events, oldest first; records that cannot be parsed are left out. Errors: the store's.
Result<std::vector<EventRecord>> read_events(storage::KvStore& store);

}  // namespace train::checkpoint
