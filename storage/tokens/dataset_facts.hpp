#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/result.hpp"

namespace train::storage {

inline constexpr const char* facts_file_name = "meta.json";
/// There while files of tokens or rows are replaced by others; what it lies beside is no data.
inline constexpr const char* unfinished_file_name = ".prepare.unfinished";

/// What meta.json says of a token directory; a member is empty where the file or the key is
/// missing.
struct DatasetFacts {
  std::optional<std::string> format = {};  ///< "rows": rows/row_split.hpp reads it; none: tokens.
  std::optional<std::string> tokenizer = {};
  std::optional<std::int64_t> vocab_size = {};
  std::optional<std::int64_t> end_of_text = {};  ///< Token that ends a document.
  std::optional<std::int64_t> train_tokens = {};
  std::optional<std::int64_t> val_tokens = {};
  std::optional<std::int64_t> val_bytes = {};  ///< Bytes of text behind the validation tokens.
  std::optional<std::string> train_digest =
      {};                                      ///< Of all bytes of train.bin, as digest.hpp has it.
  std::optional<std::string> val_digest = {};  ///< The same of val.bin.
  std::int64_t token_bytes = 2;                ///< 2: uint16 (default), 4: uint32.
  bool says_dtype = false;                     ///< Whether the last one is the file's word.
};

/// Reads meta.json of `directory`; all empty if there is none. Errors (user): malformed, names the
/// key; files that were left unfinished.
Result<DatasetFacts> read_dataset_facts(const std::filesystem::path& directory);

/// Writes meta.json atomically and durably. Errors: as AtomicFile.
Status write_dataset_facts(const std::filesystem::path& directory, const DatasetFacts& facts);

}  // namespace train::storage
