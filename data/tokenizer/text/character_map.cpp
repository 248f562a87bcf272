#include "data/tokenizer/text/character_map.hpp"

#include <cstring>

namespace train::data {
namespace {

/// Unit of the double array: bits 0 to 7 hold the byte that leads to it, bit 8 says that it has a
/// value, bits 10 to 30 give the offset of its children, in steps of 256 if bit 9 is set. With bit
/// 31 it holds a value.
struct Unit {
  std::uint32_t bits = 0;

  [[nodiscard]] bool has_value() const { return ((bits >> 8U) & 1U) != 0; }
  [[nodiscard]] bool follows(unsigned char byte) const { return (bits & 0x800000ffU) == byte; }
  [[nodiscard]] std::uint32_t children() const {
    return (bits >> 10U) << ((bits & (1U << 9U)) >> 6U);
  }
  [[nodiscard]] std::uint32_t value() const { return bits & 0x7fffffffU; }
};

}  // namespace

Result<CharacterMap> CharacterMap::parse(std::string_view bytes) {
  CharacterMap map;
  if (bytes.empty()) {
    return map;
  }
  std::uint32_t size = 0;
  if (bytes.size() > sizeof(size)) {
    std::memcpy(&size, bytes.data(), sizeof(size));
    bytes.remove_prefix(sizeof(size));
  }
  // The texts end with a zero, so that none extends beyond.
  if (size == 0 || size >= bytes.size() || size % sizeof(std::uint32_t) != 0 ||
      bytes.back() != '\0') {
    return user_error("its precompiled_charsmap is damaged");
  }
  map.units_.resize(size / sizeof(std::uint32_t));
  std::memcpy(map.units_.data(), bytes.data(), size);
  map.texts_ = bytes.substr(size);
  return map;
}

std::optional<CharacterMap::Found> CharacterMap::find(std::string_view text) const {
  return find(text, /*shortest=*/false);
}

std::optional<CharacterMap::Found> CharacterMap::find_shortest(std::string_view text) const {
  return find(text, /*shortest=*/true);
}

std::optional<CharacterMap::Found> CharacterMap::find(std::string_view text, bool shortest) const {
  if (units_.empty()) {
    return std::nullopt;
  }
  std::optional<Found> longest;
  std::size_t at = Unit{units_[0]}.children();
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    at ^= byte;
    if (at >= units_.size() || !Unit{units_[at]}.follows(byte)) {
      break;
    }
    const Unit unit{units_[at]};
    at ^= unit.children();
    if (unit.has_value() && at < units_.size()) {
      const std::uint32_t begin = Unit{units_[at]}.value();
      if (begin < texts_.size()) {
        longest = Found{i + 1, std::string_view(texts_.data() + begin)};
        if (shortest) {
          break;
        }
      }
    }
  }
  return longest;
}

}  // namespace train::data
