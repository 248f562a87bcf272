#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "data/tokenizer/text/character_map.hpp"
#include "data/tokenizer/text/text_finder.hpp"

namespace train::data {

/// Normalisation of a SentencePiece model: a character table, spaces merged or replaced by "▁", one
/// put before (or behind) the text. User-defined pieces are unchanged.
///
/// Threading: immutable.
class SentencePieceRules {
 public:
  /// Contents of a model file that are needed here; texts point into its bytes.
  struct Settings {
    std::string_view character_map;  ///< See CharacterMap; empty: none.
    bool add_dummy_prefix = true;
    bool remove_extra_whitespaces = true;
    bool escape_whitespaces = true;
    bool whitespace_as_suffix = false;
    std::vector<std::string_view> user_defined;  ///< Pieces that stay as they are.
  };
  /// Errors (user): a damaged table.
  static Result<SentencePieceRules> make(const Settings& settings);

  /// These rules without the space before or behind a text.
  [[nodiscard]] SentencePieceRules without_prefix() const {
    SentencePieceRules rules = *this;
    rules.add_dummy_prefix_ = false;
    return rules;
  }

  /// These rules with no change except of spaces, all of which are kept.
  [[nodiscard]] SentencePieceRules spaces_alone() const {
    SentencePieceRules rules = *this;
    rules.characters_ = {};
    rules.remove_extra_whitespaces_ = false;
    return rules;
  }

  /// Writes the normalised text to `out`, and to `origins`, unless null, the position in `text` of
  /// each of its bytes and of its end. REQUIRES: valid UTF-8.
  void apply(std::string_view text, std::string& out, std::vector<std::size_t>* origins) const;

 private:
  class Writer;

  /// Normalised beginning of a text, and the bytes that it takes there.
  struct Beginning {
    std::string_view content;
    std::size_t length = 0;
  };
  [[nodiscard]] Beginning beginning(std::string_view text) const;
  [[nodiscard]] bool only_spaces() const {
    return characters_.empty() && !remove_extra_whitespaces_ && user_defined_.empty();
  }

  CharacterMap characters_;
  TextFinder user_defined_;
  std::string_view space_ = " ";  ///< Replacement of a space; static.
  bool add_dummy_prefix_ = true;
  bool remove_extra_whitespaces_ = true;
  bool whitespace_as_suffix_ = false;
};

}  // namespace train::data
