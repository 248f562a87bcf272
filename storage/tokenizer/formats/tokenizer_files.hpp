#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "storage/tokenizer/tokenizer_parts.hpp"

namespace train::storage {

/// Reads a tokenizer in any of its forms (see Tokenizer::load), and what the files beside it say of
/// the end of a text. Errors (user): name the file.
[[nodiscard]] Result<TokenizerParts> read_tokenizer_files(const std::filesystem::path& path);

/// The tokens that a model's own files say its texts end with: those of generation_config.json,
/// else of config.json; none where they do not say. A chat model's turn may end otherwise than a
/// document does. Errors (user): a file of them that is no JSON object, by its name.
[[nodiscard]] Result<std::vector<std::uint32_t>> configured_ends(
    const std::filesystem::path& folder);

/// Reads lines of a token in base64 and its rank, which is its id. How text is split such a file
/// does not say: it is known by how many ranks there are. Errors (user): not such lines; an unknown
/// number of them.
[[nodiscard]] Result<TokenizerParts> read_rank_file(std::string_view text);

/// Reads Mistral's tekken.json. Its special tokens are in rendered text alone. Errors (user):
/// another shape; a pattern that is no regular expression.
[[nodiscard]] Result<TokenizerParts> read_tekken_file(std::string_view text);

/// What a configuration beside a SentencePiece model says of the tokens around a text, and in it.
struct FrameWishes {
  std::optional<bool> begin;  ///< By default of a model whose pairs merge, as of Llama's kin.
  std::optional<bool> end;    ///< By default not.
  bool legacy = false;        ///< In rendered text a space goes before each part.
};

/// Reads a SentencePiece model. Its user's own pieces are found in text; control pieces are in
/// rendered text alone.
/// Errors (user): no such model, broken off, or of a kind that is not supported.
[[nodiscard]] Result<TokenizerParts> read_sentencepiece_file(std::string_view bytes,
                                                             const FrameWishes& wishes);

/// Reads the vocabulary and merges of GPT-2 and its kin. `prefix_space`: one goes before a text,
/// or each word of it, without one. Errors (user): another shape.
[[nodiscard]] Result<TokenizerParts> read_vocabulary_and_merges(std::string_view vocabulary,
                                                                std::string_view merges,
                                                                KnownPattern pattern,
                                                                bool prefix_space);

}  // namespace train::storage
