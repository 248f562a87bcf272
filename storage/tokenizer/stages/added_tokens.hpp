#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "storage/tokenizer/stages/normalization.hpp"
#include "storage/tokenizer/text/text_finder.hpp"

namespace train::storage {

/// A token that is found in the text itself, before words are.
struct AddedToken {
  std::string content;
  std::uint32_t id = 0;
  bool single_word = false;  ///< Not between word characters.
  bool lstrip = false;       ///< Takes the spaces before it.
  bool rstrip = false;       ///< Takes the spaces behind it.
  bool normalized = false;   ///< Looked for in normalised text, in its own normal form.
  bool searched = true;      ///< Otherwise no text gives it.
  bool special = false;      ///< Left out of decoded text that is to be read.
  std::string text = {};     ///< What it decodes to: its normal form, if normalized.
};

/// The added tokens of a tokenizer.
///
/// Threading: immutable.
class AddedTokens {
 public:
  AddedTokens() = default;
  /// Errors (user): those of the normalizer.
  static Result<AddedTokens> make(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  /// A part of a text: a token, or what is between tokens.
  struct Part {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::optional<std::uint32_t> id;
  };

  /// Parts of a text that is not normalised yet, or already; never empty ones. Forgets what `parts`
  /// had.
  void find(std::string_view text, bool normalized, std::vector<Part>& parts) const;
  [[nodiscard]] bool any(bool normalized) const { return !finder(normalized).empty(); }

  [[nodiscard]] const std::vector<AddedToken>& tokens() const { return tokens_; }
  /// By its text.
  [[nodiscard]] const AddedToken* token(std::string_view content) const;
  /// By its id: the last one that has it.
  [[nodiscard]] const AddedToken* token(std::uint32_t id) const;

 private:
  [[nodiscard]] const TextFinder& finder(bool normalized) const {
    return normalized ? normalized_ : raw_;
  }

  std::vector<AddedToken> tokens_;
  std::vector<std::uint32_t> by_content_;  ///< Places in tokens_.
  std::vector<std::uint32_t> by_id_;
  TextFinder raw_;
  TextFinder normalized_;
};

}  // namespace train::storage
