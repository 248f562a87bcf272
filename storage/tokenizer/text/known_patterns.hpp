#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "storage/tokenizer/text/unicode_tables.hpp"

namespace train::storage {

/// Patterns that are split by hand, many times as fast as by a regular expression.
enum class KnownPattern : std::uint8_t {
  gpt2,
  cl100k,         ///< Llama 3 and others: numbers of up to three digits.
  qwen2,          ///< cl100k with single digits.
  qwen35,         ///< qwen2 with marks as letters.
  o200k,          ///< Words end where capitals begin.
  tekken,         ///< o200k with single digits and without contractions.
  digits3,        ///< DeepSeek's first: numbers of up to three digits, and nothing else.
  han_kana,       ///< DeepSeek's second: runs of Chinese characters and kana.
  deepseek_words  ///< DeepSeek's third.
};

/// The pattern with exactly this text in tokenizer.json.
[[nodiscard]] std::optional<KnownPattern> known_pattern(std::string_view pattern);

/// The text of a pattern, for files that only imply it.
[[nodiscard]] std::string_view pattern_text(KnownPattern pattern);

/// Cuts text the way that the matches of a known pattern do; what no match covers is a piece too.
///
/// Threading: may be shared. Cost: linear in the text, whatever it is.
class KnownSplitter {
 public:
  explicit KnownSplitter(KnownPattern pattern) : pattern_(pattern), table_(unicode_table()) {}

  struct Piece {
    const char* end = nullptr;
    bool match = true;  ///< Not what lies between matches.
  };

  /// The piece that begins at `begin`. REQUIRES: begin < end; valid UTF-8; `begin` is where the
  /// piece before ended.
  [[nodiscard]] Piece next(const char* begin, const char* end) const;

  [[nodiscard]] KnownPattern pattern() const { return pattern_; }

 private:
  KnownPattern pattern_;
  const std::uint8_t* table_;
};

}  // namespace train::storage
