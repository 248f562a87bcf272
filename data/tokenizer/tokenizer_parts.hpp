#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer/models/word_model.hpp"
#include "data/tokenizer/stages/added_tokens.hpp"
#include "data/tokenizer/stages/normalization.hpp"
#include "data/tokenizer/stages/pre_tokenizer.hpp"
#include "data/tokenizer/stages/token_decoder.hpp"

namespace train::data {

/// Ids around those of a text, if special tokens are wanted.
struct SpecialFrame {
  std::vector<std::uint32_t> before;
  std::vector<std::uint32_t> after;
};

/// Rules for the text of a chat template, if they differ from those for other text.
struct RenderedRules {
  AddedTokens controls;            ///< Control tokens, searched in the text itself.
  Normalizer with_prefix = {};     ///< Normaliser of text between them if a space is put before it,
  Normalizer without_prefix = {};  ///< and if none is.
  bool prefix_each = false;  ///< Put a space before each such part, not only before the first of a
                             ///< text.
};

/// Stages of a tokenizer, in processing order.
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

/// Assigns ids to added tokens as the reference does, ignoring the file: the id of an equal
/// vocabulary token, otherwise the next free id after the vocabulary and earlier ones. Empty and
/// repeated texts are dropped.
[[nodiscard]] std::vector<AddedToken> numbered(std::vector<AddedToken> tokens,
                                               const Vocabulary& vocabulary);

}  // namespace train::data
