#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "data/tokenizer/text/regex.hpp"

namespace train::data {

/// Byte notation of tokens becomes bytes, concatenated.
struct ByteLevelDecode {};
struct ReplaceDecode {
  Regex pattern;
  std::string literal;  ///< Set if the pattern is a literal.
  std::string content;
};
/// Tokens like <0x0A> become bytes, or U+FFFD for each if the bytes are not UTF-8.
struct ByteFallbackDecode {};
/// Concatenates all tokens.
struct FuseDecode {};
/// Strips characters from each token, up to a maximum number.
struct StripDecode {
  char32_t content = U' ';
  std::size_t start = 0;
  std::size_t stop = 0;
};
struct MetaspaceDecode {
  std::string replacement;
  bool drop_first = true;  ///< The first token's are a prefix, not spaces.
};

/// Decoding of SentencePiece: "▁" become spaces, tokens like <0x0A> bytes, and invalid UTF-8 bytes
/// U+FFFD each.
struct SentencePieceDecode {
  std::string unknown;       ///< The unknown token.
  std::string surface;       ///< Decoded text of the unknown token.
  bool has_bytes = true;     ///< The vocabulary has byte tokens.
  bool drop_first = true;    ///< Drop the space at the beginning,
  bool drop_leading = true;  ///< and all further ones there.
};

using DecodeStep = std::variant<ByteLevelDecode, ReplaceDecode, ByteFallbackDecode, FuseDecode,
                                StripDecode, MetaspaceDecode, SentencePieceDecode>;

/// Decodes token texts.
///
/// Threading: immutable.
class TokenDecoder {
 public:
  /// Without a decoder, tokens are joined by spaces.
  TokenDecoder() = default;
  explicit TokenDecoder(std::vector<DecodeStep> steps) : steps_(std::move(steps)) {}

  [[nodiscard]] std::string decode(std::vector<std::string> tokens) const;

  /// Each token decodes to bytes independently of the others.
  [[nodiscard]] bool only_byte_level() const;
  /// Tokens like <0x0A> become bytes, and adjacent ones are joined.
  [[nodiscard]] bool joins_bytes() const;

 private:
  std::optional<std::vector<DecodeStep>> steps_;
};

/// True for tokens like <0x0A>.
[[nodiscard]] bool is_fallback_byte(std::string_view token);

/// Bytes of a byte-level token, or its text if it stands for no bytes.
[[nodiscard]] std::string decoded_bytes(std::string_view token);

}  // namespace train::data
