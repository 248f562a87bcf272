#pragma once

#include <cstddef>
#include <cstdint>

namespace train::storage {

inline constexpr std::size_t code_point_count = 0x110000;

/// What a code point is in Unicode 16.0, as far as splitting text asks.
enum class CharClass : std::uint8_t {
  other,              ///< Unassigned, controls, formats, private use.
  upper,              ///< Lu
  lower,              ///< Ll
  title,              ///< Lt
  modifier,           ///< Lm
  other_letter,       ///< Lo
  mark,               ///< M
  number,             ///< Nd, Nl
  other_number,       ///< No, which no word contains
  connector,          ///< Pc
  punctuation,        ///< P without Pc, of Unicode 8.0
  symbol,             ///< S
  alphabetic_symbol,  ///< S in words: letters in circles
  space,              ///< White_Space, the controls among them included
  joiner,             ///< U+200C, U+200D
  late_punctuation,   ///< P that Unicode 8.0 does not have
};

inline constexpr unsigned class_mask = 0x0f;
/// Composes, decomposes or reorders under NFC; under NFKC. By Unicode 9.0.
inline constexpr unsigned nfc_unsafe = 0x10;
inline constexpr unsigned nfkc_unsafe = 0x20;
/// Would do so by Unicode 16.0, but was not assigned in 9.0: stays as it is.
inline constexpr unsigned normalized_after_9 = 0x40;
/// Not assigned in Unicode 14.0, which the regular expression library knows.
inline constexpr unsigned assigned_after_14 = 0x80;

/// A byte for each code point: its CharClass and the flags above. Made once, by whoever asks first;
/// valid until the program ends.
[[nodiscard]] const std::uint8_t* unicode_table();

/// A set of classes; bit i is CharClass i.
using ClassSet = std::uint16_t;

[[nodiscard]] constexpr ClassSet class_bit(CharClass one) {
  return static_cast<ClassSet>(1U << static_cast<unsigned>(one));
}
template <class... Classes>
[[nodiscard]] constexpr ClassSet classes(Classes... each) {
  return static_cast<ClassSet>((0U | ... | class_bit(each)));
}

inline constexpr ClassSet letter_classes =
    classes(CharClass::upper, CharClass::lower, CharClass::title, CharClass::modifier,
            CharClass::other_letter);
inline constexpr ClassSet mark_classes = classes(CharClass::mark);
inline constexpr ClassSet number_classes = classes(CharClass::number, CharClass::other_number);
inline constexpr ClassSet punctuation_classes =
    classes(CharClass::connector, CharClass::punctuation, CharClass::late_punctuation);
inline constexpr ClassSet symbol_classes = classes(CharClass::symbol, CharClass::alphabetic_symbol);
inline constexpr ClassSet space_classes = classes(CharClass::space);
/// \w of the engines that match added tokens.
inline constexpr ClassSet word_classes = letter_classes | mark_classes |
                                         classes(CharClass::number, CharClass::connector,
                                                 CharClass::alphabetic_symbol, CharClass::joiner);

[[nodiscard]] inline bool in_classes(std::uint8_t entry, ClassSet set) {
  return ((static_cast<unsigned>(set) >> (entry & class_mask)) & 1U) != 0;
}

}  // namespace train::storage
