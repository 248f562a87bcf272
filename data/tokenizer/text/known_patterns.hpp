#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "data/tokenizer/text/unicode_tables.hpp"

namespace train::data {

/// Patterns with a hand-written splitter, many times as fast as a regular expression.
enum class KnownPattern : std::uint8_t {
  gpt2,
  cl100k,         ///< Llama 3 and others: numbers of up to three digits.
  qwen2,          ///< cl100k with single digits.
  qwen35,         ///< qwen2, with marks counted as letters.
  o200k,          ///< Words end before capitals.
  tekken,         ///< o200k with single digits and without contractions.
  digits3,        ///< DeepSeek's first: only numbers of up to three digits.
  han_kana,       ///< DeepSeek's second: runs of Chinese characters and kana.
  deepseek_words  ///< DeepSeek's third.
};

/// Pattern with exactly this text in tokenizer.json.
[[nodiscard]] std::optional<KnownPattern> known_pattern(std::string_view pattern);

/// Splits text at the matches of a known pattern; text between matches is a piece too.
///
/// Threading: may be shared. Cost: linear in any text.
class KnownSplitter {
 public:
  explicit KnownSplitter(KnownPattern pattern) : pattern_(pattern), table_(unicode_table()) {}

  struct Piece {
    const char* end = nullptr;
    bool match = true;  ///< False for text between matches.
  };

  /// Piece that begins at `begin`. REQUIRES: begin < end; valid UTF-8; `begin` is the end of the
  /// previous piece.
  [[nodiscard]] Piece next(const char* begin, const char* end) const;

  [[nodiscard]] KnownPattern pattern() const { return pattern_; }

 private:
  KnownPattern pattern_;
  const std::uint8_t* table_;
};

}  // namespace train::data
