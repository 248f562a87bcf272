#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "storage/weight_files/gguf_writer.hpp"

namespace train::data {

/// A tokenizer's part of a GGUF file's metadata.
struct GgufVocabulary {
  std::vector<storage::GgufField> fields;
  std::vector<std::string> notes;  ///< Sentences: what llama.cpp splits otherwise.
};

/// Writes the tokenizer in a model's directory as llama.cpp reads it: tokens, their types, merges
/// or scores, special tokens, and chat templates. tokenizer.model (BPE) before tokenizer.json
/// (byte-level BPE). `vocab_size`: rows of the embedding; ids without a token are named
/// "[PAD<id>]". `config`: the model's config.json, for ids that the files do not tell. Without a
/// tokenizer the file has none, which a note says. Errors (user): a tokenizer that llama.cpp does
/// not have, more tokens than rows; unreadable files.
Result<GgufVocabulary> gguf_vocabulary(const std::filesystem::path& directory,
                                       std::int64_t vocab_size,
                                       const nlohmann::ordered_json& config);

}  // namespace train::data
