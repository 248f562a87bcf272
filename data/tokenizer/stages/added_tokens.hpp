#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "data/tokenizer/stages/normalization.hpp"
#include "data/tokenizer/text/text_finder.hpp"

namespace train::data {

/// Token that is searched in the text itself, before splitting into words.
struct AddedToken {
  std::string content;
  std::uint32_t id = 0;
  bool single_word = false;  ///< Does not match between word characters.
  bool lstrip = false;       ///< Includes the spaces before it.
  bool rstrip = false;       ///< Includes the spaces after it.
  bool normalized = false;   ///< Matched in normalised form against normalised text.
  bool searched = true;      ///< False: never matched in text.
  bool special = false;      ///< Left out of readable decoded text.
  std::string text = {};     ///< Decoded text: the normal form, if normalized.
};

/// Added tokens of a tokenizer.
///
/// Threading: immutable.
class AddedTokens {
 public:
  AddedTokens() = default;
  /// Errors (user): those of the normalizer.
  static Result<AddedTokens> make(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  /// Part of a text: a token, or the text between tokens.
  struct Part {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::optional<std::uint32_t> id;
  };

  /// Splits a text into non-empty parts, before or after its normalisation. Overwrites `parts`.
  void find(std::string_view text, bool normalized, std::vector<Part>& parts) const;
  [[nodiscard]] bool any(bool normalized) const { return !finder(normalized).empty(); }

  [[nodiscard]] const std::vector<AddedToken>& tokens() const { return tokens_; }
  /// Finds a token by its text.
  [[nodiscard]] const AddedToken* token(std::string_view content) const;
  /// Finds a token by its id: the last one with it.
  [[nodiscard]] const AddedToken* token(std::uint32_t id) const;

 private:
  [[nodiscard]] const TextFinder& finder(bool normalized) const {
    return normalized ? normalized_ : raw_;
  }

  std::vector<AddedToken> tokens_;
  std::vector<std::uint32_t> by_content_;  ///< Indices into tokens_.
  std::vector<std::uint32_t> by_id_;
  TextFinder raw_;
  TextFinder normalized_;
};

}  // namespace train::data
