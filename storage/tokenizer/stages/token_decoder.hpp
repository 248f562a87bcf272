#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "storage/tokenizer/text/regex.hpp"

namespace train::storage {

/// Texts of tokens that mean bytes become those bytes, all of them one text.
struct ByteLevelDecode {};
struct ReplaceDecode {
  Regex pattern;
  std::string literal;  ///< What the pattern matches, if it is no more than that.
  std::string content;
};
/// Tokens like <0x0A> become the bytes, or U+FFFD for each where they are not UTF-8.
struct ByteFallbackDecode {};
/// All tokens become one.
struct FuseDecode {};
/// Off each token, at most so many characters.
struct StripDecode {
  char32_t content = U' ';
  std::size_t start = 0;
  std::size_t stop = 0;
};
struct MetaspaceDecode {
  std::string replacement;
  bool drop_first = true;  ///< The first token's are prefixes, not spaces.
};

/// All of what SentencePiece does: "▁" are spaces, tokens like <0x0A> bytes, and those that are not
/// UTF-8 U+FFFD each.
struct SentencePieceDecode {
  std::string unknown;       ///< The token that stands for what has none.
  std::string surface;       ///< What that becomes.
  bool has_bytes = true;     ///< There are tokens for bytes.
  bool drop_first = true;    ///< The space at the beginning is no text,
  bool drop_leading = true;  ///< nor are any further ones there.
};

using DecodeStep = std::variant<ByteLevelDecode, ReplaceDecode, ByteFallbackDecode, FuseDecode,
                                StripDecode, MetaspaceDecode, SentencePieceDecode>;

/// Makes text of the texts of tokens.
///
/// Threading: immutable.
class TokenDecoder {
 public:
  /// Without a decoder there is a space between tokens.
  TokenDecoder() = default;
  explicit TokenDecoder(std::vector<DecodeStep> steps) : steps_(std::move(steps)) {}

  [[nodiscard]] std::string decode(std::vector<std::string> tokens) const;

  /// The bytes that each token stands for can be put together without looking at others.
  [[nodiscard]] bool only_byte_level() const;
  /// Tokens like <0x0A> become bytes, those side by side together.
  [[nodiscard]] bool joins_bytes() const;

 private:
  std::optional<std::vector<DecodeStep>> steps_;
};

/// Whether it is one like <0x0A>.
[[nodiscard]] bool is_fallback_byte(std::string_view token);

/// What a token of a byte-level vocabulary contributes: the bytes, or its text where that means
/// none.
[[nodiscard]] std::string decoded_bytes(std::string_view token);

}  // namespace train::storage
