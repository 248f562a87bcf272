#pragma once

#include <cstddef>
#include <cstdint>

namespace train::data {

inline constexpr std::size_t kCodePointCount = 0x110000;

/// Class of a code point in Unicode 16.0, as needed to split text.
enum class CharClass : std::uint8_t {
  other,              ///< Unassigned, controls, formats, private use.
  upper,              ///< Lu
  lower,              ///< Ll
  title,              ///< Lt
  modifier,           ///< Lm
  other_letter,       ///< Lo
  mark,               ///< M
  number,             ///< Nd, Nl
  other_number,       ///< No; not part of words
  connector,          ///< Pc
  punctuation,        ///< P without Pc, by Unicode 8.0
  symbol,             ///< S
  alphabetic_symbol,  ///< S that counts as word character: circled letters
  space,              ///< White_Space, including such controls
  joiner,             ///< U+200C, U+200D
  late_punctuation,   ///< P added after Unicode 8.0
};

inline constexpr unsigned kClassMask = 0x0f;
/// Changes (composes, decomposes or reorders) under NFC; under NFKC. By Unicode 9.0.
inline constexpr unsigned kNfcUnsafe = 0x10;
inline constexpr unsigned kNfkcUnsafe = 0x20;
/// Changes by Unicode 16.0, but was not assigned in 9.0: stays unchanged.
inline constexpr unsigned kNormalizedAfter9 = 0x40;
/// Not assigned in Unicode 14.0, the version of the regular expression library.
inline constexpr unsigned kAssignedAfter14 = 0x80;

/// One byte per code point: its CharClass and the flags above. Built at the first call; valid until
/// the program ends.
[[nodiscard]] const std::uint8_t* unicode_table();

/// Set of classes; bit i is CharClass i.
using ClassSet = std::uint16_t;

[[nodiscard]] constexpr ClassSet class_bit(CharClass one) {
  return static_cast<ClassSet>(1U << static_cast<unsigned>(one));
}
template <class... Classes>
[[nodiscard]] constexpr ClassSet classes(Classes... each) {
  return static_cast<ClassSet>((0U | ... | class_bit(each)));
}

inline constexpr ClassSet kLetterClasses =
    classes(CharClass::upper, CharClass::lower, CharClass::title, CharClass::modifier,
            CharClass::other_letter);
inline constexpr ClassSet kMarkClasses = classes(CharClass::mark);
inline constexpr ClassSet kNumberClasses = classes(CharClass::number, CharClass::other_number);
inline constexpr ClassSet kPunctuationClasses =
    classes(CharClass::connector, CharClass::punctuation, CharClass::late_punctuation);
inline constexpr ClassSet kSymbolClasses = classes(CharClass::symbol, CharClass::alphabetic_symbol);
inline constexpr ClassSet kSpaceClasses = classes(CharClass::space);
/// \w of the engines that match added tokens.
inline constexpr ClassSet kWordClasses = kLetterClasses | kMarkClasses |
                                         classes(CharClass::number, CharClass::connector,
                                                 CharClass::alphabetic_symbol, CharClass::joiner);

[[nodiscard]] inline bool in_classes(std::uint8_t entry, ClassSet set) {
  return ((static_cast<unsigned>(set) >> (entry & kClassMask)) & 1U) != 0;
}

}  // namespace train::data
