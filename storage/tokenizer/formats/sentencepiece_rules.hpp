#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "storage/tokenizer/formats/sentencepiece_model.hpp"
#include "storage/tokenizer/text/character_map.hpp"
#include "storage/tokenizer/text/text_finder.hpp"

namespace train::storage {

/// How a SentencePiece model changes text before it cuts it: a table of characters, spaces that
/// become one or "▁", one put before (or behind) the text. Its user's own pieces stay as they are.
///
/// Threading: immutable.
class SentencePieceRules {
 public:
  /// Errors (user): a damaged table.
  static Result<SentencePieceRules> make(const SentencePieceModel& model);

  /// The same rules for a text that nothing is put before or behind.
  [[nodiscard]] SentencePieceRules without_prefix() const {
    SentencePieceRules rules = *this;
    rules.add_dummy_prefix_ = false;
    return rules;
  }

  /// The same rules for a text that is changed in nothing but its spaces, all of which stay.
  [[nodiscard]] SentencePieceRules spaces_alone() const {
    SentencePieceRules rules = *this;
    rules.characters_ = {};
    rules.remove_extra_whitespaces_ = false;
    return rules;
  }

  /// Writes the changed text to `out`, and to `origins`, unless it is null, where in `text` each of
  /// its bytes and its end come from. REQUIRES: valid UTF-8.
  void apply(std::string_view text, std::string& out, std::vector<std::size_t>* origins) const;

 private:
  class Writer;

  /// What stands at the beginning of a text, changed, and the bytes that it took there.
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
  std::string_view space_ = " ";  ///< What a space becomes; static.
  bool add_dummy_prefix_ = true;
  bool remove_extra_whitespaces_ = true;
  bool whitespace_as_suffix_ = false;
};

}  // namespace train::storage
