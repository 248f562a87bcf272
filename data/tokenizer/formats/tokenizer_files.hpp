#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "data/tokenizer/tokenizer_parts.hpp"

namespace train::data {

/// Reads a tokenizer of any format (see Tokenizer::load), and its end-of-text token from the files
/// beside it. Errors (user): name the file.
[[nodiscard]] Result<TokenizerParts> read_tokenizer_files(const std::filesystem::path& path);

/// End-of-text tokens from generation_config.json, otherwise config.json; empty if neither has
/// them. The end of a chat model's turn may differ from the end of a document. Errors (user): names
/// a file that is not a JSON object.
[[nodiscard]] Result<std::vector<std::uint32_t>> configured_ends(
    const std::filesystem::path& folder);

/// Reads lines of a base64 token and its rank, which is its id. Such a file does not give the
/// splitting pattern: it is inferred from the number of ranks. Errors (user): other lines; an
/// unknown number of ranks.
[[nodiscard]] Result<TokenizerParts> read_rank_file(std::string_view text);

/// Reads Mistral's tekken.json. Its special tokens occur only in rendered text. Errors (user):
/// malformed; an invalid regular expression.
[[nodiscard]] Result<TokenizerParts> read_tekken_file(std::string_view text);

/// Settings beside a SentencePiece model for tokens around and within a text.
struct FrameWishes {
  std::optional<bool> begin;  ///< Default: true for models with merges (Llama family).
  std::optional<bool> end;    ///< Default: false.
  bool legacy = false;        ///< Rendered text: a space is put before each part.
};

/// Reads a SentencePiece model. User-defined pieces are found in any text; control pieces only in
/// rendered text. Errors (user): not a model, truncated, or of an unsupported kind.
[[nodiscard]] Result<TokenizerParts> read_sentencepiece_file(std::string_view bytes,
                                                             const FrameWishes& wishes);

/// Reads the vocabulary and merges of GPT-2 and similar tokenizers. `prefix_space`: put a space
/// before a text, or before each word of it. Errors (user): malformed.
[[nodiscard]] Result<TokenizerParts> read_vocabulary_and_merges(std::string_view vocabulary,
                                                                std::string_view merges,
                                                                KnownPattern pattern,
                                                                bool prefix_space);

}  // namespace train::data
