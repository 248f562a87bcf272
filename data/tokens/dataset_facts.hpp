#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/result.hpp"

namespace train::data {

inline constexpr const char* kFactsFileName = "meta.json";
/// Marker file: a replacement is in progress; the directory is not readable data.
inline constexpr const char* kUnfinishedFileName = ".prepare.unfinished";

/// Contents of meta.json in a token directory; a member is empty if the file or the key is missing.
struct DatasetFacts {
  std::optional<std::string> format = {};  ///< "rows": read by rows/row_split.hpp; nullopt: tokens.
  std::optional<std::string> tokenizer = {};
  std::optional<std::int64_t> vocab_size = {};
  std::optional<std::int64_t> end_of_text = {};  ///< Token that ends a document.
  std::optional<std::int64_t> train_tokens = {};
  std::optional<std::int64_t> val_tokens = {};
  std::optional<std::int64_t> val_bytes = {};  ///< Bytes of text of the validation tokens.
  std::optional<std::string> train_digest =
      {};                                      ///< Digest over all bytes of train.bin (digest.hpp).
  std::optional<std::string> val_digest = {};  ///< Digest over all bytes of val.bin.
  std::int64_t token_bytes = 2;                ///< 2: uint16 (default), 4: uint32.
  bool says_dtype = false;                     ///< True if meta.json has the key.
};

/// Reads meta.json of `directory`; all empty if it is missing. Errors (user): malformed, names the
/// key; an unfinished replacement.
Result<DatasetFacts> read_dataset_facts(const std::filesystem::path& directory);

/// Writes meta.json atomically and durably. Errors: as AtomicFile.
Status write_dataset_facts(const std::filesystem::path& directory, const DatasetFacts& facts);

}  // namespace train::data
