#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "storage/tokenizer/models/word_model.hpp"
#include "storage/tokenizer/stages/added_tokens.hpp"
#include "storage/tokenizer/stages/normalization.hpp"
#include "storage/tokenizer/stages/pre_tokenizer.hpp"
#include "storage/tokenizer/stages/token_decoder.hpp"

namespace train::storage {

/// Ids around those of a text, where special tokens are wanted.
struct SpecialFrame {
  std::vector<std::uint32_t> before;
  std::vector<std::uint32_t> after;
};

/// How the text of a chat template is read where that is not how any text is.
struct RenderedRules {
  AddedTokens controls;            ///< Looked for in the text itself.
  Normalizer with_prefix = {};     ///< Of what lies between, where a space goes before it,
  Normalizer without_prefix = {};  ///< and where none does.
  bool prefix_each = false;  ///< A space goes before each such part, not the first of a text alone.
};

/// What a tokenizer is made of, in the order in which text passes through.
struct TokenizerParts {
  AddedTokens added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  WordModel model;
  SpecialFrame frame;
  std::optional<RenderedRules> rendered = {};
  TokenDecoder decoder;
  std::optional<std::uint32_t> end_of_text;
  std::vector<std::string> notes;
};

/// Gives ids to added tokens as the reference does, whatever the file says: that of a token of the
/// vocabulary with the text, else the next free one behind vocabulary and earlier ones. Empty texts
/// and repeated ones go.
[[nodiscard]] std::vector<AddedToken> numbered(std::vector<AddedToken> tokens,
                                               const Vocabulary& vocabulary);

}  // namespace train::storage
