#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace train::data {

/// Entries of meta.json for one split.
struct RowCounts {
  std::uint64_t rows = 0;
  std::uint64_t segments = 0;
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;
  std::uint64_t trained_tokens = 0;
  std::uint64_t pairs = 0;                 ///< Pairs of a preference set, or KTO examples.
  std::optional<std::string> digest = {};  ///< Digest over all bytes of its files (digest.hpp).

  bool operator==(const RowCounts&) const = default;
};

/// Contents of meta.json in a row directory.
struct RowFacts {
  std::string kind = "text";  ///< "chat", "prompt", "preference", "kto" or "text".
  std::string tokenizer = {};
  std::int64_t vocab_size = 0;  ///< Ids are less than this; 0: unknown.
  std::int64_t token_bytes = 4;
  std::optional<std::int64_t> end_of_text = {};
  std::vector<std::uint32_t> turn_ends = {};  ///< Special tokens trained as the end of an
                                              ///< assistant's turn, most frequent first.
  /// Template of the conversations: a built-in template's name, a file's, or "tokenizer". The
  /// template itself is stored with the tokenizer's copy. Empty: none.
  std::string chat_template = {};
  std::int64_t row_length = 0;
  std::string packing = {};
  bool has_weights = false;
  std::vector<std::string> sources = {};
  RowCounts train = {};
  RowCounts val = {};
  std::string key = {};     ///< Digest of all inputs; empty: made by hand.
  std::string report = {};  ///< Counts of preparing, a JSON object; empty: none.

  [[nodiscard]] const RowCounts& of(const std::string& split) const {
    return split == "val" ? val : train;
  }
};

/// Checks that `directory` exists. `key`: configuration key that names it; empty: none.
/// `row_length`: wanted length; 0: any. Errors (user): missing; says which command makes it.
[[nodiscard]] Status check_row_directory(const std::filesystem::path& directory,
                                         std::string_view key = {}, std::int64_t row_length = 0);

/// True if meta.json of `directory` says that it holds rows. Errors (user): malformed meta.json.
[[nodiscard]] Result<bool> holds_rows(const std::filesystem::path& directory);

/// Errors (user): check_row_directory(); no meta.json, another format or version, malformed; names
/// file and key.
[[nodiscard]] Result<RowFacts> read_row_facts(const std::filesystem::path& directory);

/// Writes meta.json atomically and durably. Errors: as AtomicFile.
Status write_row_facts(const std::filesystem::path& directory, const RowFacts& facts);

}  // namespace train::data
