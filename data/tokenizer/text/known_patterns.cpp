#include "data/tokenizer/text/known_patterns.hpp"

#include <string>
#include <utility>

#include "storage/text/utf8.hpp"

namespace train::data {
namespace {

constexpr std::pair<KnownPattern, std::string_view> kKnownTexts[] = {
    {KnownPattern::gpt2,
     R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {KnownPattern::cl100k, R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                           R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {KnownPattern::qwen2, R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                          R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {KnownPattern::qwen35, R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
                           R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {KnownPattern::o200k,
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+)"
     R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|)"
     R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {KnownPattern::tekken,
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)"
     R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {KnownPattern::digits3, R"(\p{N}{1,3})"},
    {KnownPattern::han_kana, "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"},
    {KnownPattern::deepseek_words,
     R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
     R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};

constexpr bool is_newline(char letter) { return letter == '\n' || letter == '\r'; }
constexpr bool is_ascii_letter(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
}

/// Position in a text, with its code point.
class Cursor {
 public:
  Cursor(const char* end, const std::uint8_t* table) : end_(end), table_(table) {}

  /// Class of the code point at `at`, and the begin of the next.
  struct Seen {
    std::uint8_t entry = 0;
    const char* next = nullptr;
    [[nodiscard]] bool in(ClassSet set) const { return in_classes(entry, set); }
  };
  /// REQUIRES: at < end.
  [[nodiscard]] Seen see(const char* at) const {
    const storage::CodePoint point = storage::code_point_at(at);
    return {table_[point.value], at + point.length};
  }
  [[nodiscard]] bool is(const char* at, ClassSet set) const { return at < end_ && see(at).in(set); }

  /// End of a run of at most `limit` code points of a set.
  [[nodiscard]] const char* run(const char* at, ClassSet set, std::size_t limit = ~0ULL) const {
    for (; at < end_ && limit > 0; --limit) {
      const Seen seen = see(at);
      if (!seen.in(set)) {
        break;
      }
      at = seen.next;
    }
    return at;
  }

  [[nodiscard]] const char* end() const { return end_; }

 private:
  const char* end_;
  const std::uint8_t* table_;
};

/// 's 't 're 've 'm 'll 'd at `at`: its end, otherwise `at`. With any_case ignoring case: also the
/// long s, which folds to s.
template <bool any_case>
const char* contraction(const char* at, const char* end) {
  if (end - at < 2 || *at != '\'') {
    return at;
  }
  const auto lower = [](char letter) {
    return any_case && letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + 32) : letter;
  };
  const char first = lower(at[1]);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') {
    return at + 2;
  }
  if (end - at < 3) {
    return at;
  }
  if (any_case && at[1] == '\xc5' && at[2] == '\xbf') {
    return at + 3;
  }
  const char second = lower(at[2]);
  const bool two =
      (first == 'l' && second == 'l') || ((first == 'r' || first == 'v') && second == 'e');
  return two ? at + 3 : at;
}

/// \s+(?!\S) or \s+: a run of spaces, less its last one if text follows.
const char* blanks(const Cursor& text, const char* begin) {
  const char* last = begin;
  const char* at = begin;
  while (at < text.end()) {
    const Cursor::Seen seen = text.see(at);
    if (!seen.in(kSpaceClasses)) {
      return last > begin ? last : at;
    }
    last = at;
    at = seen.next;
  }
  return at;
}

/// \s*[\r\n]+ if the run of spaces at `begin` contains a line end; otherwise as `blanks`.
const char* lines_or_blanks(const Cursor& text, const char* begin) {
  const char* after_newline = nullptr;
  for (const char* at = begin; at < text.end();) {
    const Cursor::Seen seen = text.see(at);
    if (!seen.in(kSpaceClasses)) {
      break;
    }
    if (is_newline(*at)) {
      after_newline = seen.next;
    }
    at = seen.next;
  }
  return after_newline != nullptr ? after_newline : blanks(text, begin);
}

constexpr ClassSet kAllClasses = 0xffff;
constexpr ClassSet kPlain =
    static_cast<ClassSet>(kAllClasses & ~(kSpaceClasses | kLetterClasses | kNumberClasses));
constexpr ClassSet kPlainWithoutMarks = static_cast<ClassSet>(kPlain & ~kMarkClasses);
constexpr ClassSet kUpperLike = classes(CharClass::upper, CharClass::title, CharClass::modifier,
                                        CharClass::other_letter, CharClass::mark);
constexpr ClassSet kLowerLike =
    classes(CharClass::lower, CharClass::modifier, CharClass::other_letter, CharClass::mark);

const char* next_gpt2(const Cursor& text, const char* begin) {
  if (const char* after = contraction<false>(begin, text.end()); after != begin) {
    return after;
  }
  const char* word = *begin == ' ' ? begin + 1 : begin;
  if (word < text.end()) {
    const Cursor::Seen seen = text.see(word);
    for (const ClassSet set : {kLetterClasses, kNumberClasses, kPlain}) {
      if (seen.in(set)) {
        return text.run(seen.next, set);
      }
    }
  }
  return blanks(text, begin);
}

/// Patterns derived from cl100k.
template <ClassSet letter_set, ClassSet plain_set, std::size_t digits>
const char* next_cl100k(const Cursor& text, const char* begin) {
  const Cursor::Seen first = text.see(begin);
  if (first.in(letter_set)) {
    // A mark may also be the character before letters, with the same result.
    return text.run(first.next, letter_set);
  }
  if (const char* after = contraction<true>(begin, text.end()); after != begin) {
    return after;
  }
  if (first.in(kNumberClasses)) {
    return text.run(first.next, kNumberClasses, digits - 1);
  }
  if (!is_newline(*begin) && text.is(first.next, letter_set)) {
    return text.run(first.next, letter_set);
  }
  const char* sign = *begin == ' ' ? begin + 1 : begin;
  if (text.is(sign, plain_set)) {
    const char* at = text.run(sign, plain_set);
    while (at < text.end() && is_newline(*at)) {
      ++at;
    }
    return at;
  }
  return lines_or_blanks(text, begin);
}

/// U*L+ or otherwise U+L* at `begin`, with U capitals, L small letters, and caseless letters in
/// both: its end, or null.
const char* cased_word(const Cursor& text, const char* begin) {
  const char* at = begin;
  const char* last_both = nullptr;  // End of a letter that could also begin L+.
  while (at < text.end()) {
    const Cursor::Seen seen = text.see(at);
    if (!seen.in(kUpperLike)) {
      break;
    }
    at = seen.next;
    last_both = seen.in(kLowerLike) ? at : last_both;
  }
  if (text.is(at, kLowerLike)) {
    return text.run(at, kLowerLike);
  }
  if (last_both != nullptr) {
    return last_both;
  }
  return nullptr;
}

/// Capitals only: U+L* after U*L+ found nothing.
const char* capitals(const Cursor& text, const char* begin) {
  const char* at = text.run(begin, kUpperLike);
  return at > begin ? text.run(at, kLowerLike) : nullptr;
}

template <bool contractions, std::size_t digits>
const char* next_o200k(const Cursor& text, const char* begin) {
  const Cursor::Seen first = text.see(begin);
  const bool prefix = !first.in(kLetterClasses | kNumberClasses) && !is_newline(*begin);
  using Word = const char* (*)(const Cursor&, const char*);
  for (const Word word : {static_cast<Word>(cased_word), static_cast<Word>(capitals)}) {
    const char* end = prefix ? word(text, first.next) : nullptr;
    if (end == nullptr && first.in(kUpperLike | kLowerLike)) {
      end = word(text, begin);
    }
    if (end != nullptr) {
      return contractions ? contraction<true>(end, text.end()) : end;
    }
  }
  if (first.in(kNumberClasses)) {
    return text.run(first.next, kNumberClasses, digits - 1);
  }
  const char* sign = *begin == ' ' ? begin + 1 : begin;
  if (text.is(sign, kPlain)) {
    const char* at = text.run(sign, kPlain);
    while (at < text.end() && (is_newline(*at) || *at == '/')) {
      ++at;
    }
    return at;
  }
  return lines_or_blanks(text, begin);
}

/// Null if nothing matches at `begin`.
const char* next_deepseek(const Cursor& text, const char* begin) {
  const Cursor::Seen first = text.see(begin);
  const char* const end = text.end();
  const bool ascii_sign =
      static_cast<unsigned char>(*begin) < 0x80 && first.in(kPunctuationClasses | kSymbolClasses);
  if (ascii_sign && begin + 1 < end && is_ascii_letter(begin[1])) {
    const char* at = begin + 2;
    while (at < end && is_ascii_letter(*at)) {
      ++at;
    }
    return at;
  }
  const bool prefix =
      !first.in(kLetterClasses | kPunctuationClasses | kSymbolClasses) && !is_newline(*begin);
  if (prefix && text.is(first.next, kLetterClasses | kMarkClasses)) {
    return text.run(first.next, kLetterClasses | kMarkClasses);
  }
  if (first.in(kLetterClasses | kMarkClasses)) {
    return text.run(first.next, kLetterClasses | kMarkClasses);
  }
  const char* sign = *begin == ' ' ? begin + 1 : begin;
  if (text.is(sign, kPunctuationClasses | kSymbolClasses)) {
    const char* at = text.run(sign, kPunctuationClasses | kSymbolClasses);
    while (at < end && is_newline(*at)) {
      ++at;
    }
    return at;
  }
  return first.in(kSpaceClasses) ? lines_or_blanks(text, begin) : nullptr;
}

/// Null if nothing matches at `begin`.
const char* next_han_kana(const Cursor& text, const char* begin) {
  const char* at = begin;
  while (at < text.end()) {
    const storage::CodePoint point = storage::code_point_at(at);
    const bool inside = (point.value >= 0x4e00 && point.value <= 0x9fa5) ||
                        (point.value >= 0x3040 && point.value <= 0x30ff);
    if (!inside) {
      break;
    }
    at += point.length;
  }
  return at > begin ? at : nullptr;
}

const char* next_digits3(const Cursor& text, const char* begin) {
  const char* at = text.run(begin, kNumberClasses, 3);
  return at > begin ? at : nullptr;
}

/// For patterns that do not match everywhere: the text up to the next match is one piece.
template <class Next>
KnownSplitter::Piece match_or_gap(const Cursor& text, const char* begin, Next&& next) {
  if (const char* after = next(text, begin)) {
    return {after, true};
  }
  const char* at = begin;
  do {
    at += storage::code_point_at(at).length;
  } while (at < text.end() && next(text, at) == nullptr);
  return {at, false};
}

}  // namespace

std::optional<KnownPattern> known_pattern(std::string_view pattern) {
  // Some files contain the line ends that others write as escapes.
  std::string escaped;
  for (const char letter : pattern) {
    if (is_newline(letter)) {
      escaped += letter == '\n' ? "\\n" : "\\r";
    } else {
      escaped.push_back(letter);
    }
  }
  for (const auto& [known, text] : kKnownTexts) {
    if (text == escaped) {
      return known;
    }
  }
  return std::nullopt;
}

KnownSplitter::Piece KnownSplitter::next(const char* begin, const char* end) const {
  const Cursor text(end, table_);
  switch (pattern_) {
    case KnownPattern::gpt2:
      return {next_gpt2(text, begin), true};
    case KnownPattern::cl100k:
      return {next_cl100k<kLetterClasses, kPlain, 3>(text, begin), true};
    case KnownPattern::qwen2:
      return {next_cl100k<kLetterClasses, kPlain, 1>(text, begin), true};
    case KnownPattern::qwen35:
      return {next_cl100k<kLetterClasses | kMarkClasses, kPlainWithoutMarks, 1>(text, begin), true};
    case KnownPattern::o200k:
      return {next_o200k<true, 3>(text, begin), true};
    case KnownPattern::tekken:
      return {next_o200k<false, 1>(text, begin), true};
    case KnownPattern::digits3:
      return match_or_gap(text, begin, next_digits3);
    case KnownPattern::han_kana:
      return match_or_gap(text, begin, next_han_kana);
    case KnownPattern::deepseek_words:
      return match_or_gap(text, begin, next_deepseek);
  }
  return {end, true};
}

}  // namespace train::data
