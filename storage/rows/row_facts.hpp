#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace train::storage {

/// What meta.json says of one split.
struct RowCounts {
  std::uint64_t rows = 0;
  std::uint64_t segments = 0;
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;
  std::uint64_t trained_tokens = 0;
  std::uint64_t pairs = 0;                 ///< Of a preference set; KTO's examples.
  std::optional<std::string> digest = {};  ///< Of all bytes of its files, as digest.hpp has it.

  bool operator==(const RowCounts&) const = default;
};

/// What meta.json says of a directory of rows.
struct RowFacts {
  std::string kind = "text";  ///< "chat", "prompt", "preference", "kto" or "text".
  std::string tokenizer = {};
  std::int64_t vocab_size = 0;  ///< Ids are below it; 0: not said.
  std::int64_t token_bytes = 4;
  std::optional<std::int64_t> end_of_text = {};
  std::vector<std::uint32_t> turn_ends = {};  ///< Special tokens that are trained as the end of an
                                              ///< assistant's turn, the most frequent first.
  /// What conversations were rendered with: a built-in template's name, a file's, or "tokenizer".
  /// The template itself lies beside the kept tokenizer. Empty: none.
  std::string chat_template = {};
  std::int64_t row_length = 0;
  std::string packing = {};
  bool has_weights = false;
  std::vector<std::string> sources = {};
  RowCounts train = {};
  RowCounts val = {};
  std::string key = {};     ///< Of what the rows were made from; empty: by hand.
  std::string report = {};  ///< What preparing counted, a JSON object; empty: none.

  [[nodiscard]] const RowCounts& of(const std::string& split) const {
    return split == "val" ? val : train;
  }
};

/// Whether `directory` is there at all. `key`: of the configuration that names it; empty: none
/// does. `row_length`: that is wanted; 0: any. Errors (user): it is not; says what makes it.
[[nodiscard]] Status check_row_directory(const std::filesystem::path& directory,
                                         std::string_view key = {}, std::int64_t row_length = 0);

/// Whether meta.json of `directory` says that it holds rows. Errors (user): it is malformed.
[[nodiscard]] Result<bool> holds_rows(const std::filesystem::path& directory);

/// Errors (user): check_row_directory(); no meta.json, another format or version, malformed; names
/// file and key.
[[nodiscard]] Result<RowFacts> read_row_facts(const std::filesystem::path& directory);

/// Writes meta.json atomically and durably. Errors: as AtomicFile.
Status write_row_facts(const std::filesystem::path& directory, const RowFacts& facts);

}  // namespace train::storage
